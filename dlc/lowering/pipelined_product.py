"""A product for a GPU whose operands come into shared memory while the threads multiply.

A block computes a tile of the result. Strips of both operands are brought by copies that go on meanwhile
(`simt.copy`), two or three ahead of the one that is multiplied, each in a room of its own; a room is used
again when all threads have passed the barrier after its strip. Finished sums pass through shared memory, so
that neighbouring threads apply the epilogue to neighbouring columns, and its code is there once for a
group of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import loop, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import ceil_divide, divides, product
from dlc.ir.types import F32, U8
from dlc.lowering.epilogue import epilogue_body
from dlc.lowering.formula import number
from dlc.lowering.loop_words import for_each, index, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.product_panels import STRIP, Panel
from dlc.lowering.product_result import TOGETHER, write_results, written_together
from dlc.lowering.product_sources import Geometry, Strips, below, both
from dlc.lowering.simt_writer import GridWriter, nothing
from dlc.lowering.warp_products import GROUP, Form, MatrixProduct, ScalarProduct, WarpProduct
from dlc.target.work import nanoseconds

GAP = 8
"""Numbers between the rows of finished sums in shared memory, so that rows begin in other banks."""


class PipelinedProduct:
    """A product in the making, of tiles of a form, by matrix instructions or by `fma`."""

    def __init__(
        self,
        geometry: Geometry,
        form: Form,
        way: type[MatrixProduct | ScalarProduct],
        product_ps: int,
    ) -> None:
        """`product_ps` is what one multiplication and addition costs."""
        self.geometry = geometry
        self.form = form
        self.way = way
        self.product_ps = product_ps
        self.writer = GridWriter(geometry.op, form.threads, form.blocks)

    def lower(self) -> Lowered:
        writer, emit, form, geometry = self.writer, self.writer.emit, self.form, self.geometry
        down = ceil_divide(geometry.rows, form.rows)
        across = ceil_divide(geometry.columns, form.columns)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = unravel(emit, writer.tile, counts)
        first = [
            emit(scalar.Multiply(place, index(emit, side)))
            for place, side in ((i, form.rows), (j, form.columns))
        ]
        self._tile(emit, batch, first)
        work = form.rows * form.columns * geometry.inner * self.product_ps
        return writer.finish(product(geometry.batch) * down * across, nanoseconds(work))

    def _tile(self, emit: Builder, batch: Sequence[Value], first: Sequence[Value]) -> None:
        form, writer = self.form, self.writer
        dtype = writer.views[0].dtype
        strips = self.geometry.strips(STRIP // dtype.bytes)
        sources = self.geometry.sources(writer, emit, batch, strips)
        lhs, rhs = (
            Panel(writer, source, side, self.way.order(source, of_rows=of_rows))
            for source, side, of_rows in zip(
                sources, (form.rows, form.columns), (True, False), strict=True
            )
        )
        room = emit(simt.Shared(self._shared_bytes([lhs, rhs]) // F32.bytes, F32))
        warps = self.way(form, writer, lhs, rhs)
        sums = _Pipeline(self, emit, [lhs, rhs], room, first, strips).run(warps)
        self._finish(emit, batch, first, room, warps, sums)

    def _shared_bytes(self, panels: Sequence[Panel]) -> int:
        strips = self.form.stages * sum(panel.bytes for panel in panels)
        return max(strips, self.form.down * GROUP * self._pitch * F32.bytes)

    # Finished sums.

    @property
    def _pitch(self) -> int:
        return self.form.columns + GAP

    def _finish(
        self,
        emit: Builder,
        batch: Sequence[Value],
        first: Sequence[Value],
        room: Value,
        warps: WarpProduct,
        sums: Sequence[Value],
    ) -> None:
        """Apply the epilogue, to some rows of each warp at a time."""
        for group in range(self.form.warp_rows // GROUP):
            emit.place(simt.Barrier())
            self._leave(emit, room, warps, group, sums)
            emit.place(simt.Barrier())
            self._take(emit, batch, first, room, group)

    def _leave(
        self, emit: Builder, room: Value, warps: WarpProduct, group: int, sums: Sequence[Value]
    ) -> None:
        """Put the sums of a group of rows into shared memory."""
        top = emit(scalar.Multiply(warps.down, index(emit, GROUP)))
        for piece in warps.pieces(emit, group, sums):
            row = emit(scalar.Add(top, piece.row))
            start = emit(scalar.Multiply(row, index(emit, self._pitch)))
            column = emit(scalar.Add(warps.column, piece.column))
            place = emit(scalar.Add(start, column))
            emit.place(simt.Store(room, place, piece.sums))

    def _take(
        self, emit: Builder, batch: Sequence[Value], first: Sequence[Value], room: Value, group: int
    ) -> None:
        """Make results of the sums of a group of rows, neighbours by neighbouring threads.

        A thread stays in its columns: several, where their results can be written at once.
        """
        form, writer, geometry = self.form, self.writer, self.geometry
        body = epilogue_body(geometry.op, writer, 1)
        limits = writer.size(geometry.rows, "m"), writer.size(geometry.columns, "n")
        each = written_together(geometry.op) if divides(TOGETHER, geometry.columns) else 1
        across = form.columns // each
        start, part = unravel(emit, writer.thread, [index(emit, across)] * 2)
        own = emit(scalar.Multiply(part, index(emit, each)))
        column = emit(scalar.Add(first[1], own))

        def line(deep: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            warp, rest = unravel(deep, number, [index(deep, GROUP)] * 2)
            top = deep(scalar.Multiply(warp, index(deep, form.warp_rows)))
            down = deep(scalar.Add(top, deep(scalar.Add(rest, index(deep, group * GROUP)))))
            row = deep(scalar.Add(first[0], down))
            within = both(deep, below(deep, row, limits[0]), below(deep, column, limits[1]))
            there = deep(scalar.Add(deep(scalar.Multiply(number, index(deep, self._pitch))), own))
            work = Block()
            inside = Builder(work, deep.location)
            sums = inside.all(simt.Load(room, there, F32, each))
            columns = [inside(scalar.Add(column, index(inside, k))) for k in range(each)]
            places = [geometry.place(writer, inside, batch, row, place) for place in columns]
            write_results(geometry.op, body, writer, inside, places, sums)
            inside.place(loop.Yield([]))
            deep.place(loop.If(within, work, nothing(deep)))
            return ()

        step = writer.threads // across
        for_each(emit, start, index(emit, form.down * GROUP), step, (), line)


class _Pipeline:
    """The walk along k: strips are brought ahead of the one that is multiplied."""

    def __init__(
        self,
        made: PipelinedProduct,
        emit: Builder,
        panels: Sequence[Panel],
        room: Value,
        first: Sequence[Value],
        strips: Strips,
    ) -> None:
        self.emit = emit
        self.writer = made.writer
        self.stages = made.form.stages
        self.panels = panels
        self.first = first
        self.strips = strips
        start = emit(loop.Offset(room, index(emit, self.stages * panels[0].bytes), U8))
        self.rooms = room, start

    def run(self, warps: WarpProduct) -> Sequence[Value]:
        """The finished sums of the thread. All copies are done, but some threads may still read."""
        emit, ahead = self.emit, self.stages - 1

        def fill(deep: Builder, stage: Value, state: list[Value]) -> Sequence[Value]:
            return self._bring(deep, stage, state)

        zero = index(emit, 0)
        state = for_each(emit, zero, index(emit, ahead), 1, self.strips.start(emit), fill)

        def strip(deep: Builder, _: Value, carried: list[Value]) -> Sequence[Value]:
            reading, writing, *rest = carried
            state, sums = rest[: -warps.count], rest[-warps.count :]
            deep.place(simt.Wait(ahead - 1))
            deep.place(simt.Barrier())
            state = self._bring(deep, writing, state)
            sums = warps.multiply(deep, self._at(deep, reading), sums)
            return [self._next(deep, reading), self._next(deep, writing), *state, *sums]

        count = self.writer.size(self.strips.count, "strips")
        sums = [number(emit, 0, F32)] * warps.count
        carried = [zero, index(emit, ahead), *state, *sums]
        found = for_each(emit, zero, count, 1, carried, strip)
        emit.place(simt.Wait(0))
        return found[-warps.count :]

    def _bring(self, emit: Builder, stage: Value, state: Sequence[Value]) -> list[Value]:
        """Start to bring a strip; where the next one begins."""
        rooms = self._at(emit, stage)
        for panel, room, first in zip(self.panels, rooms, self.first, strict=True):
            panel.bring(emit, room, first, state)
        emit.place(simt.Commit())
        return self.strips.following(self.writer, emit, state)

    def _at(self, emit: Builder, stage: Value) -> list[Value]:
        """The rooms of a stage."""
        return [
            emit(loop.Offset(room, emit(scalar.Multiply(stage, index(emit, panel.bytes))), U8))
            for panel, room in zip(self.panels, self.rooms, strict=True)
        ]

    def _next(self, emit: Builder, stage: Value) -> Value:
        following = emit(scalar.Add(stage, index(emit, 1)))
        ends = emit(scalar.Compare(following, index(emit, self.stages), "eq"))
        return emit(scalar.Select(ends, index(emit, 0), following))
