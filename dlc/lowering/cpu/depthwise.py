"""Depthwise `kernel.conv`: registers hold neighbouring channels of a block of pixels in two rows.

An element of the picture is loaded once for all results of a block to which it contributes, so a row of
the picture serves both rows of results: pictures are larger than the first-level cache, and each row is
read from the second. Channels are the innermost loop: elements are read in the order in which they are
stored, and the sums of one step do not wait for those of the step before. Rows above and below the picture
are left out when the code runs. Windows at the left and right border are clipped when the code is made,
where sizes are known, elsewhere pixel by pixel when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, constant, fma, index, maximum, minimum
from dlc.dialects.kernel.products import Conv
from dlc.ir.dims import Size, ceil_divide, floor_divide, product
from dlc.ir.dims import maximum as larger
from dlc.ir.dims import minimum as smaller
from dlc.ir.passes import Context
from dlc.ir.types import DType, VectorType
from dlc.lowering.cpu.register_epilogue import Tile, write_registers
from dlc.lowering.kernel_code.body import lanes_of
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.lanes import Lane, Linear, Uniform
from dlc.lowering.kernel_code.words import (
    either,
    for_each,
    iterate,
    parts_of,
    unravel,
    whole_registers,
)
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import tile_rows, tiles

ROWS, PIXELS = 2, 4
"""Rows of results and pixels in each row of a block: its sums hide the latency of an addition."""
MOST_PIXELS = 6
"""Pixels of a block at the border whose sums and elements still fit into 32 registers."""
MANY_REGISTERS = 32
MOST_UNROLLED = 25
"""Windows of at most this many elements are unrolled; of larger ones, rows are a loop."""


def lower_depthwise(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a depthwise convolution in destination form."""
    assert isinstance(op, Conv)
    return _Depthwise(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Neighbouring rows of results: their picture, and the number of the first pixel of each.

    The windows of the first one begin at row `start` of the picture.
    """

    picture: Expr
    start: Expr
    pixels: Sequence[Expr]


Taps: TypeAlias = tuple[range, ...]
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
    """A block: in each row `pixels` neighbouring pixels from `column` on, and `lanes` channels."""

    column: Expr
    pixels: int
    taps: Taps | None
    channel: Expr
    lanes: int

    def channels(self) -> Lane:
        """The channels."""
        return Uniform(self.channel) if self.lanes == 1 else Linear(self.channel)


Result: TypeAlias = tuple[int, Index]
"""The number of a result in a block along an axis, and a tap of its window."""
Meeting: TypeAlias = tuple[Index, Sequence[Result]]
"""An element of the picture along an axis, from the start of the first window, and whose taps it is."""


class _Depthwise:
    def __init__(self, op: Conv, context: Context) -> None:
        self.op = op
        self.writer = Writer(op, literal=True)
        self.cpu = cpu_of(context.options)
        assert all(view.strides[-1] == 1 for view in self.writer.views[:2])
        lanes = lanes_of(op.epilogue, self.cpu.vector_bytes)
        self.body = epilogue_body(op, self.writer, lanes)
        self.dtype: DType = op.accumulator
        self.unrolled = prod(op.window) <= MOST_UNROLLED
        self.rows = ROWS if self.unrolled and op.extents[0] != 1 else 1

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        batch, *_ = kernel.array_type(op.lhs).shape
        height, width = op.extents
        groups = batch * ceil_divide(height, self.rows)
        work = product(op.window) * width * op.columns * self.cpu.costs.depthwise_product
        per_tile = tile_rows(groups, work * self.rows, self.cpu.costs)
        count = writer.size(per_tile, "groups of rows in a tile")
        lower = writer.first * count
        upper = minimum(writer.last * count, writer.size(groups, "all groups of rows"))
        with for_each(writer.emit, lower, upper) as number:
            self._group(number)
        return writer.finish(*tiles(groups, per_tile, work * self.rows))

    def _group(self, number: Expr) -> None:
        """Compute a group of neighbouring rows: fewer at the end of a picture."""
        height, rows = self.op.extents[0], self.rows
        in_picture = self.writer.size(ceil_divide(height, rows), "groups of rows in a picture")
        picture, group = unravel(number, [number, in_picture])
        row = group * rows

        def one_by_one() -> None:
            with for_each(row.emit, row, self.writer.size(height, "height")) as single:
                self._columns(self._rows(picture, single, 1))

        if rows == 1 or (isinstance(height, int) and height % rows == 0):
            self._columns(self._rows(picture, row, rows))
            return
        whole = row + rows <= self.writer.size(height, "height")
        either(whole, lambda: self._columns(self._rows(picture, row, rows)), one_by_one)

    def _rows(self, picture: Expr, row: Expr, count: int) -> _Rows:
        height, width = self.op.extents
        first = picture * self.writer.size(height, "height") + row
        wide = self.writer.size(width, "width")
        pixels = [(first + number) * wide for number in range(count)]
        return _Rows(picture, self._window_start(0, row), pixels)

    def _columns(self, rows: _Rows) -> None:
        """Compute the pixels of some rows."""
        for segment in self._segments():
            lower, upper = segment.begin, segment.end
            with for_each(self.writer.emit, lower, upper, segment.pixels) as column:
                self._channels(rows, column, segment)

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

    def _channels(self, rows: _Rows, column: Expr, segment: _Segment) -> None:
        """Compute a block of pixels for all channels: the last ones in smaller registers."""
        emit = self.writer.emit
        begin, channels = index(emit, 0), self.writer.size(self.op.columns, "channels")
        for lanes in _steps(self.op.columns, self.body.lanes):
            end = whole_registers(begin, channels, lanes) if lanes > 1 else channels
            with for_each(emit, begin, end, lanes) as channel:
                pixels, taps = segment.pixels, segment.taps
                self._block(rows, _Block(column, pixels, taps, channel, lanes))
            begin = end

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

    def _block(self, rows: _Rows, block: _Block) -> None:
        emit = self.writer.emit
        type = VectorType(self.dtype, block.lanes) if block.lanes > 1 else self.dtype
        sums = [constant(emit, 0, type)] * (len(rows.pixels) * block.pixels)
        sums = (self._unrolled if self.unrolled else self._rolled)(rows, block, sums)
        pixels = [pixel + (block.column + j) for pixel in rows.pixels for j in range(block.pixels)]
        view = len(self.op.operands) - 1
        target = self.writer.pointer(view), self.writer.stride(view, 0)
        tile = Tile((), pixels, [block.channels()], block.lanes)
        write_registers(self.op, self.body, tile, sums, [target])

    def _unrolled(self, rows: _Rows, block: _Block, sums: list[Expr]) -> list[Expr]:
        """Add all products, one row of the picture after the other, as far as it is inside.

        Each row is tested, even where the answer is known: then LLVM keeps rows in order. Without tests it
        loads far ahead and writes sums to memory in between: 46 instead of 58 GFLOP/s on Zen 3, for 3 x 3
        windows on 56 x 56 x 128.
        """
        window, stride, step = self.op.window[0], self.op.strides[0], self.op.dilations[0]
        everywhere = (range(window),) * len(rows.pixels)
        for offset, results in _meetings(everywhere, stride, step):
            y = rows.start + offset
            inside = (y >= 0) & (y < self._extent(0))
            add = partial(self._row, rows, block, y, results, sums)
            sums = either(inside, add, partial(tuple[Expr, ...], sums))
        return sums

    def _rolled(self, rows: _Rows, block: _Block, sums: list[Expr]) -> list[Expr]:
        """Add all products, in a loop over the rows of the window that are inside the picture."""

        def down(h: Expr, sums: list[Expr]) -> list[Expr]:
            y = rows.start + h * self.op.dilations[0]
            return self._row(rows, block, y, [(0, h)], sums)

        return iterate(rows.start.emit, *self._taps_inside(0, rows.start), sums, down)

    def _row(
        self,
        rows: _Rows,
        block: _Block,
        y: Expr,
        results: Sequence[Result],
        sums: list[Expr],
    ) -> list[Expr]:
        """Add the products of row `y` of the picture, for some rows of results and of their windows."""
        stride, step = self.op.strides[1], self.op.dilations[1]
        if block.taps is not None:
            return self._add(rows, block, y, results, _meetings(block.taps, stride, step), sums)

        def across(w: Expr, sums: list[Expr]) -> list[Expr]:
            return self._add(rows, block, y, results, [(w * step, [(0, w)])], sums)

        start = self._window_start(1, block.column)
        return iterate(y.emit, *self._taps_inside(1, start), sums, across)

    def _add(
        self,
        rows: _Rows,
        block: _Block,
        y: Expr,
        down: Sequence[Result],
        across: Sequence[Meeting],
        sums: list[Expr],
    ) -> list[Expr]:
        """Add the products of some elements of row `y` of the picture: each is loaded once."""
        start, totals = self._window_start(1, block.column), list(sums)
        row = self.writer.part(0, [rows.picture, y, start]) + block.channel
        window = self.writer.pointer(1) + block.channel
        along = self.writer.stride(0, 2)
        below, beside = self.writer.stride(1, 0), self.writer.stride(1, 1)
        weights = {
            (h, w): window.load(h * below + w * beside, block.lanes)
            for _, h in down
            for _, found in across
            for _, w in found
        }
        for offset, found in across:
            element = row.load(offset * along, block.lanes)
            for r, h in down:
                for j, w in found:
                    number = r * block.pixels + j
                    totals[number] = self._multiply_add(element, weights[h, w], totals[number])
        return totals

    def _taps_inside(self, axis: int, start: Expr) -> tuple[Index, Index]:
        """The range of the taps inside the picture, along an axis, of the window that begins at `start`."""
        op, taps = self.op, self.op.window[axis]
        if op.padding[axis] == (0, 0):
            return 0, taps
        first = self._taps_before(0 - start, axis)
        last = self._taps_before(self._extent(axis) - start, axis)
        return minimum(first, taps), minimum(last, taps)

    def _taps_before(self, distance: Expr, axis: int) -> Expr:
        """The number of taps within a distance of the start of the window; 0 for a negative distance."""
        step = self.op.dilations[axis]
        return maximum(distance + (step - 1), 0) // step

    def _extent(self, axis: int) -> Expr:
        """Of the picture."""
        return self.writer.size(kernel.array_type(self.op.lhs).shape[1 + axis], "extent", axis)

    def _window_start(self, axis: int, at: Expr) -> Expr:
        """The start of the window of a pixel in the picture along an axis."""
        start = at * self.op.strides[axis]
        low, _ = self.op.padding[axis]
        return start if low == 0 else start - self.writer.size(low, "low", axis)

    def _multiply_add(self, one: Expr, other: Expr, sum: Expr) -> Expr:
        return fma(one, other, sum) if self.cpu.fma else one * other + sum


def _meetings(taps: Taps, stride: int, step: int) -> list[Meeting]:
    """Where in the picture the taps of some neighbouring results are, from the first window's start on."""
    found: dict[int, list[Result]] = {}
    for number, inside in enumerate(taps):
        for tap in inside:
            found.setdefault(number * stride + tap * step, []).append((number, tap))
    return sorted(found.items())


def _steps(channels: Size, lanes: int) -> list[int]:
    """The lanes of the loops over channels: wide ones first, then what is left over."""
    if not isinstance(channels, int):
        return [lanes, 1] if lanes > 1 else [1]
    return list(dict.fromkeys(each for _, each in parts_of(channels, lanes)))
