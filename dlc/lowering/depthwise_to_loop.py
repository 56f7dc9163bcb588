"""`kernel.conv` channel by channel: registers hold neighbouring channels of some neighbouring pixels.

Each element of the weights is loaded once for all pixels of a block. Where every window of a row of
results lies inside the picture, from side to side, nothing is tested; at the borders the window is cut
to what there is of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel_products import Conv
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import floor_divide, product
from dlc.ir.dims import maximum as larger
from dlc.ir.dims import minimum as smaller
from dlc.ir.passes import Context
from dlc.ir.types import DType, Type, VectorType
from dlc.lowering.body import Point, lanes_of
from dlc.lowering.epilogue import Tile, epilogue_body, write_registers
from dlc.lowering.lanes import Lane, Linear, Uniform, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum, unravel, whole_registers
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, tile_rows, tiles

PIXELS = 4
"""Pixels of a block: with two registers of channels each, their sums hide the time of an addition."""
REGISTERS = 2
PICOSECONDS = 60
"""One product, roughly: each needs a load."""


def lower_depthwise(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one convolution in which each channel has a window of its own."""
    assert isinstance(op, Conv)
    return _Depthwise(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of results: which picture, which row of it, the number of its first pixel, and the rows of
    the window that lie inside the picture, from `first` up to `last`."""

    picture: Value
    row: Value
    pixel: Value
    first: Value
    last: Value


@dataclass(frozen=True, slots=True)
class _Block:
    """Neighbouring pixels from a column on, and neighbouring channels in registers of `lanes` each."""

    column: Value
    pixels: int
    channel: Value
    registers: int
    lanes: int

    def channels(self, emit: Builder) -> list[Lane]:
        """The channels of each register."""
        if self.lanes == 1:
            return [Uniform(self.channel)]
        starts = [index(emit, v * self.lanes) for v in range(self.registers)]
        return [Linear(emit(scalar.Add(self.channel, start))) for start in starts]


class _Depthwise:
    def __init__(self, op: Conv, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        self.fma = context.options.fma
        lanes = lanes_of(op.epilogue, context.options.vector_bytes)
        self.body = epilogue_body(op, self.writer, lanes)
        self.dtype: DType = op.accumulator

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        batch, *_ = kernel.array_type(op.lhs).shape
        height, width = op.extents
        work = product(op.window) * width * op.columns * PICOSECONDS
        per_tile = tile_rows(work)
        rows = batch * height
        count = writer.size(per_tile, "rows of a tile").value
        lower = writer.emit(scalar.Multiply(writer.first.value, count))
        end = writer.emit(scalar.Multiply(writer.last.value, count))
        upper = minimum(writer.emit, end, writer.size(rows, "all rows").value)

        def row(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            self._row(emit, number)
            return ()

        for_each(writer.emit, lower, upper, 1, (), row)
        return writer.finish(*tiles(rows, per_tile, work))

    def _row(self, emit: Builder, number: Value) -> None:
        height, width = self.op.extents
        extents = [number, self.writer.size(height, "height").value]
        picture, row = unravel(emit, number, extents)
        first, last = self._cut(emit, 0, row)
        pixel = emit(scalar.Multiply(number, self.writer.size(width, "width").value))
        here = _Row(picture, row, pixel, first, last)
        channels = self.writer.size(self.op.columns, "channels").value
        zero, lanes = index(emit, 0), self.body.lanes
        several = whole_registers(emit, zero, channels, REGISTERS * lanes)
        whole = whole_registers(emit, zero, channels, lanes)
        self._channels(emit, here, zero, several, REGISTERS, lanes)
        if lanes > 1:
            self._channels(emit, here, several, whole, 1, lanes)
            self._channels(emit, here, whole, channels, 1, 1)
        else:
            self._channels(emit, here, several, channels, 1, 1)

    def _channels(
        self, emit: Builder, row: _Row, lower: Value, upper: Value, registers: int, lanes: int
    ) -> None:
        """All pixels of a row for channels from `lower` to `upper`, so many registers at a time."""
        width = self.writer.size(self.op.extents[1], "width").value
        left, right = self._inner(emit)
        blocks = whole_registers(emit, left, right, PIXELS)

        def channel(inside: Builder, start: Value, _: list[Value]) -> Sequence[Value]:
            zero = index(inside, 0)

            def pixels(count: int, border: bool) -> Callable[..., Sequence[Value]]:
                def block(deep: Builder, column: Value, _: list[Value]) -> Sequence[Value]:
                    where = _Block(column, count, start, registers, lanes)
                    self._block(deep, row, where, border)
                    return ()

                return block

            for_each(inside, zero, left, 1, (), pixels(1, True))
            for_each(inside, left, blocks, PIXELS, (), pixels(PIXELS, False))
            for_each(inside, blocks, right, 1, (), pixels(1, False))
            for_each(inside, right, width, 1, (), pixels(1, True))
            return ()

        for_each(emit, lower, upper, registers * lanes, (), channel)

    def _cut(self, emit: Builder, axis: int, at: Value) -> tuple[Value, Value]:
        """The elements of the window along an axis that lie inside the picture, from and up to."""
        op, taps = self.op, index(emit, self.op.window[axis])
        zero, step = index(emit, 0), index(emit, op.dilations[axis])
        if op.padding[axis] == (0, 0):
            return zero, taps
        extent = self.writer.size(kernel.array_type(op.lhs).shape[1 + axis], "extent", axis).value
        start = self._begin(emit, axis, at)
        before = emit(scalar.Subtract(zero, start))
        after = emit(scalar.Subtract(extent, start))
        first, last = (
            emit(scalar.RawDivide(self._up(emit, distance, axis), step))
            for distance in (before, after)
        )
        return minimum(emit, first, taps), minimum(emit, last, taps)

    def _up(self, emit: Builder, distance: Value, axis: int) -> Value:
        """What to divide by the dilation to round up; nothing is less than 0."""
        more = index(emit, self.op.dilations[axis] - 1)
        return emit(scalar.Maximum(emit(scalar.Add(distance, more)), index(emit, 0)))

    def _begin(self, emit: Builder, axis: int, at: Value) -> Value:
        """Where in the picture the window for a pixel begins along an axis."""
        start = emit(scalar.Multiply(at, index(emit, self.op.strides[axis])))
        low, _ = self.op.padding[axis]
        return (
            start if low == 0 else emit(scalar.Subtract(start, self.writer.size(low, "low", axis).value))
        )

    def _inner(self, emit: Builder) -> tuple[Value, Value]:
        """The columns of results whose windows lie inside the picture from side to side."""
        op = self.op
        (low, _), stride = op.padding[1], op.strides[1]
        width, extent = op.extents[1], kernel.array_type(op.lhs).shape[2]
        reach = (op.window[1] - 1) * op.dilations[1] + 1
        left = smaller(ceil_divide(low, stride), width)
        right = larger(smaller(floor_divide(extent + low - reach, stride) + 1, width), left)
        return self.writer.size(left, "left").value, self.writer.size(right, "right").value

    # One block.

    def _block(self, emit: Builder, row: _Row, block: _Block, border: bool) -> None:
        channels = block.channels(emit)
        type: Type = self.dtype if block.lanes == 1 else VectorType(self.dtype, block.lanes)
        zero = emit(scalar.Constant(0.0, type))
        columns = [emit(scalar.Add(block.column, index(emit, j))) for j in range(block.pixels)]
        window = index(emit, 0), index(emit, self.op.window[1])
        if border:
            window = self._cut(emit, 1, block.column)

        def down(inside: Builder, h: Value, sums: list[Value]) -> Sequence[Value]:
            def across(deep: Builder, w: Value, sums: list[Value]) -> Sequence[Value]:
                return self._tap(deep, row, columns, (h, w), channels, block.lanes, sums)

            if border:
                return for_each(inside, *window, 1, sums, across)
            for w in range(self.op.window[1]):
                sums = list(across(inside, index(inside, w), sums))
            return sums

        nothing = [zero] * (block.pixels * len(channels))
        sums = for_each(emit, row.first, row.last, 1, nothing, down)
        pixels = [emit(scalar.Add(row.pixel, column)) for column in columns]
        view = len(self.op.operands) - 1
        target = self.writer.pointers[view], known_stride(self.writer.stride(view, 0))
        tile = Tile((), pixels, channels, block.lanes)
        write_registers(self.op, self.body, emit, tile, list(sums), [target])

    def _tap(
        self,
        emit: Builder,
        row: _Row,
        columns: Sequence[Value],
        tap: tuple[Value, Value],
        channels: Sequence[Lane],
        lanes: int,
        sums: list[Value],
    ) -> list[Value]:
        """Add what one element of the window meets, for all pixels and channels of a block."""
        here = Point(emit, lanes, {})
        h, w = tap
        zero: Lane = Uniform(index(emit, 0))
        y = self._moved(emit, 0, row.row, h)
        result = list(sums)
        for v, channel in enumerate(channels):
            weight = self.body.load(here, 1, [Uniform(h), Uniform(w), zero, channel], self.dtype)
            factor = in_lanes(emit, weight, lanes)
            for j, column in enumerate(columns):
                x = self._moved(emit, 1, column, w)
                place: list[Lane] = [Uniform(row.picture), Uniform(y), Uniform(x), channel]
                element = in_lanes(emit, self.body.load(here, 0, place, self.dtype), lanes)
                number = j * len(channels) + v
                result[number] = self._added(emit, element, factor, result[number])
        return result

    def _moved(self, emit: Builder, axis: int, at: Value, tap: Value) -> Value:
        """Where in the picture a tap of the window for a pixel is along an axis."""
        step = emit(scalar.Multiply(tap, index(emit, self.op.dilations[axis])))
        return emit(scalar.Add(self._begin(emit, axis, at), step))

    def _added(self, emit: Builder, one: Value, other: Value, sums: Value) -> Value:
        if self.fma:
            return emit(scalar.Fma(one, other, sums))
        return emit(scalar.Add(emit(scalar.Multiply(one, other)), sums))
