"""`kernel.nonzero` for a GPU: one block goes through the elements in order and notes where true ones are.

Each thread has a few neighbours at a time; how many true ones the threads before it have says in which rows
its own go.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, kernels_in_order, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, I64, INDEX
from dlc.lowering.block_scan import scan
from dlc.lowering.body import Body, Point
from dlc.lowering.lanes import Lane, Uniform, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.simt_writer import GridWriter, either, threads_for, when
from dlc.lowering.work import nanoseconds
from dlc.runtime.abi import Status

THREADS = 1024
EACH = 4
"""Neighbours that a thread looks at, at a time."""
PICOSECONDS = 20
"""Of an element, roughly."""


def lower_nonzero(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for the places of true elements in destination form."""
    assert isinstance(op, kernels_in_order.NonZero)
    return _NonZero(op).lower()


class _NonZero:
    def __init__(self, op: kernels_in_order.NonZero) -> None:
        self.source = kernel.array_type(op.inputs[0])
        self.writer = GridWriter(op, threads_for(self.source.size, EACH, THREADS))
        self.body = Body(self.writer, {}, 1)
        self.limit = self.writer.size(op.bound, "limit").value

    def lower(self) -> Lowered:
        writer, emit = self.writer, self.writer.emit
        own = emit(scalar.Multiply(writer.thread.value, index(emit, EACH)))
        end = writer.size(self.source.size, "elements").value

        def some(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            return [self._some(deep, deep(scalar.Add(start, own)), end, carried[0])]

        (count,) = for_each(
            emit, index(emit, 0), end, writer.threads * EACH, [index(emit, 0)], some
        )
        either(emit, writer.once().value, lambda inside: self._finish(inside, count))
        return writer.finish(1, nanoseconds(self.source.size * PICOSECONDS))

    def _some(self, emit: Builder, first: Value, end: Value, before: Value) -> Value:
        """Note the thread's neighbours from `first` on; how many true ones there are up to now."""
        last = emit(scalar.Subtract(end, index(emit, 1)))
        found: list[tuple[Value, list[Value]]] = []
        count = index(emit, 0)
        for k in range(EACH):
            number = emit(scalar.Add(first, index(emit, k)))
            there = emit(scalar.Compare(number, end, "lt"))
            places = self._places(emit, minimum(emit, number, last))
            lanes: list[Lane] = [Uniform(place) for place in places]
            value = in_lanes(emit, self.body.load(Point(emit, 1, {}), 0, lanes, BOOL), 1)
            is_true = emit(scalar.And(there, value))
            count = emit(scalar.Add(count, emit(scalar.Cast(is_true, INDEX))))
            found.append((is_true, places))
        prefix, total = scan(self.writer, emit, "add", count, index(emit, 0))
        row = emit(scalar.Add(before, prefix))
        for is_true, places in found:
            room = emit(scalar.Compare(row, self.limit, "lt"))
            noted = emit(scalar.And(is_true, room))
            self._note(emit, noted, row, places)
            row = emit(scalar.Add(row, emit(scalar.Cast(is_true, INDEX))))
        return emit(scalar.Add(before, total))

    def _places(self, emit: Builder, number: Value) -> list[Value]:
        """The index along each axis of an element."""
        extents = [
            self.writer.size(size, "extent", axis).value for axis, size in enumerate(self.source.shape)
        ]
        return self.writer.unravel_values(emit, number, extents, self.source.size)

    def _note(self, emit: Builder, noted: Value, row: Value, places: Sequence[Value]) -> None:
        """Write the place of a true element into its row."""

        def write(inside: Builder) -> None:
            for axis, place in enumerate(places):
                where: list[Lane] = [Uniform(row), Uniform(index(inside, axis))]
                value = Uniform(inside(scalar.Cast(place, I64)))
                pointer, strides = self.writer.pointers[1], self.body.strides(1)
                self.body.store(Point(inside, 1, {}), value, pointer, where, strides)

        either(emit, noted, write)

    def _finish(self, emit: Builder, count: Value) -> None:
        """Store how many there are; the call fails if there was no room for all of them."""
        failure = loop.Fail(self.writer.tile.value, count, self.limit, int(Status.BOUND))
        when(emit, emit(scalar.Compare(count, self.limit, "gt")), failure)
        stored = emit(scalar.Cast(minimum(emit, count, self.limit), I64))
        emit.place(loop.Store(stored, self.writer.pointers[2], index(emit, 0)))
