"""`kernel.nonzero` as loops: one tile goes through the elements in order and notes where true ones are."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import kernel, kernels_in_order, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, I64, INDEX
from dlc.lowering.body import Body, Point
from dlc.lowering.lanes import Lane, Uniform, in_lanes
from dlc.lowering.loop_words import index, minimum, nest
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import nanoseconds
from dlc.runtime.abi import Status

ELEMENT = 1000
"""Picoseconds for an element."""


def lower_nonzero(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for the places of true elements in destination form."""
    assert isinstance(op, kernels_in_order.NonZero)
    return _NonZero(op).lower()


class _NonZero:
    def __init__(self, op: kernels_in_order.NonZero) -> None:
        self.op = op
        self.writer = Writer(op)
        self.shape = kernel.array_type(op.inputs[0]).shape
        self.body = Body(self.writer, {}, 1)
        self.limit = self.writer.size(op.bound, "limit").value

    def lower(self) -> Lowered:
        writer, emit = self.writer, self.writer.emit
        extents = [writer.size(size, "extent", axis).value for axis, size in enumerate(self.shape)]
        (count,) = nest(emit, extents, [index(emit, 0)], self._visit)
        self._check(emit, count)
        stored = emit(scalar.Cast(minimum(emit, count, self.limit), I64))
        emit.place(loop.Store(stored, writer.pointers[2], index(emit, 0)))
        elements = kernel.array_type(self.op.inputs[0]).size
        return writer.finish(1, nanoseconds(elements * ELEMENT))

    def _visit(self, emit: Builder, places: list[Value], carried: list[Value]) -> list[Value]:
        """Note the place of an element that is true; how many there are then."""
        (count,) = carried
        lanes: list[Lane] = [Uniform(place) for place in places]
        found = in_lanes(emit, self.body.load(Point(emit, 1, {}), 0, lanes, BOOL), 1)
        room = emit(scalar.Compare(count, self.limit, "lt"))
        self._if(emit, emit(scalar.And(found, room)), lambda e: self._note(e, places, count))
        return [emit(scalar.Add(count, emit(scalar.Cast(found, INDEX))))]

    def _note(self, emit: Builder, places: list[Value], row: Value) -> None:
        for axis, place in enumerate(places):
            where: list[Lane] = [Uniform(row), Uniform(index(emit, axis))]
            value = Uniform(emit(scalar.Cast(place, I64)))
            pointer, strides = self.writer.pointers[1], self.body.strides(1)
            self.body.store(Point(emit, 1, {}), value, pointer, where, strides)

    def _check(self, emit: Builder, count: Value) -> None:
        """The call fails if there was no room for all of them."""

        def fail(inner: Builder) -> None:
            first = self.writer.first.value
            inner.place(loop.Fail(first, count, self.limit, int(Status.BOUND)))

        self._if(emit, emit(scalar.Compare(count, self.limit, "gt")), fail)

    def _if(self, emit: Builder, condition: Value, then: _Write) -> None:
        yes, no = Block(), Block()
        inner = Builder(yes, emit.location)
        then(inner)
        for block in (yes, no):
            Builder(block, emit.location).place(loop.Yield([]))
        emit.place(loop.If(condition, yes, no))


_Write = Callable[[Builder], None]
"""Writes one branch."""
