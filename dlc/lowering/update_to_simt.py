"""`kernel.update` for a GPU, a thread to some neighbouring elements.

Over its target, only the elements of the update are written; elsewhere each element of the result is the
update's where that is, else the target's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, kernels_in_order, loop, mem, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Context
from dlc.ir.types import I64, INDEX
from dlc.lowering.body import Body, Point
from dlc.lowering.elements_to_simt import (
    THREADS,
    Place,
    copy_elements,
    groups_of,
    in_groups,
    over_groups,
    whole_stores,
)
from dlc.lowering.lanes import in_lanes
from dlc.lowering.loop_words import index
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.simt_writer import GridWriter, either, when
from dlc.lowering.work import nanoseconds
from dlc.runtime.abi import Status

PICOSECONDS = 500
"""Of one element, roughly."""


def lower_update(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for an update in destination form."""
    assert isinstance(op, kernels_in_order.Update)
    return _Update(op).lower()


class _Update:
    def __init__(self, op: kernels_in_order.Update) -> None:
        self.writer = GridWriter(op, THREADS)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])
        target, update = (kernel.array_type(value) for value in op.inputs[:2])
        self.dtype, self.shape, self.part = target.dtype, target.shape, update.shape
        self.out = len(op.inputs)
        # Updates of whole rows begin with them; neighbours of others may have any address.
        most = whole_stores(op.outs[0]) if self._is_whole(-1) else 1
        self.group = in_groups(self.part[-1], most)
        self.body = Body(self.writer, {}, self.group)

    def lower(self) -> Lowered:
        writer, groups = self.writer, groups_of(self.group)
        starts = [self._start(writer.emit, axis) for axis in range(len(self.shape))]
        write, domain = self._choose, self.shape
        if self.in_place:
            write, domain = self._put, self.part

        def groups_at(emit: Builder, places: list[Place], lanes: int) -> None:
            for place in places:
                write(Point(emit, lanes, {}), place, starts)

        tiles = over_groups(writer, domain, self.group, groups, groups_at)
        return writer.finish(tiles, nanoseconds(THREADS * self.group * groups * PICOSECONDS))

    def _is_whole(self, axis: int) -> bool:
        """Whether the update is as long as the target, and so begins at 0."""
        return self.part[axis] == self.shape[axis]

    def _start(self, emit: Builder, axis: int) -> Value:
        """Where the update begins along an axis; the call fails, and it is 0, where that leaves no room."""
        lane = self.body.load(Point(emit, 1, {}), 2 + axis, [], I64)
        value = emit(scalar.Cast(in_lanes(emit, lane, 1), INDEX))
        room = self.writer.size(self.shape[axis] - self.part[axis] + 1, "room", axis).value
        zero = index(emit, 0)
        low = emit(scalar.Compare(value, zero, "ge"))
        inside = emit(scalar.And(low, emit(scalar.Compare(value, room, "lt"))))
        failure = loop.Fail(self.writer.tile.value, value, room, int(Status.INDEX))
        when(emit, emit(scalar.Not(inside)), failure)
        return zero if self._is_whole(axis) else emit(scalar.Select(inside, value, zero))

    def _put(self, point: Point, place: Place, starts: Sequence[Value]) -> None:
        """Write a group of the update to where it belongs."""
        there = [point.emit(scalar.Add(*pair)) for pair in zip(place, starts, strict=True)]
        copy_elements(self.body, point, 1, place, self.out, there)

    def _choose(self, point: Point, place: Place, starts: Sequence[Value]) -> None:
        """Write an element of the result."""
        emit = point.emit
        moved = [emit(scalar.Subtract(*pair)) for pair in zip(place, starts, strict=True)]
        met: Value | None = None
        for axis, at in enumerate(moved):
            size = self.writer.size(self.part[axis], "part", axis).value
            low = emit(scalar.Compare(at, index(emit, 0), "ge"))
            inside = emit(scalar.And(low, emit(scalar.Compare(at, size, "lt"))))
            met = inside if met is None else emit(scalar.And(met, inside))
        assert met is not None

        def updated(deep: Builder) -> None:
            copy_elements(self.body, point.at(deep, point.lanes), 1, moved, self.out, place)

        def kept(deep: Builder) -> None:
            copy_elements(self.body, point.at(deep, point.lanes), 0, place, self.out, place)

        either(emit, met, updated, kept)
