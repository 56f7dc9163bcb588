"""`kernel.prefix_scan` on a CPU: sequential along the last axis, vectorized along others."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, broadcast, combine, constant, minimum
from dlc.ir.dims import ceil_divide, product
from dlc.ir.passes import Context
from dlc.lowering.kernel_code.blocked_sums import STEPS, in_blocks, is_long, rounds
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours, varying
from dlc.lowering.kernel_code.words import for_each, iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import nanoseconds, tile_rows, tiles

BLOCK = 64
"""Neighbouring totals that belong to one tile."""


def lower_running(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for running totals in destination form."""
    assert isinstance(op, kernel.PrefixScan)
    running = _Running(op, cpu_of(context.options))
    return running.rows() if running.axis == running.last else running.blocks()


class _Running:
    def __init__(self, op: kernel.PrefixScan, cpu: CpuTarget) -> None:
        self.op = op
        self.costs = cpu.costs
        self.writer = Writer(op)
        type = kernel.array_type(op.inputs[0])
        self.dtype, self.shape, self.axis, self.last = (
            type.dtype,
            type.shape,
            op.axis,
            type.rank - 1,
        )
        self.body = Body(self.writer, {}, cpu.lanes(self.dtype))
        self.length = self.writer.size(self.shape[self.axis], "length")

    def rows(self) -> Lowered:
        """Along the last axis: a tile is some rows."""
        writer, outer = self.writer, self.shape[: self.last]
        work = self.shape[self.last] * self.costs.scanned_element
        per_tile = tile_rows(product(outer), work, self.costs)
        count, total = writer.size(per_tile, "rows_per_tile"), writer.size(product(outer), "rows")
        lower = writer.first * count
        upper = minimum(writer.last * count, total)
        extents = [writer.size(size, "extent", k) for k, size in enumerate(outer)]
        with for_each(writer.emit, lower, upper, parallel=True) as number:
            places = unravel(number, extents) if extents else []
            self._along(1, [Uniform(place) for place in places])
        return writer.finish(*tiles(product(outer), per_tile, work))

    def blocks(self) -> Lowered:
        """Along another axis: a tile is a block of neighbours along the last."""
        writer, width = self.writer, self.shape[self.last]
        outer = [size for k, size in enumerate(self.shape) if k not in (self.axis, self.last)]
        across = ceil_divide(width, BLOCK)
        counts = [writer.size(size, "extent", k) for k, size in enumerate((*outer, across))]
        end = writer.size(width, "width")
        with for_each(writer.emit, writer.first, writer.last) as number:
            *places, block = unravel(number, counts)
            lower = block * BLOCK
            upper = minimum(lower + BLOCK, end)
            for lanes, position in self.body.register_loops(lower, upper):
                self._along(lanes, [*map(Uniform, places), neighbours(position, lanes)])
        work = self.shape[self.axis] * BLOCK * self.costs.scanned_element
        return writer.finish(product(outer) * across, nanoseconds(work))

    def _along(self, lanes: int, others: list[Lane]) -> None:
        """The totals of one row, or of as many neighbouring ones as there are lanes."""
        op, emit = self.op, self.writer.emit
        first = broadcast(
            constant(emit, kernel.identity(op.combine, self.dtype), self.dtype), lanes
        )

        def totals(begin: Expr | int, end: Expr, so_far: Expr | None) -> list[Expr]:
            """Write the totals of some elements, after those that make `so_far`; their own total."""

            def one(k: Expr, carried: list[Expr]) -> list[Expr]:
                return [self._total(lanes, others, k, carried[0], so_far)]

            return iterate(emit, begin, end, [first], one)

        if not (rounds(op.combine, self.dtype) and is_long(op, self.shape[self.axis])):
            totals(0, self.length, None)
            return

        def several(begin: Expr, end: Expr, before: list[Expr]) -> list[Expr]:
            """A block of blocks, after the sum of those before it."""

            def one(begin: Expr, end: Expr, within: list[Expr]) -> list[Expr]:
                (sum,) = totals(begin, end, before[0] + within[0])
                return [within[0] + sum]

            (sum,) = in_blocks(emit, begin, end, STEPS, [first], one)
            return [before[0] + sum]

        in_blocks(emit, 0, self.length, STEPS * STEPS, [first], several)

    def _total(
        self, lanes: int, others: list[Lane], k: Expr, before: Expr, so_far: Expr | None
    ) -> Expr:
        """Write one total; what is carried on."""
        op, point = self.op, Point(lanes, {})
        places = [*others[: self.axis], Uniform(self._place(k)), *others[self.axis :]]
        element = in_lanes(self.body.load(point, 0, places), lanes)
        after = combine(op.combine, before, element)
        total = before if op.exclusive else after
        if so_far is not None:
            total = so_far + total
        self.body.store_in(point, varying(total, lanes), 1, places)
        return after

    def _place(self, k: Expr) -> Expr:
        """Where the k-th element to be taken is along the axis."""
        return self.length - 1 - k if self.op.reverse else k
