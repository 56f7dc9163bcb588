"""`kernel.running` as loops: along the last axis one by one, along others in registers side by side."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, kernels_in_order, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import product
from dlc.ir.passes import Context
from dlc.lowering.body import Body, Point, Step
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying, combine, in_lanes, register
from dlc.lowering.long_sums import STEPS, in_blocks, is_long, rounds
from dlc.lowering.loop_words import for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, nanoseconds, tile_rows, tiles

ELEMENT = 1500
"""Picoseconds for one element: a load, a combination that waits for the one before, a store."""
BLOCK = 64
"""Neighbouring totals that belong to one tile."""


def lower_running(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for running totals in destination form."""
    assert isinstance(op, kernels_in_order.Running)
    running = _Running(op, context.options.vector_bytes)
    return running.rows() if running.axis == running.last else running.blocks()


class _Running:
    def __init__(self, op: kernels_in_order.Running, vector_bytes: int) -> None:
        self.op = op
        self.writer = Writer(op)
        type = kernel.array_type(op.inputs[0])
        self.dtype, self.shape, self.axis, self.last = (
            type.dtype,
            type.shape,
            op.axis,
            type.rank - 1,
        )
        self.body = Body(self.writer, {}, max(1, vector_bytes // self.dtype.bytes))
        self.length = self.writer.size(self.shape[self.axis], "length").value

    def rows(self) -> Lowered:
        """Along the last axis: a tile is some rows."""
        writer, outer = self.writer, self.shape[: self.last]
        work = self.shape[self.last] * ELEMENT
        per_tile = tile_rows(work)
        count, total = writer.size(per_tile, "rows_per_tile").value, writer.size(product(outer), "rows").value
        emit = writer.emit
        lower = emit(scalar.Multiply(writer.first.value, count))
        upper = minimum(emit, emit(scalar.Multiply(writer.last.value, count)), total)
        extents = [writer.size(size, "extent", k).value for k, size in enumerate(outer)]

        def row(inner: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            places = unravel(inner, number, extents) if extents else []
            self._along(Point(inner, 1, {}), [Uniform(place) for place in places])
            return ()

        for_each(emit, lower, upper, 1, (), row, parallel=True)
        return writer.finish(*tiles(product(outer), per_tile, work))

    def blocks(self) -> Lowered:
        """Along another axis: a tile is a block of neighbours along the last."""
        writer, width = self.writer, self.shape[self.last]
        outer = [size for k, size in enumerate(self.shape) if k not in (self.axis, self.last)]
        across = ceil_divide(width, BLOCK)
        counts = [writer.size(size, "extent", k).value for k, size in enumerate((*outer, across))]
        end = writer.size(width, "width").value

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *places, block = unravel(emit, number, counts)
            outside: list[Lane] = [Uniform(place) for place in places]
            lower = emit(scalar.Multiply(block, index(emit, BLOCK)))
            upper = minimum(emit, emit(scalar.Add(lower, index(emit, BLOCK))), end)

            def at(lanes: int) -> Step:
                def columns(inner: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                    here = Uniform(position) if lanes == 1 else Linear(position)
                    self._along(Point(inner, lanes, {}), [*outside, here])
                    return ()

                return columns

            self.body.stretch_loops(emit, lower, upper, at)
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        work = self.shape[self.axis] * BLOCK * ELEMENT
        return writer.finish(product(outer) * across, nanoseconds(work))

    def _along(self, point: Point, others: list[Lane]) -> None:
        """The totals of one row, or of as many neighbouring ones as there are lanes."""
        op, lanes = self.op, point.lanes
        start = point.emit(scalar.Constant(kernel.identity(op.combine, self.dtype), self.dtype))
        first = start if lanes == 1 else register(point.emit, Uniform(start), lanes)

        def step(emit: Builder, k: Value, carried: list[Value], so_far: Value | None) -> Value:
            here = point.at(emit, lanes)
            (before,) = carried
            place = self._place(emit, k)
            places = [*others[: self.axis], Uniform(place), *others[self.axis :]]
            element = in_lanes(emit, self.body.load(here, 0, places, self.dtype), lanes)
            after = combine(emit, op.combine, before, element)
            total = before if op.exclusive else after
            if so_far is not None:
                total = emit(scalar.Add(so_far, total))
            lane = Uniform(total) if lanes == 1 else Varying(total)
            pointer = self.writer.pointers[1]
            self.body.store(here, lane, pointer, places, self.body.strides(1))
            return after

        def totals(
            emit: Builder, begin: Value, end: Value, so_far: Value | None
        ) -> tuple[Value, ...]:
            def one(inside: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
                return (step(inside, k, carried, so_far),)

            return for_each(emit, begin, end, 1, [first], one)

        emit, zero = point.emit, index(point.emit, 0)
        if not (rounds(op.combine, self.dtype) and is_long(op, self.shape[self.axis])):
            totals(emit, zero, self.length, None)
            return

        def several(
            outer: Builder, begin: Value, end: Value, before: list[Value]
        ) -> Sequence[Value]:
            """A block of blocks, after the sum of those before it."""

            def one(
                inside: Builder, begin: Value, end: Value, within: list[Value]
            ) -> Sequence[Value]:
                so_far = inside(scalar.Add(before[0], within[0]))
                (sum,) = totals(inside, begin, end, so_far)
                return (inside(scalar.Add(within[0], sum)),)

            (sum,) = in_blocks(outer, begin, end, STEPS, [first], one)
            return (outer(scalar.Add(before[0], sum)),)

        in_blocks(emit, zero, self.length, STEPS * STEPS, [first], several)

    def _place(self, emit: Builder, k: Value) -> Value:
        """Where the k-th element to be taken is along the axis."""
        if not self.op.reverse:
            return k
        last = emit(scalar.Subtract(self.length, index(emit, 1)))
        return emit(scalar.Subtract(last, k))
