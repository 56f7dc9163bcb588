"""Depthwise `kernel.conv`: registers hold neighbouring channels of some neighbouring pixels.

Each weight is loaded once for all pixels of a block, and each element once for every row of the window.
Channels are the innermost loop: all elements are then read in the order in which they are stored, and the
sums of one step do not wait for those of the step before. Windows at the left and right border are clipped
when the code is made, where sizes are known; elsewhere pixel by pixel when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, constant, fma, index, maximum, minimum
from dlc.dialects.kernel.products import Conv
from dlc.ir.dims import Size, ceil_divide, floor_divide, product
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
MOST_PIXELS = 6
"""Pixels of a block at the border whose sums and elements still fit into 32 registers."""
MANY_REGISTERS = 32


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


Taps = tuple[range, ...]
"""For each pixel of a block, the taps of a row of its window that lie inside the picture."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Columns `begin` to `end` of results in blocks of `pixels`.

    Without `taps` the window of each pixel is clipped when the code runs.
    """

    begin: Index
    end: Index
    pixels: int
    taps: Taps | None


@dataclass(frozen=True, slots=True)
class _Block:
    """A block: `pixels` neighbouring pixels from `column` on, and channels in registers of `lanes` each."""

    column: Expr
    pixels: int
    taps: Taps | None
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
        rows = batch * height
        per_tile = tile_rows(rows, work, self.cpu.costs)
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
        self._columns(_Row(picture, row, pixel, first, last))

    def _columns(self, row: _Row) -> None:
        """Compute the pixels of a row."""
        for segment in self._segments():
            lower, upper = segment.begin, segment.end
            with for_each(self.writer.emit, lower, upper, segment.pixels) as column:
                self._channels(row, column, segment)

    def _segments(self) -> list[_Segment]:
        """The blocks of a row."""
        known = self._known_taps()
        if known is not None:
            found = self._known_segments(known)
            if found is not None:
                return found
        inside = range(self.op.window[1])
        width = self.writer.size(self.op.extents[1], "width")
        left, right = self._inner_columns()
        blocks = whole_registers(left, right, PIXELS)
        return [
            _Segment(0, left, 1, None),
            _Segment(left, blocks, PIXELS, (inside,) * PIXELS),
            _Segment(blocks, right, 1, (inside,)),
            _Segment(right, width, 1, None),
        ]

    def _known_taps(self) -> list[range] | None:
        """The taps inside the picture for each column of results; None without known sizes."""
        op = self.op
        extent, width = kernel.array_type(op.lhs).shape[2], op.extents[1]
        (low, _), stride, step = op.padding[1], op.strides[1], op.dilations[1]
        if not (isinstance(extent, int) and isinstance(width, int) and isinstance(low, int)):
            return None
        taps: list[range] = []
        for column in range(width):
            at = [column * stride + w * step - low for w in range(op.window[1])]
            inside = [w for w, x in enumerate(at) if 0 <= x < extent]
            taps.append(range(inside[0], inside[-1] + 1) if inside else range(0))
        return taps

    def _known_segments(self, taps: Sequence[range]) -> list[_Segment] | None:
        """A block with all clipped windows at each side, and between them full blocks.

        None where more windows are clipped than a block has pixels.
        """
        width, whole = len(taps), range(self.op.window[1])
        most = MOST_PIXELS if self.cpu.vector_registers >= MANY_REGISTERS else PIXELS
        if width <= most:
            end = self.writer.size(width, "width")
            return [_Segment(0, end, width, tuple(taps))] if width else []
        inner = [column for column, inside in enumerate(taps) if inside == whole]
        if not inner:
            return None
        clipped = inner[0], width - 1 - inner[-1]
        if max(clipped) > most:
            return None
        choices = [
            ((width - left - right) % PIXELS, abs(left - right), left, right)
            for left in range(clipped[0], most + 1)
            for right in range(clipped[1], most + 1)
            if left + right <= width
        ]
        rest, _, left, right = min(choices)
        bounds = (0, left, width - right - rest, width - right, width)
        sizes = (left, PIXELS, rest, right)
        ends = [self.writer.size(end, "end", number) for number, end in enumerate(bounds)]
        return [
            _Segment(ends[k], ends[k + 1], pixels, tuple(taps[bounds[k] : bounds[k] + pixels]))
            for k, pixels in enumerate(sizes)
            if bounds[k] < bounds[k + 1]
        ]

    def _channels(self, row: _Row, column: Expr, segment: _Segment) -> None:
        """Compute a block of pixels for all channels: the last ones in smaller registers."""
        emit = self.writer.emit
        begin, channels = index(emit, 0), self.writer.size(self.op.columns, "channels")
        for registers, lanes in _steps(self.op.columns, self.body.lanes):
            step = registers * lanes
            end = whole_registers(begin, channels, step) if step > 1 else channels
            with for_each(emit, begin, end, step) as channel:
                pixels, taps = segment.pixels, segment.taps
                self._block(row, _Block(column, pixels, taps, channel, registers, lanes))
            begin = end

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

    def _block(self, row: _Row, block: _Block) -> None:
        emit, channels = self.writer.emit, block.channels()
        type = VectorType(self.dtype, block.lanes) if block.lanes > 1 else self.dtype
        zero = constant(emit, 0, type)
        columns = [block.column + j for j in range(block.pixels)]

        def down(h: Expr, sums: list[Expr]) -> list[Expr]:
            if block.taps is not None:
                taps = {w: index(emit, w) for inside in block.taps for w in inside}
                return self._taps(row, columns, h, taps, block, sums)
            first, last = self._taps_inside(1, block.column)
            return iterate(
                emit,
                first,
                last,
                sums,
                lambda w, sums: self._taps(row, columns, h, {0: w}, block, sums),
            )

        zeros = [zero] * (block.pixels * len(channels))
        sums = iterate(emit, row.first, row.last, zeros, down)
        pixels = [row.pixel + column for column in columns]
        view = len(self.op.operands) - 1
        target = self.writer.pointer(view), self.writer.stride(view, 0)
        tile = Tile((), pixels, channels, block.lanes)
        write_registers(self.op, self.body, tile, sums, [target])

    def _taps(
        self,
        row: _Row,
        columns: Sequence[Expr],
        h: Expr,
        across: Mapping[int, Expr],
        block: _Block,
        sums: list[Expr],
    ) -> list[Expr]:
        """Add the products of some taps of a row of the window, for all pixels and channels of a block."""
        point, channels = Point(block.lanes, {}), block.channels()
        zero = Uniform(index(h.emit, 0))
        y = self._input_position(0, row.row, h)
        totals = list(sums)
        for v, channel in enumerate(channels):
            elements: dict[int, Expr] = {}
            for w, tap in sorted(across.items()):
                weight = self.body.load(point, 1, [Uniform(h), Uniform(tap), zero, channel])
                factor = in_lanes(weight, block.lanes)
                for j, column in enumerate(columns):
                    if block.taps is not None and w not in block.taps[j]:
                        continue
                    # Windows of neighbouring pixels overlap: this element may have been loaded before.
                    offset = j * self.op.strides[1] + w * self.op.dilations[1]
                    if offset not in elements:
                        x = self._input_position(1, column, tap)
                        place: list[Lane] = [Uniform(row.picture), Uniform(y), Uniform(x), channel]
                        elements[offset] = in_lanes(self.body.load(point, 0, place), block.lanes)
                    number = j * len(channels) + v
                    totals[number] = self._multiply_add(elements[offset], factor, totals[number])
        return totals

    def _input_position(self, axis: int, at: Expr, tap: Expr) -> Expr:
        """The position of a tap of the window of a pixel in the picture along an axis."""
        step = tap * self.op.dilations[axis]
        return self._window_start(axis, at) + step

    def _multiply_add(self, one: Expr, other: Expr, sum: Expr) -> Expr:
        return fma(one, other, sum) if self.cpu.fma else one * other + sum


def _steps(channels: Size, lanes: int) -> list[tuple[int, int]]:
    """The registers and lanes of the loops over channels: wide ones first, then what is left over."""
    if not isinstance(channels, int):
        return [(REGISTERS, lanes), (1, lanes), (1, 1)] if lanes > 1 else [(REGISTERS, 1), (1, 1)]
    found = [(REGISTERS, lanes)] if channels >= REGISTERS * lanes else []
    rest = channels % (REGISTERS * lanes)
    while rest:
        if rest >= lanes:
            found.append((1, lanes))
            rest %= lanes
        lanes //= 2
    return found
