"""`kernel.nonzero` on a CPU: stream compaction by one tile, which notes the indices of true elements."""

from __future__ import annotations

from dlc.dialects import kernel, loop
from dlc.dialects.expr import Expr, index, minimum
from dlc.ir.passes import Context
from dlc.ir.types import I64, INDEX
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.words import nest, when
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.runtime.abi import Status
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.work import nanoseconds


def lower_nonzero(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for the places of true elements in destination form."""
    assert isinstance(op, kernel.NonZero)
    return _NonZero(op, cpu_of(context.options).costs).lower()


class _NonZero:
    def __init__(self, op: kernel.NonZero, costs: CpuCosts) -> None:
        self.op = op
        self.costs = costs
        self.writer = Writer(op)
        self.shape = kernel.array_type(op.inputs[0]).shape
        self.body = Body(self.writer, {}, 1)
        self.limit = self.writer.size(op.bound, "limit")

    def lower(self) -> Lowered:
        writer = self.writer
        extents = [writer.size(size, "extent", axis) for axis, size in enumerate(self.shape)]
        (count,) = nest(writer.emit, extents, [0], self._visit)
        with when(count > self.limit):
            failure = loop.Fail(writer.tile.value, count.value, self.limit.value, int(Status.BOUND))
            writer.emit.place(failure)
        writer.pointer(2)[0] = minimum(count, self.limit).cast(I64)
        elements = kernel.array_type(self.op.inputs[0]).size
        return writer.finish(1, nanoseconds(elements * self.costs.nonzero_element))

    def _visit(self, places: list[Expr], carried: list[Expr]) -> list[Expr]:
        """Note the place of an element that is true; how many there are then."""
        (count,) = carried
        lanes = [Uniform(place) for place in places]
        element = in_lanes(self.body.load(Point(1, {}), 0, lanes), 1)
        room = count < self.limit
        with when(element & room):
            self._note(places, count)
        return [count + element.cast(INDEX)]

    def _note(self, places: list[Expr], row: Expr) -> None:
        for axis, place in enumerate(places):
            where: list[Lane] = [Uniform(row), Uniform(index(row.emit, axis))]
            self.body.store_in(Point(1, {}), Uniform(place.cast(I64)), 1, where)
