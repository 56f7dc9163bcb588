"""Depthwise convolution for a GPU: a thread computes some neighbouring channels of a pixel.

For elements of a window outside the picture, the nearest element inside is loaded and replaced by 0, so
that no branch delays the other loads of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Condition,
    Expr,
    all_of,
    broadcast,
    constant,
    fma,
    index,
    maximum,
    minimum,
    select,
)
from dlc.dialects.kernel.products import Conv
from dlc.ir.dims import product
from dlc.lowering.gpu.elements import THREADS, ElementIndex, in_groups, lanes_at, over_groups
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.body import Point
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, varying
from dlc.lowering.kernel_code.words import nest
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS, GpuTarget
from dlc.target.work import nanoseconds

MOST_UNROLLED = 25
"""Windows of at most this many elements are unrolled; larger ones are a loop."""


def lower_depthwise(op: Conv, gpu: GpuTarget) -> Lowered:
    """The function for a depthwise convolution in destination form."""
    return _Depthwise(op, gpu).lower()


class _Depthwise:
    def __init__(self, op: Conv, gpu: GpuTarget) -> None:
        self.op = op
        self.gpu = gpu
        self.writer = GridWriter(op, THREADS)
        self.picture = kernel.array_type(op.lhs)
        self.dtype = op.accumulator
        widest = max(kernel.array_type(value).dtype.bytes for value in (op.lhs, *op.outs))
        self.lanes = in_groups(op.columns, ACCESS // widest)
        self.body = epilogue_body(op, self.writer, self.lanes)

    def lower(self) -> Lowered:
        op = self.op

        def write(places: list[ElementIndex], lanes: int) -> None:
            for place in places:
                self._group(lanes, place)

        tiles = over_groups(self.writer, op.domain, self.lanes, 1, write)
        work = THREADS * self.lanes * product(op.window) * self.gpu.costs.depthwise_product
        return self.writer.finish(tiles, nanoseconds(work))

    def _group(self, lanes: int, place: ElementIndex) -> None:
        """Sum the windows of a pixel for a group of channels, apply the epilogue, and write the results."""
        op, writer = self.op, self.writer
        pixels = (self.picture.shape[0], *op.extents)
        extents = [writer.size(size, "pixels", axis) for axis, size in enumerate(pixels)]
        picture, *pixel = writer.unravel(place[0], extents, product(pixels))
        channel = lanes_at(place, lanes)[-1]
        zero = broadcast(constant(writer.emit, 0, self.dtype), lanes)

        def add(tap: list[Expr], sums: list[Expr]) -> list[Expr]:
            return [self._accumulated(lanes, picture, pixel, tap, channel, sums[0], zero)]

        height, width = op.window
        sums = [zero]
        if height * width <= MOST_UNROLLED:
            for h in range(height):
                for w in range(width):
                    sums = add([index(writer.emit, h), index(writer.emit, w)], sums)
        else:
            sums = nest(writer.emit, op.window, sums, add)
        self._finish(lanes, place, sums[0])

    def _accumulated(
        self,
        lanes: int,
        picture: Expr,
        pixel: Sequence[Expr],
        tap: Sequence[Expr],
        channel: Lane,
        sum: Expr,
        zero: Expr,
    ) -> Expr:
        """The sum plus the product of an element of the window and its weight."""
        places: list[Lane] = [Uniform(picture)]
        inside: Condition = True
        for axis in range(2):
            place, within = self._input_position(axis, pixel[axis], tap[axis])
            places.append(Uniform(place))
            inside = all_of([inside, within])
        element = self._load(lanes, 0, [*places, channel])
        first = Uniform(index(self.writer.emit, 0))
        weight = self._load(lanes, 1, [*map(Uniform, tap), first, channel])
        if isinstance(inside, Expr):
            element = select(broadcast(inside, lanes), element, zero)
        return fma(element, weight, sum)

    def _load(self, lanes: int, view: int, places: Sequence[Lane]) -> Expr:
        """Elements of an operand, converted to the dtype of the sums."""
        return in_lanes(self.body.load(Point(lanes, {}), view, places), lanes).cast(self.dtype)

    def _input_position(self, axis: int, at: Expr, tap: Expr) -> tuple[Expr, Condition]:
        """The position of a tap of the window in the picture, clamped, and whether it is inside."""
        op, writer = self.op, self.writer
        place = at * op.strides[axis] + tap * op.dilations[axis]
        if op.padding[axis] == (0, 0):
            return place, True
        low = writer.size(op.padding[axis][0], "low", axis)
        size = writer.size(self.picture.shape[1 + axis], "size", axis)
        last = size - 1
        place = place - low
        inside = (place >= 0) & (place < size)
        return minimum(maximum(place, 0), last), inside

    def _finish(self, lanes: int, place: ElementIndex, sum: Expr) -> None:
        op, body = self.op, self.body
        places = lanes_at(place, lanes)
        arguments = op.epilogue.arguments[: len(op.domain) + 1]
        known = dict(zip(arguments, [*places, varying(sum, lanes)], strict=True))
        point = body.run(op.epilogue, Point(lanes, {}).at(lanes, known))
        first = len(op.operands) - len(op.outs)
        for view, value in enumerate(op.epilogue.terminator.operands, first):
            body.store_in(point, point.lane(value), view, places)
