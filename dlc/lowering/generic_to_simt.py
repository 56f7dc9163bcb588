"""`kernel.generic` for a GPU.

Elements are computed by a thread each, neighbours by neighbours. Where the elements are made from rows,
by folds along contiguous memory or with staged rows, and where a few elements are long folds, a block of
threads computes one element: its threads share the inner indices out, and folds end in a fixed tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.ir.types import U8
from dlc.lowering.body import Body, Point, Row, path
from dlc.lowering.hoist import tidy
from dlc.lowering.lanes import Lane, Uniform, combine
from dlc.lowering.loop_words import for_each, index, times, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.rows import (
    dense_strides,
    element_of,
    folds_along_memory,
    has_stage,
    row_in_result,
)
from dlc.lowering.simt_writer import GridWriter, nothing
from dlc.lowering.work import ceil_divide, element_work, nanoseconds

THREADS = 256
"""Threads of a block whose threads compute an element each."""
FEW = 8192
"""Elements that leave most of a GPU idle when each is the work of one thread."""
LONG = 64
"""Steps of a fold that are worth a warp."""
MAX_SHARED = 32 << 10
"""Bytes that the staged rows of one element may take in shared memory."""


def lower_generic(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one generic kernel in destination form."""
    assert isinstance(op, kernel.Generic)
    by_rows = has_stage(op.body) or folds_along_memory(op) or _are_few_and_long(op)
    lowered = _rows(op) if by_rows else _elements(op)
    tidy(lowered.function)
    return lowered


def _elements(op: kernel.Generic) -> Lowered:
    """A thread for each element."""
    writer = GridWriter(op, THREADS)
    body = Body(writer, _arrays(op), 1)
    emit = writer.emit
    count = product(op.domain)
    start = emit(scalar.Multiply(writer.tile, index(emit, THREADS)))
    number = emit(scalar.Add(start, writer.thread))
    extents = [writer.size(size, "extent", axis) for axis, size in enumerate(op.domain)]
    within = emit(scalar.Compare(number, writer.size(count, "count"), "lt"))
    work = Block()
    inside = Builder(work, emit.location)
    indices = unravel(inside, number, extents) if extents else []
    _store(op, body, body.run(op.body, _at(op, inside, indices)), indices)
    inside.place(loop.Yield([]))
    emit.place(loop.If(within, work, nothing(emit)))
    cost = nanoseconds(THREADS * element_work(op.body, 1))
    return writer.finish(ceil_divide(count, THREADS), cost)


def _rows(op: kernel.Generic) -> Lowered:
    """A block of threads for each element."""
    writer = GridWriter(op, _threads(op))
    body = _BlockBody(writer, op)
    emit = writer.emit
    extents = [writer.size(size, "extent", axis) for axis, size in enumerate(op.domain)]
    indices = unravel(emit, writer.tile, extents) if extents else []
    point = body.run(op.body, _at(op, emit, indices))
    work = Block()
    inside = Builder(work, emit.location)
    _store(op, body, point.at(inside, 1), indices)
    inside.place(loop.Yield([]))
    emit.place(loop.If(writer.once(emit), work, nothing(emit)))
    tiles = product(op.domain)
    scratch = () if body.scratch is None else (body.scratch,)
    cost = nanoseconds(element_work(op.body, 1))
    return writer.finish(tiles, cost, tiles * body.scratch_bytes, scratch)


def _arrays(op: kernel.Generic) -> dict[Value, int]:
    return {argument: view for view, argument in enumerate(op.arrays)}


def _at(op: kernel.Generic, emit: Builder, indices: Sequence[Value]) -> Point:
    known: dict[Value, Lane | Row] = {
        argument: Uniform(place) for argument, place in zip(op.indices, indices, strict=True)
    }
    return Point(emit, 1, known)


def _store(op: kernel.Generic, body: Body, point: Point, indices: Sequence[Value]) -> None:
    """Write the results of one element that are no rows."""
    for number, value in enumerate(op.body.terminator.operands):
        if isinstance(value.op, kernel.Stage):
            continue  # a staged row: it was written where it belongs
        view = len(op.inputs) + number
        places: list[Lane] = [Uniform(place) for place in indices]
        pointer = body.writer.pointers[view]
        body.store(point, point.lane(value), pointer, places, body.strides(view))


def _are_few_and_long(op: kernel.Generic) -> bool:
    """Whether there are so few elements, each a long fold, that threads must share them."""
    count = product(op.domain)
    folds = any(isinstance(inner, kernel.Fold) for inner in op.body)
    return isinstance(count, int) and count <= FEW and folds and _longest(op) >= LONG


def _threads(op: kernel.Generic) -> int:
    """Threads for one element: a warp for short rows, more for long ones."""
    longest = _longest(op)
    return 32 if longest <= 64 else 128 if longest <= 1024 else 256


def _longest(op: kernel.Generic) -> int:
    """Inner indices of one element, where they are known; else a usual number."""
    lengths = [product(inner.extents) for inner in op.body if isinstance(inner, kernel.Inner)]
    return max((length for length in lengths if isinstance(length, int)), default=1024)


class _BlockBody(Body):
    """Writes bodies of which the threads of a block compute one element together."""

    def __init__(self, writer: GridWriter, op: kernel.Generic) -> None:
        super().__init__(writer, _arrays(op), 1)
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
        emit = point.emit
        extents = self._extents(op)
        point, inside = self._before(op.body, point)
        dtype = scalar.element(op.result.type)
        start = emit(scalar.Constant(kernel.identity(op.combine, dtype), dtype))

        def step(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
            value = self._inside(op, inside, point.at(deep, 1), unravel(deep, position, extents))
            return [combine(deep, op.combine, sums[0], value.value)]

        total = self._length(emit, extents)
        (own,) = for_each(emit, self.grid.thread, total, self.grid.threads, [start], step)
        return Uniform(self.grid.together(emit, op.combine, own))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        assert not self._alone, "rows are staged for a whole element"
        emit = point.emit
        extents = self._extents(op)
        row = self._room_for(op, point, extents)
        point, inside = self._before(op.body, point)

        def step(deep: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
            places = unravel(deep, position, extents)
            here = point.at(deep, 1)
            value = self._inside(op, inside, here, places)
            lanes: list[Lane] = [Uniform(place) for place in places]
            self.store(here, value, row.pointer, lanes, row.strides)
            return ()

        total = self._length(emit, extents)
        for_each(emit, self.grid.thread, total, self.grid.threads, (), step)
        emit.place(simt.Barrier())
        return row

    def _inside(
        self, op: kernel.Inner, inside: list[Op], point: Point, places: Sequence[Value]
    ) -> Uniform:
        self._alone = True
        lane = self._inner_value(op, inside, point, places)
        self._alone = False
        assert isinstance(lane, Uniform)
        return lane

    def _extents(self, op: kernel.Inner) -> list[Value]:
        return [
            self.writer.size(size, "extent", path(op), axis) for axis, size in enumerate(op.extents)
        ]

    def _length(self, emit: Builder, extents: Sequence[Value]) -> Value:
        length: Value | None = None
        for extent in extents:
            length = times(emit, extent, length)
        return index(emit, 1) if length is None else length

    def _room_for(self, op: kernel.Stage, point: Point, extents: Sequence[Value]) -> Row:
        """Where a staged row goes: into the result that it is, shared memory if it is short, or scratch."""
        found = row_in_result(self, self.op, op, point, extents)
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
        before = self.writer.size(product(self.op.domain) * self.scratch_bytes, "stage", path(op))
        own = times(emit, self.grid.tile, self.writer.size(length, "row", path(op)))
        self.scratch_bytes = self.scratch_bytes + length
        start = emit(loop.Offset(self.scratch, emit(scalar.Add(before, own)), U8))
        return Row(start, strides)
