"""A product for a GPU whose operands come into shared memory while the threads multiply.

A block computes a tile of the result. Strips of both operands are brought by copies that go on meanwhile
(`simt.copy`), two or three ahead of the one that is multiplied, each in a room of its own; a room is used
again when all threads have passed the barrier after its strip. Finished sums pass through shared memory, so
that neighbouring threads apply the epilogue to neighbouring columns, and its code is there once for a
group of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Index, Pointer, constant, select
from dlc.ir.dims import ceil_divide, divides, product
from dlc.ir.types import F32
from dlc.lowering.gpu.product.k_tiles import STRIP, Panel
from dlc.lowering.gpu.product.operands import Geometry, Strips
from dlc.lowering.gpu.product.results import TOGETHER, write_results, written_together
from dlc.lowering.gpu.product.warp_products import (
    GROUP,
    Form,
    MatrixProduct,
    ScalarProduct,
    WarpProduct,
)
from dlc.lowering.gpu.writer import GridWriter, load_several, store_several
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.words import for_each, iterate, unravel, when
from dlc.lowering.kernel_code.writer import Lowered
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
        writer, form, geometry = self.writer, self.form, self.geometry
        down = ceil_divide(geometry.rows, form.rows)
        across = ceil_divide(geometry.columns, form.columns)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = unravel(writer.tile, counts)
        self._tile(batch, (i * form.rows, j * form.columns))
        work = form.rows * form.columns * geometry.inner * self.product_ps
        return writer.finish(product(geometry.batch) * down * across, nanoseconds(work))

    def _tile(self, batch: Sequence[Expr], first: tuple[Expr, Expr]) -> None:
        form, writer = self.form, self.writer
        strips = self.geometry.strips(STRIP // writer.views[0].dtype.bytes)
        left, right = self.geometry.sources(writer, batch, strips)
        lhs = Panel(writer, left, form.rows, self.way.order(left, of_rows=True))
        rhs = Panel(writer, right, form.columns, self.way.order(right, of_rows=False))
        buffer = writer.shared(self._shared_bytes(lhs, rhs) // F32.bytes, F32)
        warps = self.way(form, writer, lhs, rhs)
        sums = _Pipeline(writer, form.stages, (lhs, rhs), buffer, first, strips).run(warps)
        for group in range(form.warp_rows // GROUP):
            writer.barrier()
            self._spill_sums(buffer, warps, group, sums)
            writer.barrier()
            self._apply_epilogue(batch, first, buffer, group)

    def _shared_bytes(self, lhs: Panel, rhs: Panel) -> int:
        strips = self.form.stages * (lhs.bytes + rhs.bytes)
        return max(strips, self.form.down * GROUP * self._pitch * F32.bytes)

    # Finished sums, some rows of each warp at a time.

    @property
    def _pitch(self) -> int:
        return self.form.columns + GAP

    def _spill_sums(
        self, buffer: Pointer, warps: WarpProduct, group: int, sums: Sequence[Expr]
    ) -> None:
        """Put the sums of a group of rows into shared memory."""
        top = warps.down * GROUP
        for piece in warps.pieces(group, sums):
            place = (top + piece.row) * self._pitch + (warps.column + piece.column)
            store_several(buffer, place, piece.sums)

    def _apply_epilogue(
        self, batch: Sequence[Expr], first: tuple[Expr, Expr], buffer: Pointer, group: int
    ) -> None:
        """Make results of the sums of a group of rows, neighbours by neighbouring threads.

        A thread stays in its columns: several, where their results can be written at once.
        """
        form, writer, geometry = self.form, self.writer, self.geometry
        body = epilogue_body(geometry.op, writer, 1)
        rows, columns = writer.size(geometry.rows, "m"), writer.size(geometry.columns, "n")
        each = written_together(geometry.op) if divides(TOGETHER, geometry.columns) else 1
        across = form.columns // each
        start, part = unravel(writer.thread, [across] * 2)
        own = part * each
        column = first[1] + own
        with for_each(writer.emit, start, form.down * GROUP, writer.threads // across) as line:
            warp, rest = unravel(line, [GROUP] * 2)
            row = first[0] + (warp * form.warp_rows + (rest + group * GROUP))
            within = (row < rows) & (column < columns)
            place = line * self._pitch + own
            with when(within):
                sums = load_several(buffer, place, each)
                neighbours = [column + k for k in range(each)]
                places = [geometry.place(writer, batch, row, one) for one in neighbours]
                write_results(geometry.op, body, writer, places, sums)


class _Pipeline:
    """The walk along k: strips are loaded ahead of the one that is multiplied."""

    def __init__(
        self,
        writer: GridWriter,
        stages: int,
        panels: tuple[Panel, Panel],
        buffer: Pointer,
        first: tuple[Expr, Expr],
        strips: Strips,
    ) -> None:
        self.writer = writer
        self.stages = stages
        self.panels = panels
        self.first = first
        self.strips = strips
        self.buffers = buffer, buffer.skip(stages * panels[0].bytes)

    def run(self, warps: WarpProduct) -> list[Expr]:
        """The finished sums of the thread. All copies are done, but some threads may still read."""
        writer, ahead = self.writer, self.stages - 1
        state = iterate(writer.emit, 0, ahead, self.strips.start(), self._load_strip)

        def strip(_: Expr, carried: list[Expr]) -> list[Index]:
            reading, writing, *rest = carried
            state, sums = rest[: -warps.count], rest[-warps.count :]
            writer.wait(ahead - 1)
            writer.barrier()
            following = self._load_strip(writing, state)
            sums = warps.multiply(*self._stage(reading), sums)
            return [self._next(reading), self._next(writing), *following, *sums]

        count = writer.size(self.strips.count, "strips")
        sums = [constant(writer.emit, 0, F32)] * warps.count
        carried = iterate(writer.emit, 0, count, [0, ahead, *state, *sums], strip)
        writer.wait()
        return carried[-warps.count :]

    def _load_strip(self, stage: Expr, state: list[Expr]) -> list[Index]:
        """Start to load a strip; where the next one begins."""
        for panel, buffer, first in zip(self.panels, self._stage(stage), self.first, strict=True):
            panel.load_tile(buffer, first, state)
        self.writer.commit()
        return self.strips.following(self.writer, state)

    def _stage(self, stage: Expr) -> tuple[Pointer, Pointer]:
        """The buffers of a stage."""
        lhs, rhs = (
            buffer.skip(stage * panel.bytes)
            for panel, buffer in zip(self.panels, self.buffers, strict=True)
        )
        return lhs, rhs

    def _next(self, stage: Expr) -> Expr:
        following = stage + 1
        return select(following.equals(self.stages), 0, following)
