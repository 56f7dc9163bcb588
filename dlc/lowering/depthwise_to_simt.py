"""`kernel.conv` channel by channel for a GPU: a thread to some neighbouring channels of a pixel.

What a window has outside of the picture is read at the border and counts as 0, so that all elements of a
window are on their way at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel_products import Conv
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import product
from dlc.lowering.body import Point
from dlc.lowering.elements_to_simt import (
    THREADS,
    Place,
    in_groups,
    lanes_at,
    over_groups,
)
from dlc.lowering.epilogue import epilogue_body
from dlc.lowering.formula import number
from dlc.lowering.lanes import Lane, Uniform, Varying, in_lanes
from dlc.lowering.loop_words import index, minimum, nest
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.multiples import ACCESS
from dlc.lowering.simt_writer import GridWriter
from dlc.lowering.work import nanoseconds

MOST_WRITTEN = 25
"""Elements of a window that are written one behind the other; more are a loop."""
PICOSECONDS = 60
"""One product, roughly."""


def lower_depthwise(op: Conv) -> Lowered:
    """The function for one convolution in which each channel has a window of its own."""
    return _Depthwise(op).lower()


class _Depthwise:
    def __init__(self, op: Conv) -> None:
        self.op = op
        self.writer = GridWriter(op, THREADS)
        self.picture = kernel.array_type(op.lhs)
        self.dtype = op.accumulator
        widest = max(kernel.array_type(value).dtype.bytes for value in (op.lhs, *op.outs))
        self.group = in_groups(op.columns, ACCESS // widest)
        self.body = epilogue_body(op, self.writer, self.group)

    def lower(self) -> Lowered:
        op = self.op

        def write(emit: Builder, places: list[Place], lanes: int) -> None:
            for place in places:
                self._group(Point(emit, lanes, {}), place)

        tiles = over_groups(self.writer, op.domain, self.group, 1, write)
        work = THREADS * self.group * product(op.window) * PICOSECONDS
        return self.writer.finish(tiles, nanoseconds(work))

    def _group(self, point: Point, place: Place) -> None:
        """Add up the windows of a pixel and a few channels, and write what the epilogue makes of it."""
        op, emit, lanes = self.op, point.emit, point.lanes
        pixels = (self.picture.shape[0], *op.extents)
        extents = [self.writer.size(size, "pixels", axis).value for axis, size in enumerate(pixels)]
        picture, *where = self.writer.unravel_values(emit, place[0], extents, product(pixels))
        channel = lanes_at(place, lanes)[-1]
        zero = in_lanes(emit, Uniform(number(emit, 0, self.dtype)), lanes)

        def add(deep: Builder, tap: Sequence[Value], sums: list[Value]) -> list[Value]:
            here = point.at(deep, lanes)
            return [self._added(here, picture, where, tap, channel, sums[0], zero)]

        sums = [zero]
        if op.window[0] * op.window[1] <= MOST_WRITTEN:
            for h in range(op.window[0]):
                for w in range(op.window[1]):
                    sums = add(emit, [index(emit, h), index(emit, w)], sums)
        else:
            taps = [index(emit, size) for size in op.window]
            sums = nest(emit, taps, sums, add)
        self._finish(point, lanes_at(place, lanes), sums[0])

    def _added(
        self,
        point: Point,
        picture: Value,
        where: Sequence[Value],
        tap: Sequence[Value],
        channel: Lane,
        sum: Value,
        zero: Value,
    ) -> Value:
        """The sum and what one element of the window meets."""
        emit, lanes = point.emit, point.lanes
        places: list[Lane] = [Uniform(picture)]
        inside: Value | None = None
        for axis in range(2):
            at, met = self._met(emit, axis, where[axis], tap[axis])
            places.append(Uniform(at))
            if met is not None:
                inside = met if inside is None else emit(scalar.And(inside, met))
        element = self._load(point, 0, [*places, channel])
        window: list[Lane] = [*[Uniform(t) for t in tap], Uniform(index(emit, 0)), channel]
        weight = self._load(point, 1, window)
        if inside is not None:
            there = in_lanes(emit, Uniform(inside), lanes)
            element = emit(scalar.Select(there, element, zero))
        if self.dtype.is_float:
            return emit(scalar.Fma(element, weight, sum))
        return emit(scalar.Add(emit(scalar.Multiply(element, weight)), sum))

    def _load(self, point: Point, view: int, places: Sequence[Lane]) -> Value:
        """Elements of an operand, in the dtype of the sums."""
        lane = self.body.load(point, view, places, self.writer.views[view].dtype)
        value = in_lanes(point.emit, lane, point.lanes)
        same = self.writer.views[view].dtype is self.dtype
        return value if same else point.emit(scalar.Cast(value, self.dtype))

    def _met(self, emit: Builder, axis: int, at: Value, tap: Value) -> tuple[Value, Value | None]:
        """Where in the picture an element of the window is, and whether: None if it always is there."""
        op = self.op
        moved = emit(scalar.Multiply(at, index(emit, op.strides[axis])))
        reach = emit(scalar.Multiply(tap, index(emit, op.dilations[axis])))
        place = emit(scalar.Add(moved, reach))
        if op.padding[axis] == (0, 0):
            return place, None
        low = self.writer.size(op.padding[axis][0], "low", axis).value
        size = self.writer.size(self.picture.shape[1 + axis], "size", axis).value
        zero, last = index(emit, 0), emit(scalar.Subtract(size, index(emit, 1)))
        place = emit(scalar.Subtract(place, low))
        above = emit(scalar.Compare(place, zero, "ge"))
        inside = emit(scalar.And(above, emit(scalar.Compare(place, size, "lt"))))
        return minimum(emit, emit(scalar.Maximum(place, zero)), last), inside

    def _finish(self, point: Point, place: list[Lane], sum: Value) -> None:
        op, body = self.op, self.body
        total: Lane = Uniform(sum) if point.lanes == 1 else Varying(sum)
        arguments = op.epilogue.arguments[: len(op.domain) + 1]
        known = dict(zip(arguments, [*place, total], strict=True))
        here = body.run(op.epilogue, point.at(point.emit, point.lanes, known))
        first = len(op.operands) - len(op.outs)
        for view, value in enumerate(op.epilogue.terminator.operands, first):
            pointer = self.writer.pointers[view]
            body.store(here, here.lane(value), pointer, place, body.strides(view))
