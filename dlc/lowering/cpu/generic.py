"""`kernel.generic` as loops over registers (vectors), and over the remainder, element by element.

A register holds neighbouring elements of the last axis of the domain or, for kernels that reduce
along contiguous memory, of the last inner index of the reductions. Loop invariants are computed
outside the innermost loop. Remainders run the same code with one lane, so an element has the same
bits wherever it falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, scalar, vec
from dlc.dialects.expr import Expr, Index, Pointer, index, maximum, minimum
from dlc.ir.core import Value
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import TensorType, VectorType
from dlc.lowering.kernel_code.body import Body, Point, Row, lanes_of, path, registers_for, split
from dlc.lowering.kernel_code.lanes import Lane, Uniform, neighbours, register
from dlc.lowering.kernel_code.row_access import (
    checks_depend_on,
    dense_strides,
    element_of,
    has_stage,
    is_narrow,
    row_in_result,
    turned_arrays,
)
from dlc.lowering.kernel_code.words import for_each, iterate, next_index, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import LINE_FLOATS, CpuTarget
from dlc.target.work import element_work, tile_rows, tiles

Known = dict[Value, Lane | Row]
"""The values of the indices of the domain."""


def lower_generic(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a kernel in destination form."""
    assert isinstance(op, kernel.Generic)
    return _Generic(op, cpu_of(context.options)).lower()


class _Generic:
    def __init__(self, op: kernel.Generic, cpu: CpuTarget) -> None:
        self.op = op
        self.writer = Writer(op)
        self.lanes = lanes_of(op.body, cpu.vector_bytes)
        self.costs = cpu.costs
        self.is_narrow = is_narrow(op)
        self.reduces_in_registers = has_stage(op.body) or kernel.reduces_along_memory(op)
        if checks_depend_on(op, op.indices[-1:]) and not self.reduces_in_registers:
            self.lanes = 1
        arrays = {argument: view for view, argument in enumerate(op.arrays)}
        self.body = Body(
            self.writer,
            arrays,
            self.lanes,
            reduces_in_registers=self.reduces_in_registers,
            branches=True,
            allocate_row=self._allocate_row,
        )
        self.scratch: Size = 0
        self._scratch: Value | None = None

    def lower(self) -> Lowered:
        op = self.op
        columns: Size = 1
        if self.is_narrow:
            *outer, inner, columns = op.domain
            write = self._narrow_rows
        elif op.domain and not self.reduces_in_registers:
            *outer, inner = op.domain
            write = self._elements
        else:
            outer, inner = list(op.domain), 1
            write = self._one_element
        work = element_work(op.body, self.lanes, self.costs) * columns
        tiles, cost = self._tiles(outer, inner, work, write)
        scratch = () if self._scratch is None else (self._scratch,)
        return self.writer.finish(tiles, cost, self.scratch, scratch)

    def _tiles(
        self,
        outer: Sequence[Size],
        inner: Size,
        work: Size,
        write: Callable[[list[Expr], Index, Expr], None],
    ) -> tuple[Size, Size]:
        """The loop over the rows of a tile; a single row is divided into tiles itself.

        `work` is the cost of one of the `inner` elements of a row.
        """
        writer = self.writer
        rows = product(outer)
        if not outer or (rows == 1 and inner != 1):
            chunk = self._tile_elements(inner, work)
            extent = writer.size(inner, "extent", 0)
            length = writer.size(chunk, "tile")
            first = [index(writer.emit, 0) for _ in outer]
            write(first, writer.first * length, minimum(writer.last * length, extent))
            return tiles(inner, chunk, work)
        per_tile = tile_rows(rows, inner * work, self.costs)
        count = writer.size(per_tile, "rows_per_tile")
        lower = writer.first * count
        upper = minimum(writer.last * count, writer.size(rows, "rows"))
        extents = [writer.size(size, "extent", axis) for axis, size in enumerate(outer)]
        stop = index(writer.emit, 1 if inner == 1 else writer.size(inner, "extent", len(outer)))
        if not (self.reduces_in_registers or self.is_narrow) and turned_arrays(self.op):
            self._columns_of_rows(lower, upper, extents, stop)
        else:
            self._each_row(lower, upper, extents, lambda places: write(places, 0, stop))
        return tiles(rows, per_tile, inner * work)

    def _each_row(
        self,
        lower: Expr,
        upper: Expr,
        extents: Sequence[Expr],
        write: Callable[[list[Expr]], None],
    ) -> None:
        """Call `write` for the rows `lower` to `upper`, with the index along each axis."""
        emit = self.writer.emit

        def row(_: Expr, places: list[Expr]) -> list[Expr]:
            write(places)
            return next_index(places, extents)

        # With an empty axis, a tile may have no rows.
        nonzero = [maximum(extent, 1) for extent in extents]
        if len(extents) > 1:
            iterate(emit, lower, upper, unravel(lower, nonzero), row)
            return
        with for_each(emit, lower, upper) as number:
            write([number])

    def _columns_of_rows(
        self, lower: Expr, upper: Expr, extents: Sequence[Expr], stop: Expr
    ) -> None:
        """The rows of a tile, one register wide at a time: the operands are contiguous along the rows."""
        *outer, last = self.op.indices
        for lanes, position in self.body.register_loops(0, stop):
            column = neighbours(position, lanes)

            def row(
                places: list[Expr],
                lanes: int = lanes,
                column: Lane = column,
            ) -> None:
                known: Known = dict(zip(outer, map(Uniform, places), strict=True))
                point = self.body.run(self.op.body, Point(lanes, {**known, last: column}))
                self._store(point, [*map(Uniform, places), column])

            self._each_row(lower, upper, extents, row)

    def _tile_elements(self, elements: Size, work: Size) -> Size:
        """Elements of a tile along the only axis: a multiple of the lanes, so the remainder comes last."""
        # Threads write to cache lines of their own, if elements have 4 bytes.
        block = max(self.lanes, LINE_FLOATS)
        return tile_rows(ceil_divide(elements, block), work * block, self.costs) * block

    # A range of elements, or one element.

    def _one_element(self, indices: list[Expr], lower: Index, upper: Expr) -> None:
        places: list[Lane] = [Uniform(place) for place in indices]
        known: Known = dict(zip(self.op.indices, places, strict=True))
        self._store(self.body.run(self.op.body, Point(1, known)), places)

    def _elements(self, indices: list[Expr], lower: Index, upper: Expr) -> None:
        """Compute the elements `lower` to `upper` along the last axis of the domain."""
        *outer, last = self.op.indices
        known: Known = dict(zip(outer, map(Uniform, indices), strict=True))
        outside, inside = split(self.op.body, [last])
        point = self.body.ops(outside, Point(1, known))
        together = max(_registers_together(self.op), registers_for(inside))
        for lanes, position in self.body.register_loops(lower, upper, together):
            place = neighbours(position, lanes)
            element = self.body.ops(inside, point.at(lanes, {last: place}))
            self._store(element, [*map(Uniform, indices), place])

    def _narrow_rows(self, indices: list[Expr], lower: Index, upper: Expr) -> None:
        """Compute the rows `lower` to `upper` of few columns: for each column a register of rows."""
        *outer, row, last = self.op.indices
        columns = self.op.domain[-1]
        assert isinstance(columns, int)
        known: Known = dict(zip(outer, map(Uniform, indices), strict=True))
        views = [view for view, _ in self._element_results()]
        dense = all(self.writer.views[view].strides[-2:] == (columns, 1) for view in views)
        for lanes, position in self.body.register_loops(lower, upper):
            rows = neighbours(position, lanes)
            points: list[Point] = []
            for number in range(columns):
                column = Uniform(index(self.writer.emit, number))
                point = Point(lanes, {**known, row: rows, last: column})
                points.append(self.body.run(self.op.body, point))
                if not dense or lanes == 1:
                    places: list[Lane] = [*map(Uniform, indices), rows, column]
                    self._store(points[-1], places)
            if dense and lanes > 1:
                self._store_interleaved(points, indices, position)

    def _store_interleaved(self, points: list[Point], indices: list[Expr], first: Expr) -> None:
        """Write rows from `first` on of results without gaps, of which each point has one column."""
        lanes = points[0].lanes
        for view, value in self._element_results():
            strides = self.body.strides(view)
            start: Index = 0
            for place, stride in zip([*indices, first], strides[:-1], strict=True):
                start = start + place * stride
            registers = interleaved([register(point.lane(value), lanes) for point in points])
            for number, part in enumerate(registers):
                self.writer.pointer(view).store(start + number * lanes, part)

    def _element_results(self) -> list[tuple[int, Value]]:
        """The results that are elements: their views, and the values of the body that they are."""
        results = enumerate(self.op.body.terminator.operands, len(self.op.inputs))
        return [(view, value) for view, value in results if not isinstance(value.type, TensorType)]

    def _allocate_row(self, op: kernel.Stage, point: Point, extents: list[Expr]) -> Row:
        """The memory of a staged row: in the result if it is one, else in the scratch of the thread."""
        row = row_in_result(self.body, self.op, op, point)
        if row is not None:
            return row
        writer, dtype = self.writer, element_of(op)
        if self._scratch is None:
            self._scratch = writer.block.add_argument(writer.pointers[0].type, "scratch")
        offset = writer.size(self.scratch, "scratch", path(op))
        self.scratch = self.scratch + ceil_divide(product(op.extents) * dtype.bytes, 64) * 64
        start = Pointer(writer.emit, self._scratch, dtype).skip(offset)
        return Row(start, dense_strides(extents))

    def _store(self, point: Point, places: Sequence[Lane]) -> None:
        """Write the results that are elements; staged rows have been written already."""
        for view, value in self._element_results():
            self.body.store_in(point, point.lane(value), view, places)


def interleaved(columns: Sequence[Expr]) -> list[Expr]:
    """Registers of columns as registers of rows: the first elements of all, then the second ones, ..."""
    first, *others = columns
    assert isinstance(first.type, VectorType)
    lanes, count = first.type.lanes, len(columns)
    rows: list[Expr] = []
    for number in range(count):
        # Where element k of this register comes from: its column, and its place in there.
        places = [divmod(number * lanes + k, count)[::-1] for k in range(lanes)]
        merged, order = first, [at if column == 0 else 0 for column, at in places]
        for column, other in enumerate(others, 1):
            order = [
                lanes + at if own == column else order[k] for k, (own, at) in enumerate(places)
            ]
            merged = merged.apply(vec.Shuffle(merged.value, other.value, tuple(order)))
            order = list(range(lanes))
        rows.append(merged)
    return rows


COLUMNS = 8
"""Registers of neighbouring columns that are reduced together, so that each row uses whole cache lines."""
MAX_LIGHT = 4
"""The most operations, without functions, between load and reduction that leave registers for `COLUMNS`."""


def _registers_together(op: kernel.Generic) -> int:
    """The number of registers of elements to compute together: several if reductions run along columns."""
    reductions = [inner for inner in op.walk() if isinstance(inner, kernel.Reduce)]
    inside = [
        inner for fold in reductions for inner in fold.body if not isinstance(inner, kernel.Load)
    ]
    light = len(inside) <= MAX_LIGHT and all(
        not isinstance(inner, scalar.Unary) for inner in inside
    )
    return COLUMNS if len(reductions) == 1 and light else 1
