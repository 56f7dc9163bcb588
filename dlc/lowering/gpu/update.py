"""`kernel.update` for a GPU, a thread to some neighbouring elements.

Over its target, only the elements of the update are written; elsewhere each element of the result is the
update's where that is, else the target's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, mem
from dlc.dialects.expr import Condition, Expr, all_of, index, select
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.gpu.elements import (
    THREADS,
    ElementIndex,
    copy_elements,
    groups_of,
    in_groups,
    over_groups,
    whole_stores,
)
from dlc.lowering.gpu.writer import GridWriter, when
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import in_lanes
from dlc.lowering.kernel_code.words import either
from dlc.lowering.kernel_code.writer import Lowered
from dlc.runtime.abi import Status
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget
from dlc.target.work import nanoseconds


def lower_update(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for an update in destination form."""
    assert isinstance(op, kernel.Update)
    return _Update(op, gpu_of(context.options)).lower()


class _Update:
    def __init__(self, op: kernel.Update, gpu: GpuTarget) -> None:
        self.gpu = gpu
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
        starts = [self._start(axis) for axis in range(len(self.shape))]
        write, domain = self._choose, self.shape
        if self.in_place:
            write, domain = self._put, self.part

        def groups_at(places: list[ElementIndex], lanes: int) -> None:
            for place in places:
                write(lanes, place, starts)

        tiles = over_groups(writer, domain, self.group, groups, groups_at)
        work = THREADS * self.group * groups * self.gpu.costs.copied_element
        return writer.finish(tiles, nanoseconds(work))

    def _is_whole(self, axis: int) -> bool:
        """Whether the update is as long as the target, and so begins at 0."""
        return self.part[axis] == self.shape[axis]

    def _start(self, axis: int) -> Expr:
        """Where the update begins along an axis; the call fails, and it is 0, where that leaves no room."""
        writer = self.writer
        place = in_lanes(self.body.load(Point(1, {}), 2 + axis, []), 1).cast(INDEX)
        room = writer.size(self.shape[axis] - self.part[axis] + 1, "room", axis)
        inside = (place >= 0) & (place < room)
        with when(~inside):
            failure = loop.Fail(writer.tile.value, place.value, room.value, int(Status.INDEX))
            writer.emit.place(failure)
        return index(writer.emit, 0) if self._is_whole(axis) else select(inside, place, 0)

    def _put(self, lanes: int, place: ElementIndex, starts: Sequence[Expr]) -> None:
        """Write a group of the update to where it belongs."""
        target = [k + start for k, start in zip(place, starts, strict=True)]
        copy_elements(self.body, lanes, 1, place, self.out, target)

    def _choose(self, lanes: int, place: ElementIndex, starts: Sequence[Expr]) -> None:
        """Write an element of the result."""
        moved = [k - start for k, start in zip(place, starts, strict=True)]
        met: Condition = True
        for axis, at in enumerate(moved):
            size = self.writer.size(self.part[axis], "part", axis)
            met = all_of([met, (at >= 0) & (at < size)])
        assert isinstance(met, Expr)
        either(
            met,
            lambda: copy_elements(self.body, lanes, 1, moved, self.out, place),
            lambda: copy_elements(self.body, lanes, 0, place, self.out, place),
        )
