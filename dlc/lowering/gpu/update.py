"""`kernel.update` for a GPU: a thread writes a group of neighbouring elements.

If the result overwrites the target, only the elements of the update are written; otherwise every element
of the result is copied, from the update inside its bounds and from the target elsewhere.
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


def lower_update(op: kernel.Update, context: Context) -> Lowered:
    """The function for an update in destination form."""
    return _Update(op, gpu_of(context.options)).lower()


class _Update:
    def __init__(self, op: kernel.Update, gpu: GpuTarget) -> None:
        self.gpu = gpu
        self.writer = GridWriter(op, THREADS)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])
        target, update = (kernel.array_type(value) for value in op.inputs[:2])
        self.dtype, self.shape, self.update = target.dtype, target.shape, update.shape
        self.result = len(op.inputs)
        # Updates of whole rows are as aligned as the rows; others may begin at any address.
        most = whole_stores(op.outs[0]) if self._is_whole(-1) else 1
        self.lanes = in_groups(self.update[-1], most)
        self.body = Body(self.writer, {}, self.lanes)

    def lower(self) -> Lowered:
        writer, groups = self.writer, groups_of(self.lanes)
        starts = [self._start(axis) for axis in range(len(self.shape))]
        write, domain = self._write_result, self.shape
        if self.in_place:
            write, domain = self._write_update, self.update

        def write_groups(places: list[ElementIndex], lanes: int) -> None:
            for place in places:
                write(lanes, place, starts)

        tiles = over_groups(writer, domain, self.lanes, groups, write_groups)
        work = THREADS * self.lanes * groups * self.gpu.costs.copied_element
        return writer.finish(tiles, nanoseconds(work))

    def _is_whole(self, axis: int) -> bool:
        """Whether the update has the size of the target along an axis, and so begins at 0."""
        return self.update[axis] == self.shape[axis]

    def _start(self, axis: int) -> Expr:
        """The start of the update along an axis; if that is out of range, the call fails and it is 0."""
        writer = self.writer
        place = in_lanes(self.body.load(Point(1, {}), 2 + axis, []), 1).cast(INDEX)
        extent = writer.size(self.shape[axis], "whole", axis)
        part = writer.size(self.update[axis], "part", axis)
        inside = (place >= 0) & (place + part <= extent)
        status = Status.INDEX if self.update[axis] == 1 else Status.RANGE
        with when(~inside):
            failure = loop.Fail(writer.tile.value, place.value, extent.value, int(status))
            writer.emit.place(failure)
        return index(writer.emit, 0) if self._is_whole(axis) else select(inside, place, 0)

    def _write_update(self, lanes: int, place: ElementIndex, starts: Sequence[Expr]) -> None:
        """Write a group of elements of the update to the result."""
        target = [k + start for k, start in zip(place, starts, strict=True)]
        copy_elements(self.body, lanes, 1, place, self.result, target)

    def _write_result(self, lanes: int, place: ElementIndex, starts: Sequence[Expr]) -> None:
        """Write an element of the result, from the update or from the target."""
        position = [k - start for k, start in zip(place, starts, strict=True)]
        in_update: Condition = True
        for axis, at in enumerate(position):
            size = self.writer.size(self.update[axis], "part", axis)
            in_update = all_of([in_update, (at >= 0) & (at < size)])
        assert isinstance(in_update, Expr)
        either(
            in_update,
            lambda: copy_elements(self.body, lanes, 1, position, self.result, place),
            lambda: copy_elements(self.body, lanes, 0, place, self.result, place),
        )
