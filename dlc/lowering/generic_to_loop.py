"""`kernel.generic` as loops over registers.

Two ways to use registers: over the last axis of the domain (neighbouring elements in one register), or,
for kernels that fold along contiguous memory, over the last inner index of the folds. What does not
depend on the innermost index is computed once outside. Tails are the same code with one lane, so an
element has the same bits wherever it falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.ir.types import U8, TensorType
from dlc.lowering.body import Body, Point, Row, Step, lanes_of, path, split
from dlc.lowering.lanes import Lane, Linear, Uniform
from dlc.lowering.loop_words import following, for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.rows import (
    checks_depend_on,
    dense_strides,
    element_of,
    folds_along_memory,
    has_stage,
    is_narrow,
    row_in_result,
    turned_arrays,
)
from dlc.lowering.work import ceil_divide, element_work, tile_rows, tiles


def lower_generic(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one kernel in destination form."""
    assert isinstance(op, kernel.Generic)
    return _Generic(op, context.options.vector_bytes).lower()


class _Generic:
    def __init__(self, op: kernel.Generic, vector_bytes: int) -> None:
        self.op = op
        self.writer = Writer(op)
        self.lanes = lanes_of(op.body, vector_bytes)
        self.is_narrow = is_narrow(op)
        self.folds_in_registers = has_stage(op.body) or folds_along_memory(op)
        if checks_depend_on(op, op.indices[-1:]) and not self.folds_in_registers:
            self.lanes = 1
        arrays = {argument: view for view, argument in enumerate(op.arrays)}
        self.body = Body(
            self.writer,
            arrays,
            self.lanes,
            folds_in_registers=self.folds_in_registers,
            branches=True,
            room=self._room,
        )
        self.scratch: Size = 0
        self._scratch: Value | None = None

    def lower(self) -> Lowered:
        op = self.op
        columns: Size = 1
        if self.is_narrow:
            *outer, inner, columns = op.domain
            write = self._narrow_rows
        elif op.domain and not self.folds_in_registers:
            *outer, inner = op.domain
            write = self._elements
        else:
            outer, inner = list(op.domain), 1
            write = self._one_element
        work = element_work(op.body, self.lanes) * columns
        tiles, cost = self._tiles(outer, inner, work, write)
        scratch = () if self._scratch is None else (self._scratch,)
        return self.writer.finish(tiles, cost, self.scratch, scratch)

    def _tiles(
        self,
        outer: Sequence[Size],
        inner: Size,
        work: Size,
        write: Callable[[Point, list[Value], Value, Value], None],
    ) -> tuple[Size, Size]:
        """The loop over the rows of a tile; with a single row, tiles are stretches of it instead.

        `work` is that of one of the `inner` elements of a row.
        """
        writer, emit = self.writer, self.writer.emit
        zero = index(emit, 0)
        if not outer:
            chunk = self._stretch(work)
            extent = writer.size(inner, "extent", 0).value
            length = writer.size(chunk, "stretch").value
            lower = emit(scalar.Multiply(writer.first.value, length))
            upper = minimum(emit, emit(scalar.Multiply(writer.last.value, length)), extent)
            write(self._start(emit), [], lower, upper)
            return tiles(inner, chunk, work)
        rows, per_tile = product(outer), tile_rows(inner * work)
        count = writer.size(per_tile, "rows_per_tile").value
        lower = emit(scalar.Multiply(writer.first.value, count))
        end = emit(scalar.Multiply(writer.last.value, count))
        upper = minimum(emit, end, writer.size(rows, "rows").value)
        extents = [writer.size(size, "extent", axis).value for axis, size in enumerate(outer)]
        stop = writer.size(inner, "extent", len(outer)).value if inner != 1 else index(emit, 1)
        if not (self.folds_in_registers or self.is_narrow) and turned_arrays(self.op):
            self._down_the_rows(lower, upper, extents, stop)
            return tiles(rows, per_tile, inner * work)

        def row(inside: Builder, places: list[Value]) -> None:
            write(self._start(inside), places, zero, stop)

        self._each_row(emit, lower, upper, extents, row)
        return tiles(rows, per_tile, inner * work)

    def _each_row(
        self,
        emit: Builder,
        lower: Value,
        upper: Value,
        extents: Sequence[Value],
        write: Callable[[Builder, list[Value]], None],
    ) -> None:
        """`write` for each row from one number up to another, given the index along each axis."""

        def row(inside: Builder, number: Value, places: list[Value]) -> Sequence[Value]:
            here = places or [number]
            write(inside, here)
            return following(inside, here, extents) if places else ()

        # A tile may be there for no rows at all, where there is an axis without elements.
        one = index(emit, 1)
        known = [emit(scalar.Maximum(extent, one)) for extent in extents]
        first = unravel(emit, lower, known) if len(extents) > 1 else []
        for_each(emit, lower, upper, 1, first, row)

    def _down_the_rows(
        self, lower: Value, upper: Value, extents: Sequence[Value], stop: Value
    ) -> None:
        """The rows of a tile one register wide at a time: what they read lies side by side down there."""
        last = self.op.indices[-1]

        def element_at(lanes: int) -> Step:
            def strip(emit: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                lane = Uniform(position) if lanes == 1 else Linear(position)

                def row(inside: Builder, places: list[Value]) -> None:
                    known: dict[Value, Lane] = {
                        argument: Uniform(place)
                        for argument, place in zip(self.op.indices[:-1], places, strict=True)
                    }
                    here = self._start(inside).at(inside, lanes, {**known, last: lane})
                    self._store_results(self.body.run(self.op.body, here), [*places, position])

                self._each_row(emit, lower, upper, extents, row)
                return ()

            return strip

        emit = self.writer.emit
        self.body.stretch_loops(emit, index(emit, 0), stop, element_at)

    def _stretch(self, work: Size) -> Size:
        """Elements of a tile along the only axis: a multiple of the lanes, so tails come last."""
        block = max(self.lanes, 64)
        return ceil_divide(tile_rows(work * block), 1) * block

    def _start(self, emit: Builder) -> Point:
        return Point(emit, 1, {})

    # One stretch of elements, or one element.

    def _one_element(self, point: Point, indices: list[Value], lower: Value, upper: Value) -> None:
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(self.op.indices, indices, strict=True)
        }
        here = point.at(point.emit, 1, known)
        self._store_results(self.body.run(self.op.body, here), indices)

    def _elements(self, point: Point, indices: list[Value], lower: Value, upper: Value) -> None:
        """Elements `lower` to `upper` along the last axis of the domain."""
        body, last = self.op.body, self.op.indices[-1]
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(self.op.indices[:-1], indices, strict=True)
        }
        outside, inside = split(body, [last])
        point = self.body.ops(outside, point.at(point.emit, 1, known))

        def element_at(lanes: int) -> Step:
            def write(emit: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                lane = Uniform(position) if lanes == 1 else Linear(position)
                here = self.body.ops(inside, point.at(emit, lanes, {last: lane}))
                self._store_results(here, [*indices, position])
                return ()

            return write

        self.body.stretch_loops(point.emit, lower, upper, element_at, _columns_together(self.op))

    def _narrow_rows(self, point: Point, indices: list[Value], lower: Value, upper: Value) -> None:
        """Rows `lower` to `upper` of few columns: a register of rows for each column."""
        row, last = self.op.indices[-2:]
        columns = self.op.domain[-1]
        assert isinstance(columns, int)
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(self.op.indices[:-2], indices, strict=True)
        }

        def element_at(lanes: int) -> Step:
            def write(emit: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                lane = Uniform(position) if lanes == 1 else Linear(position)
                for number in range(columns):
                    column = Uniform(index(emit, number))
                    here = point.at(emit, lanes, {**known, row: lane, last: column})
                    places: list[Lane] = [*map(Uniform, indices), lane, column]
                    self._store_at(self.body.run(self.op.body, here), places)
                return ()

            return write

        self.body.stretch_loops(point.emit, lower, upper, element_at)

    def _room(self, op: kernel.Stage, point: Point, extents: list[Value]) -> Row:
        """Where a staged row goes: into the result that it is, else into the thread's scratch."""
        row = row_in_result(self.body, self.op, op, point)
        if row is not None:
            return row
        emit = point.emit
        if self._scratch is None:
            self._scratch = self.writer.block.add_argument(self.writer.pointers[0].type, "scratch")
        offset = self.writer.size(self.scratch, "scratch", path(op)).value
        self.scratch = (
            self.scratch + ceil_divide(product(op.extents) * element_of(op).bytes, 64) * 64
        )
        start = emit(loop.Offset(self._scratch, offset, U8))
        return Row(start, dense_strides(emit, extents))

    def _store_results(self, point: Point, indices: Sequence[Value]) -> None:
        places: list[Lane] = [Uniform(position) for position in indices]
        if point.lanes > 1:
            places[-1] = Linear(indices[-1])
        self._store_at(point, places)

    def _store_at(self, point: Point, places: Sequence[Lane]) -> None:
        for number, value in enumerate(self.op.body.terminator.operands):
            if isinstance(value.type, TensorType):
                continue  # a staged row: it was written where it belongs
            view = len(self.op.inputs) + number
            pointer = self.writer.pointers[view]
            self.body.store(point, point.lane(value), pointer, places, self.body.strides(view))


COLUMNS = 8
"""Registers of neighbouring columns that are folded side by side: each row brings whole cache lines."""
LIGHT = 4
"""Operations between a load and a fold, no functions among them, that leave registers for so many."""


def _columns_together(op: kernel.Generic) -> int:
    """How many registers of elements to compute at a time: several where folds walk down columns."""
    folds = [inner for inner in op.walk() if isinstance(inner, kernel.Fold)]
    inside = [inner for fold in folds for inner in fold.body if not isinstance(inner, kernel.Load)]
    light = len(inside) <= LIGHT and all(not isinstance(inner, scalar.Unary) for inner in inside)
    return COLUMNS if len(folds) == 1 and light else 1
