"""Depthwise `kernel.conv`: registers hold neighbouring channels of some neighbouring pixels.

Each weight is loaded once for all pixels of a block. For columns whose windows lie inside the picture no
bounds are tested; at the borders the window is clipped to the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, constant, fma, index, maximum, minimum
from dlc.dialects.kernel.products import Conv
from dlc.ir.dims import ceil_divide, floor_divide, product
from dlc.ir.dims import maximum as larger
from dlc.ir.dims import minimum as smaller
from dlc.ir.passes import Context
from dlc.ir.types import DType, VectorType
from dlc.lowering.cpu.register_epilogue import Tile, write_registers
from dlc.lowering.kernel_code.body import Point, lanes_of
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.lanes import Lane, Linear, Uniform, in_lanes
from dlc.lowering.kernel_code.words import for_each, iterate, unravel, whole_registers
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import tile_rows, tiles

PIXELS = 4
"""Pixels of a block: with two registers of channels each, their sums hide the latency of an addition."""
REGISTERS = 2


def lower_depthwise(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a depthwise convolution in destination form."""
    assert isinstance(op, Conv)
    return _Depthwise(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of results: its picture, its row in the picture, and the number of its first pixel.

    The rows of the window from `first` up to, not including, `last` lie inside the picture.
    """

    picture: Expr
    row: Expr
    pixel: Expr
    first: Index
    last: Index


@dataclass(frozen=True, slots=True)
class _Block:
    """A block: `pixels` neighbouring pixels from `column` on, and channels in registers of `lanes` each."""

    column: Expr
    pixels: int
    channel: Expr
    registers: int
    lanes: int

    def channels(self) -> list[Lane]:
        """The channels of each register."""
        if self.lanes == 1:
            return [Uniform(self.channel)]
        return [Linear(self.channel + v * self.lanes) for v in range(self.registers)]


class _Depthwise:
    def __init__(self, op: Conv, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        self.cpu = cpu_of(context.options)
        lanes = lanes_of(op.epilogue, self.cpu.vector_bytes)
        self.body = epilogue_body(op, self.writer, lanes)
        self.dtype: DType = op.accumulator

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        batch, *_ = kernel.array_type(op.lhs).shape
        height, width = op.extents
        work = product(op.window) * width * op.columns * self.cpu.costs.depthwise_product
        per_tile = tile_rows(work, self.cpu.costs)
        rows = batch * height
        count = writer.size(per_tile, "rows of a tile")
        lower = writer.first * count
        upper = minimum(writer.last * count, writer.size(rows, "all rows"))
        with for_each(writer.emit, lower, upper) as number:
            self._row(number)
        return writer.finish(*tiles(rows, per_tile, work))

    def _row(self, number: Expr) -> None:
        height, width = self.op.extents
        picture, row = unravel(number, [number, self.writer.size(height, "height")])
        first, last = self._taps_inside(0, row)
        pixel = number * self.writer.size(width, "width")
        place = _Row(picture, row, pixel, first, last)
        channels = self.writer.size(self.op.columns, "channels")
        zero, lanes = index(number.emit, 0), self.body.lanes
        several = whole_registers(zero, channels, REGISTERS * lanes)
        whole = whole_registers(zero, channels, lanes)
        self._channels(place, zero, several, REGISTERS, lanes)
        if lanes > 1:
            self._channels(place, several, whole, 1, lanes)
            self._channels(place, whole, channels, 1, 1)
        else:
            self._channels(place, several, channels, 1, 1)

    def _channels(self, row: _Row, lower: Expr, upper: Expr, registers: int, lanes: int) -> None:
        """Compute all pixels of a row for channels `lower` to `upper`, `registers` registers at a time."""
        emit = self.writer.emit
        width = self.writer.size(self.op.extents[1], "width")
        left, right = self._inner_columns()
        blocks = whole_registers(left, right, PIXELS)
        ranges = (
            # Begin, end, pixels of a block, and whether the window is clipped.
            (0, left, 1, True),
            (left, blocks, PIXELS, False),
            (blocks, right, 1, False),
            (right, width, 1, True),
        )
        with for_each(emit, lower, upper, registers * lanes) as channel:
            for begin, end, pixels, border in ranges:
                with for_each(emit, begin, end, pixels) as column:
                    self._block(row, _Block(column, pixels, channel, registers, lanes), border)

    def _taps_inside(self, axis: int, at: Expr) -> tuple[Index, Index]:
        """The range of the taps of the window along an axis that lie inside the picture."""
        op, taps = self.op, self.op.window[axis]
        if op.padding[axis] == (0, 0):
            return 0, taps
        extent = self.writer.size(kernel.array_type(op.lhs).shape[1 + axis], "extent", axis)
        start = self._window_start(axis, at)
        before = 0 - start
        after = extent - start
        first, last = self._taps_before(before, axis), self._taps_before(after, axis)
        return minimum(first, taps), minimum(last, taps)

    def _taps_before(self, distance: Expr, axis: int) -> Expr:
        """The number of taps within a distance of the start of the window; 0 for a negative distance."""
        step = self.op.dilations[axis]
        return maximum(distance + (step - 1), 0) // step

    def _window_start(self, axis: int, at: Expr) -> Expr:
        """The start of the window of a pixel in the picture along an axis."""
        start = at * self.op.strides[axis]
        low, _ = self.op.padding[axis]
        return start if low == 0 else start - self.writer.size(low, "low", axis)

    def _inner_columns(self) -> tuple[Expr, Expr]:
        """The range of columns of results whose windows lie inside the picture horizontally."""
        op = self.op
        (low, _), stride = op.padding[1], op.strides[1]
        width, extent = op.extents[1], kernel.array_type(op.lhs).shape[2]
        reach = (op.window[1] - 1) * op.dilations[1] + 1
        left = smaller(ceil_divide(low, stride), width)
        right = larger(smaller(floor_divide(extent + low - reach, stride) + 1, width), left)
        return self.writer.size(left, "left"), self.writer.size(right, "right")

    # One block.

    def _block(self, row: _Row, block: _Block, border: bool) -> None:
        emit, channels = self.writer.emit, block.channels()
        type = VectorType(self.dtype, block.lanes) if block.lanes > 1 else self.dtype
        zero = constant(emit, 0, type)
        columns = [block.column + j for j in range(block.pixels)]
        first, last = self._taps_inside(1, block.column) if border else (0, self.op.window[1])

        def down(h: Expr, sums: list[Expr]) -> list[Expr]:
            def across(w: Expr, sums: list[Expr]) -> list[Expr]:
                return self._tap(row, columns, (h, w), channels, block.lanes, sums)

            if border:
                return iterate(emit, first, last, sums, across)
            for w in range(self.op.window[1]):
                sums = across(index(emit, w), sums)
            return sums

        zeros = [zero] * (block.pixels * len(channels))
        sums = iterate(emit, row.first, row.last, zeros, down)
        pixels = [row.pixel + column for column in columns]
        view = len(self.op.operands) - 1
        target = self.writer.pointer(view), self.writer.stride(view, 0)
        tile = Tile((), pixels, channels, block.lanes)
        write_registers(self.op, self.body, tile, sums, [target])

    def _tap(
        self,
        row: _Row,
        columns: Sequence[Expr],
        tap: tuple[Expr, Expr],
        channels: Sequence[Lane],
        lanes: int,
        sums: list[Expr],
    ) -> list[Expr]:
        """Add the products of a tap of the window, for all pixels and channels of a block."""
        point = Point(lanes, {})
        h, w = tap
        zero = Uniform(index(h.emit, 0))
        y = self._input_position(0, row.row, h)
        totals = list(sums)
        for v, channel in enumerate(channels):
            weight = self.body.load(point, 1, [Uniform(h), Uniform(w), zero, channel])
            factor = in_lanes(weight, lanes)
            for j, column in enumerate(columns):
                x = self._input_position(1, column, w)
                place: list[Lane] = [Uniform(row.picture), Uniform(y), Uniform(x), channel]
                element = in_lanes(self.body.load(point, 0, place), lanes)
                number = j * len(channels) + v
                totals[number] = self._multiply_add(element, factor, totals[number])
        return totals

    def _input_position(self, axis: int, at: Expr, tap: Expr) -> Expr:
        """The position of a tap of the window of a pixel in the picture along an axis."""
        step = tap * self.op.dilations[axis]
        return self._window_start(axis, at) + step

    def _multiply_add(self, one: Expr, other: Expr, sum: Expr) -> Expr:
        return fma(one, other, sum) if self.cpu.fma else one * other + sum
