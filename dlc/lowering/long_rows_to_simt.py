"""`kernel.generic` for a GPU where a block of threads computes one element from rows of any length.

Its threads share the inner indices out, neighbours by neighbours; folds end in a fixed tree. A staged row
is in shared memory if it is short, else in the kernel's scratch.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.types import U8
from dlc.lowering.body import Body, Point, Row, path
from dlc.lowering.elements_to_simt import in_groups, store_elements
from dlc.lowering.lanes import Lane, Linear, Uniform, combine, in_lanes
from dlc.lowering.loop_words import for_each, index, times
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.multiples import ACCESS
from dlc.lowering.rows import (
    before_results,
    checks_depend_on,
    dense_strides,
    element_of,
    read_where_it_writes,
    row_in_result,
)
from dlc.lowering.simt_writer import GridWriter, either
from dlc.lowering.work import ceil_divide, element_work, nanoseconds

MAX_SHARED = 32 << 10
"""Bytes that the staged rows of one element may take in shared memory."""
ACCUMULATORS = 4
"""Groups of neighbours that a thread loads before it adds any of them up."""


def lower_long_rows(op: kernel.Generic) -> Lowered:
    """The function for a kernel of which a block computes each element."""
    writer = GridWriter(op, _threads(op))
    body = _BlockBody(writer, op)
    emit = writer.emit
    extents = [writer.size(size, "extent", axis).value for axis, size in enumerate(op.domain)]
    tiles = product(op.domain)
    indices = writer.unravel_values(emit, writer.tile.value, extents, tiles)
    places: list[Lane] = [Uniform(place) for place in indices]
    known: dict[Value, Lane | Row] = dict(zip(op.indices, places, strict=True))
    needed, rest = before_results(op)
    point = body.ops(needed, Point(emit, 1, known))
    if read_where_it_writes(op, needed):
        emit.place(simt.Barrier())

    def results(inside: Builder) -> None:
        store_elements(op, body, body.ops(rest, point.at(inside, 1)), places)

    # One thread reads what only the results need: they may lie over it.
    either(emit, writer.once().value, results)
    scratch = () if body.scratch is None else (body.scratch,)
    cost = nanoseconds(element_work(op.body, 1))
    return writer.finish(tiles, cost, tiles * body.scratch_bytes, scratch)


def _threads(op: kernel.Generic) -> int:
    """Threads for one element: a warp for short rows, more for long ones."""
    length = longest(op)
    return 32 if length <= 64 else 128 if length <= 1024 else 256


def longest(op: kernel.Generic) -> int:
    """Inner indices of one element, where they are known; else a usual number."""
    lengths = [product(inner.extents) for inner in op.body if isinstance(inner, kernel.Inner)]
    return max((length for length in lengths if isinstance(length, int)), default=1024)


class _BlockBody(Body):
    """Writes bodies of which the threads of a block compute one element together."""

    def __init__(self, writer: GridWriter, op: kernel.Generic) -> None:
        super().__init__(writer, {argument: view for view, argument in enumerate(op.arrays)}, 1)
        self.grid = writer
        self.op = op
        self.scratch: Value | None = None
        self.scratch_bytes: Size = 0
        self._shared = 0
        self._alone = False
        """Whether the code is for one inner index, where every thread is on its own."""

    def _fold(self, op: kernel.Fold, point: Point) -> Lane:
        if self._alone or not op.extents:
            return super()._fold(op, point)
        emit, group = point.emit, self._group(op)
        extents = self._extents(op)
        point, inside = self._before(op.body, point)
        dtype = scalar.element(op.result.type)
        start = emit(scalar.Constant(kernel.identity(op.combine, dtype), dtype))

        step = self.grid.threads * group

        def values(deep: Builder, position: Value, sums: Sequence[Value]) -> list[Value]:
            """The next groups, one for each sum."""
            starts = [deep(scalar.Add(position, index(deep, k * step))) for k in range(len(sums))]
            found = [self._at(deep, op, inside, point, at, extents, group) for at in starts]
            return [in_lanes(deep, value, group) for value in found]

        def several(deep: Builder, position: Value, carried: list[Value]) -> Sequence[Value]:
            _, *sums = carried
            added = zip(sums, values(deep, position, sums), strict=True)
            sums = [combine(deep, op.combine, *pair) for pair in added]
            return [deep(scalar.Add(position, index(deep, len(sums) * step))), *sums]

        def one(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
            (value,) = values(deep, position, sums)
            return [combine(deep, op.combine, sums[0], value)]

        total = self._length(emit, extents)
        first = times(emit, self.grid.thread.value, index(emit, group))
        nothing = in_lanes(emit, Uniform(start), group)
        # Where the last of several groups begins inside, all of them are inside.
        limit = emit(scalar.Subtract(total, index(emit, (ACCUMULATORS - 1) * step)))
        initial = [first, *[nothing] * ACCUMULATORS]
        first, *sums = for_each(emit, first, limit, ACCUMULATORS * step, initial, several)
        sums[:1] = for_each(emit, first, total, step, sums[:1], one)
        while len(sums) > 1:
            half = len(sums) // 2
            pairs = zip(sums[:half], sums[half:], strict=True)
            sums = [combine(emit, op.combine, *pair) for pair in pairs]
        own = emit(vec.Reduce(sums[0], op.combine)) if group > 1 else sums[0]
        return Uniform(self.grid.together(emit, op.combine, own))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        assert not self._alone, "rows are staged for a whole element"
        emit, group = point.emit, self._group(op)
        extents = self._extents(op)
        row = self._room_for(op, point, extents)
        point, inside = self._before(op.body, point)

        def step(deep: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
            here = point.at(deep, group)
            value = self._at(deep, op, inside, point, position, extents, group)
            count = product(op.extents)
            places = _lanes(self.grid.unravel_values(deep, position, extents, count), group)
            self.store(here, value, row.pointer, places, row.strides)
            return ()

        total = self._length(emit, extents)
        first = times(emit, self.grid.thread.value, index(emit, group))
        for_each(emit, first, total, self.grid.threads * group, (), step)
        emit.place(simt.Barrier())
        return row

    def _group(self, op: kernel.Inner) -> int:
        """How many neighbours a thread has at a time; they are of one row of the inner indices."""
        if not op.extents or checks_depend_on(self.op, op.body.arguments):
            return 1
        if any(isinstance(inner, kernel.Inner) for inner in op.body):
            return 1
        loads = [inner.array for inner in op.body if isinstance(inner, kernel.Load)]
        widest = max((kernel.array_type(array).dtype.bytes for array in loads), default=ACCESS)
        if isinstance(op, kernel.Stage):
            widest = max(widest, element_of(op).bytes)
        return in_groups(op.extents[-1], ACCESS // widest)

    def _at(
        self,
        emit: Builder,
        op: kernel.Inner,
        inside: list[Op],
        point: Point,
        position: Value,
        extents: Sequence[Value],
        group: int,
    ) -> Lane:
        """What the body yields for the neighbours that begin at a position among all inner indices."""
        places = _lanes(self.grid.unravel_values(emit, position, extents, product(op.extents)), group)
        self._alone = True
        lane = self._inner_value(op, inside, point.at(emit, group), places)
        self._alone = False
        return lane

    def _extents(self, op: kernel.Inner) -> list[Value]:
        return [
            self.writer.size(size, "extent", path(op), axis).value for axis, size in enumerate(op.extents)
        ]

    def _length(self, emit: Builder, extents: Sequence[Value]) -> Value:
        length: Value | None = None
        for extent in extents:
            length = times(emit, extent, length)
        return index(emit, 1) if length is None else length

    def _room_for(self, op: kernel.Stage, point: Point, extents: Sequence[Value]) -> Row:
        """Where a staged row goes: into the result that it is, shared memory if it is short, or scratch."""
        found = row_in_result(self, self.op, op, point)
        if found is not None:
            return found
        emit, dtype, elements = point.emit, element_of(op), product(op.extents)
        strides = dense_strides(emit, extents)
        if isinstance(elements, int) and self._shared + elements * dtype.bytes <= MAX_SHARED:
            self._shared += elements * dtype.bytes
            return Row(emit(simt.Shared(max(1, elements), dtype)), strides)
        if self.scratch is None:
            self.scratch = self.writer.block.add_argument(self.writer.pointers[0].type, "scratch")
        # Scratch has the rows of all tiles, stage after stage.
        length = ceil_divide(elements * dtype.bytes, 64) * 64
        before = self.writer.size(product(self.op.domain) * self.scratch_bytes, "stage", path(op)).value
        own = times(emit, self.grid.tile.value, self.writer.size(length, "row", path(op)).value)
        self.scratch_bytes = self.scratch_bytes + length
        start = emit(loop.Offset(self.scratch, emit(scalar.Add(before, own)), U8))
        return Row(start, strides)


def _lanes(places: Sequence[Value], group: int) -> list[Lane]:
    """Inner indices, the last that of a group of neighbours."""
    lanes: list[Lane] = [Uniform(place) for place in places]
    if group > 1:
        lanes[-1] = Linear(places[-1])
    return lanes
