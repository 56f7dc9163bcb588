"""`kernel.running` for a GPU: a block to each row, or a thread to each where there are many side by side.

A block goes through a row some elements at a time, a few neighbours to a thread: each adds up its own, the
block what the threads have, and what came before is carried on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlc.dialects import kernel, kernels_in_order, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.lowering.block_scan import scan
from dlc.lowering.body import Body, Point
from dlc.lowering.elements_to_simt import FEW, THREADS, over_groups
from dlc.lowering.lanes import Lane, Uniform, combine, in_lanes
from dlc.lowering.loop_words import for_each, index
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.simt_writer import GridWriter, either, threads_for
from dlc.lowering.work import nanoseconds

EACH = 4
"""Neighbours that a thread has at a time."""
PICOSECONDS = 1500
"""Of one element, roughly."""


def lower_running(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for running totals in destination form."""
    assert isinstance(op, kernels_in_order.Running)
    running = _Running(op)
    return running.columns() if running.by_columns else running.rows()


class _Running:
    def __init__(self, op: kernels_in_order.Running) -> None:
        self.op = op
        type = kernel.array_type(op.inputs[0])
        self.dtype, self.shape = type.dtype, type.shape
        self.others = [size for axis, size in enumerate(self.shape) if axis != op.axis]
        self.length: Size = self.shape[op.axis]
        self.by_columns = op.axis < len(self.shape) - 1 and not self._are_few
        threads = THREADS if self.by_columns else threads_for(self.length, EACH, THREADS)
        self.writer = GridWriter(op, threads)
        self.body = Body(self.writer, {}, 1)

    @property
    def _are_few(self) -> bool:
        """Whether there are too few rows for a thread each."""
        count = product(self.others)
        return isinstance(count, int) and count <= FEW

    def columns(self) -> Lowered:
        """A thread goes along each row; neighbours are in neighbouring rows."""

        def write(emit: Builder, places: list[list[Value]], lanes: int) -> None:
            for place in places:
                self._along(emit, place)

        tiles = over_groups(self.writer, tuple(self.others), 1, 1, write)
        return self.writer.finish(tiles, nanoseconds(self.length * THREADS * PICOSECONDS))

    def _along(self, emit: Builder, others: Sequence[Value]) -> None:
        def step(deep: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
            (before,) = carried
            after = combine(deep, self.op.combine, before, self._load(deep, others, k))
            self._store(deep, before if self.op.exclusive else after, others, k)
            return [after]

        for_each(emit, index(emit, 0), self._size(), 1, [self._nothing(emit)], step)

    def rows(self) -> Lowered:
        """A block goes along each row."""
        writer, emit = self.writer, self.writer.emit
        count = product(self.others)
        extents = [writer.size(size, "extent", k).value for k, size in enumerate(self.others)]
        others = writer.unravel_values(emit, writer.tile.value, extents, count)
        own = emit(scalar.Multiply(writer.thread.value, index(emit, EACH)))

        def step(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            return [self._some(deep, others, deep(scalar.Add(start, own)), carried[0])]

        stride = writer.threads * EACH
        for_each(emit, index(emit, 0), self._size(), stride, [self._nothing(emit)], step)
        return writer.finish(count, nanoseconds(self.length * PICOSECONDS))

    def _some(self, emit: Builder, others: Sequence[Value], first: Value, before: Value) -> Value:
        """The totals of the thread's neighbours from `first` on; that of all that the block has now."""
        name, nothing, end = self.op.combine, self._nothing(emit), self._size()
        places = [emit(scalar.Add(first, index(emit, k))) for k in range(EACH)]
        inside = [emit(scalar.Compare(place, end, "lt")) for place in places]
        last = emit(scalar.Subtract(end, index(emit, 1)))
        values: list[Value] = []
        for place, there in zip(places, inside, strict=True):
            value = self._load(emit, others, emit(scalar.Minimum(place, last)))
            values.append(emit(scalar.Select(there, value, nothing)))
        own = values[0]
        for value in values[1:]:
            own = combine(emit, name, own, value)
        prefix, whole = scan(self.writer, emit, name, own, nothing)
        total = combine(emit, name, before, prefix)
        for place, there, value in zip(places, inside, values, strict=True):
            after = combine(emit, name, total, value)
            stored = total if self.op.exclusive else after
            either(emit, there, partial(self._store, value=stored, others=others, k=place))
            total = after
        return combine(emit, name, before, whole)

    # Elements, by their number along the axis in the order that they are taken in.

    def _size(self) -> Value:
        return self.writer.size(self.length, "length").value

    def _nothing(self, emit: Builder) -> Value:
        return emit(scalar.Constant(kernel.identity(self.op.combine, self.dtype), self.dtype))

    def _place(self, emit: Builder, others: Sequence[Value], k: Value) -> list[Lane]:
        if self.op.reverse:
            last = emit(scalar.Subtract(self._size(), index(emit, 1)))
            k = emit(scalar.Subtract(last, k))
        axis = self.op.axis
        return [Uniform(value) for value in (*others[:axis], k, *others[axis:])]

    def _load(self, emit: Builder, others: Sequence[Value], k: Value) -> Value:
        place = self._place(emit, others, k)
        return in_lanes(emit, self.body.load(Point(emit, 1, {}), 0, place, self.dtype), 1)

    def _store(self, emit: Builder, value: Value, others: Sequence[Value], k: Value) -> None:
        place, strides = self._place(emit, others, k), self.body.strides(1)
        self.body.store(Point(emit, 1, {}), Uniform(value), self.writer.pointers[1], place, strides)
