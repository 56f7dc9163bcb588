"""`kernel.update` as loops: row by row, in registers.

Over its target, only the rows of the update are written; elsewhere each row of the target is copied and,
where the update meets it, overwritten.
"""

from __future__ import annotations

from dlc.dialects import kernel, mem
from dlc.dialects.expr import Expr, minimum
from dlc.ir.dims import ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours
from dlc.lowering.kernel_code.words import for_each, unravel, when
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import nanoseconds, tile_rows


def lower_update(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for an update in destination form."""
    assert isinstance(op, kernel.Update)
    return _Update(op, cpu_of(context.options)).lower()


class _Update:
    def __init__(self, op: kernel.Update, cpu: CpuTarget) -> None:
        self.writer = Writer(op)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])
        target, update = (kernel.array_type(value) for value in op.inputs[:2])
        self.dtype, self.shape, self.part = target.dtype, target.shape, update.shape
        self.out = len(op.inputs)
        self.costs = cpu.costs
        self.body = Body(self.writer, {}, cpu.lanes(self.dtype))
        self.parts = [self.writer.size(size, "part", k) for k, size in enumerate(self.part)]

    def lower(self) -> Lowered:
        writer = self.writer
        shape = self.part if self.in_place else self.shape
        *outer, across = shape
        rows = product(outer)
        per_tile = tile_rows(rows, across * self.costs.updated_element, self.costs)
        starts = [self._start(axis) for axis in range(len(shape))]
        count = writer.size(per_tile, "rows_per_tile")
        lower = writer.first * count
        upper = minimum(writer.last * count, writer.size(rows, "rows"))
        extents = [writer.size(size, "extent", k) for k, size in enumerate(outer)]
        with for_each(writer.emit, lower, upper, parallel=True) as number:
            places = unravel(number, extents) if extents else []
            if self.in_place:
                self._put(places, starts)
            else:
                self._copy_and_put(places, starts)
        work = per_tile * across * self.costs.updated_element
        return writer.finish(ceil_divide(rows, per_tile), nanoseconds(work))

    def _start(self, axis: int) -> Expr:
        """Where the update begins along an axis; the call fails, and it is 0, where that leaves no room."""
        place = in_lanes(self.body.load(Point(1, {}), 2 + axis, []), 1).cast(INDEX)
        extent = self.writer.size(self.shape[axis], "whole", axis)
        return self.writer.checked_index(
            place, extent, None if self.part[axis] == 1 else self.parts[axis]
        )

    def _put(self, places: list[Expr], starts: list[Expr]) -> None:
        """Write a row of the update into the result; `places` count from where the update begins."""
        target = [k + start for k, start in zip(places, starts, strict=False)]
        for lanes, position in self.body.register_loops(0, self.parts[-1]):
            moved = position + starts[-1]
            point = Point(lanes, {})
            source: list[Lane] = [*map(Uniform, places), neighbours(position, lanes)]
            elements = self.body.load(point, 1, source)
            where: list[Lane] = [*map(Uniform, target), neighbours(moved, lanes)]
            self.body.store_in(point, elements, self.out, where)

    def _copy_and_put(self, places: list[Expr], starts: list[Expr]) -> None:
        """Copy a row of the target and put what the update has of it over that."""
        for lanes, position in self.body.register_loops(
            0, self.writer.size(self.shape[-1], "across")
        ):
            point = Point(lanes, {})
            where: list[Lane] = [*map(Uniform, places), neighbours(position, lanes)]
            self.body.store_in(point, self.body.load(point, 0, where), self.out, where)
        inside = [k - start for k, start in zip(places, starts, strict=False)]
        self._where_met(inside, starts, 0)

    def _where_met(self, inside: list[Expr], starts: list[Expr], axis: int) -> None:
        """Put the row of the update, if there is one at these places from `axis` on."""
        if axis == len(inside):
            self._put(inside, starts)
            return
        with when((inside[axis] >= 0) & (inside[axis] < self.parts[axis])):
            self._where_met(inside, starts, axis + 1)
