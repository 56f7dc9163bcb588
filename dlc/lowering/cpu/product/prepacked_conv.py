"""`kernel.conv` whose filter is packed: an implicit GEMM, whose rows are windows, read in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Condition, Expr, Index, Pointer, all_of, select, select_pointer
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Conv
from dlc.ir.passes import Context
from dlc.ir.types import U64
from dlc.lowering.cpu.micro_kernel import (
    Ahead,
    Sums,
    multiply,
    zeros,
)
from dlc.lowering.cpu.product.prepacked_tiles import PackedProduct, RowPosition, RowStart
from dlc.lowering.kernel_code.words import iterate, unravel

_Range = tuple[Index, Index]


@dataclass(frozen=True, slots=True)
class _Pixel:
    """The first element of a pixel's window: its row and column in the picture, which may be out of
    bounds, and its offset."""

    row: Expr
    column: Expr
    offset: Expr


class PackedConv(PackedProduct):
    """The rows of an implicit GEMM, pixels of the result: a position is (image, row, column)."""

    def __init__(self, op: Conv, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.channels = kernel.array_type(op.lhs).shape[-1]
        self.inputs = self.steps(self.channels // op.groups)
        self.depth = op.window[0] * op.window[1] * self.inputs
        self.footprint = op.strides[0] * op.strides[1] * self.inputs

    @property
    def _row_is_contiguous(self) -> bool:
        """Whether the elements under one row of the window are contiguous in memory."""
        beside = self.writer.views[0].strides[2] == self.channels // self.op.groups
        # A row above or below the picture is read from the zeros, of which there is one for each channel.
        blank = self.op.padding[0] == (0, 0) or self.op.window[1] <= self.op.groups
        return blank and beside and self.op.padding[1] == (0, 0) and self.op.dilations[1] == 1

    def row_position(self, batch: list[Expr], row: Expr) -> RowPosition:
        height, width = self.op.extents
        counts = [row, self.writer.size(height, "rows"), self.writer.size(width, "columns")]
        return unravel(row, counts)

    def sums(self, start: RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
        emit = self.writer.emit
        positions, after = self._positions(start)
        pixels = [self._pixel(start.group, *batch_index) for batch_index in positions]
        down, along = self._taps_inside(positions, pixels)

        def tap_row(h: Expr, sums: Sums) -> Sums:
            return self._tap_row(pixels, h, along, panels, sums, start.ahead)

        return iterate(emit, *down, zeros(emit, self.shape), tap_row), after

    def _taps_inside(
        self, positions: Sequence[RowPosition], pixels: Sequence[_Pixel]
    ) -> tuple[_Range, _Range]:
        """The rows of the window, and the taps of each, of which some pixel has an element in the picture.

        All of them where pixels belong to several pictures or, for the taps of a row, to several rows.
        """
        first, last = positions[0], positions[-1]
        together: Condition = True
        if kernel.array_type(self.op.lhs).shape[0] != 1:
            together = first[0].equals(last[0])
        down = self._range_inside(0, together, pixels[0].row, pixels[-1].row)
        if not self._has_far_taps:
            return down, (0, self.op.window[1])
        beside = all_of([together, first[1].equals(last[1])])
        return down, self._range_inside(1, beside, pixels[0].column, pixels[-1].column)

    @property
    def _has_far_taps(self) -> bool:
        """Whether all pixels of a micro-tile may have a tap to the left or the right of the picture."""
        low, high = self.op.padding[1]
        reach = (self.shape.rows - 1) * self.op.strides[1]
        return any(not isinstance(size, int) or size > reach for size in (low, high))

    def _range_inside(self, axis: int, ordered: Condition, low: Expr, high: Expr) -> _Range:
        """The taps along an axis inside the picture for a window that starts between `low` and `high`."""
        taps, step = self.op.window[axis], self.op.dilations[axis]
        if self.op.padding[axis] == (0, 0):
            return 0, taps
        extent = self.writer.size(kernel.array_type(self.op.lhs).shape[1 + axis], "extent", axis)
        begin, end = (
            smaller(larger(distance + (step - 1), 0) // step, taps)
            for distance in (0 - high, extent - low)
        )
        return select(ordered, begin, 0), select(ordered, end, taps)

    def _tap_row(
        self,
        pixels: Sequence[_Pixel],
        h: Expr,
        along: _Range,
        panels: Sequence[Pointer],
        sums: Sums,
        ahead: Ahead | None,
    ) -> Sums:
        """Add the products of one row of the window."""
        taps = self.op.window[1]
        if self._row_is_contiguous:
            depth = self.writer.size(self.inputs * taps, "row")
            rows = self._taps(pixels, h, None)
            weights = self._panels_from(panels, h, depth)
            part = ahead and ahead.after(h * depth)
            return multiply(self.shape, rows, weights, depth, sums, ahead=part)
        channels = self.writer.size(self.inputs, "channels")

        def across(w: Expr, sums: Sums) -> Sums:
            rows = self._taps(pixels, h, w)
            tap = h * taps + w
            weights = self._panels_from(panels, tap, channels)
            part = ahead and ahead.after(tap * channels)
            return multiply(self.shape, rows, weights, channels, sums, ahead=part)

        return iterate(self.writer.emit, *along, sums, across)

    def _panels_from(self, panels: Sequence[Pointer], tap: Expr, depth: Expr) -> list[Pointer]:
        """The panels from a tap on, each tap being `depth` rows of them."""
        start = tap * depth * self.shape.panel
        return [panel + start for panel in panels]

    def _positions(self, start: RowStart) -> tuple[list[RowPosition], RowPosition]:
        """The positions of a micro-tile's rows, the last one again beyond the end; and the next."""
        positions = [start.position]
        for number in range(1, self.shape.rows + 1):
            following = self._next(positions[-1])
            if number < self.shape.rows:
                inside = start.row + number < start.bottom
                pairs = zip(following, positions[-1], strict=True)
                following = [select(inside, new, old) for new, old in pairs]
            positions.append(following)
        return positions[:-1], positions[-1]

    def _next(self, position: RowPosition) -> RowPosition:
        picture, i, j = position
        rows, columns = self.op.extents
        height, width = self.writer.size(rows, "rows"), self.writer.size(columns, "columns")
        j = j + 1
        wraps = j.equals(width)
        j = select(wraps, 0, j)
        i = select(wraps, i + 1, i)
        ends = i.equals(height)
        i = select(ends, 0, i)
        return [select(ends, picture + 1, picture), i, j]

    def _pixel(self, group: Expr | None, picture: Expr, i: Expr, j: Expr) -> _Pixel:
        """The window's first element for the pixel (i, j) of the result, in a group of channels."""
        writer = self.writer
        corner: list[Expr] = []
        offset = picture * writer.stride(0, 0)
        if group is not None:
            offset = offset + group * writer.size(self.channels // self.op.groups, "inputs")
        for axis, index in enumerate((i, j)):
            position = index * self.op.strides[axis]
            low, high = self.op.padding[axis]
            if (low, high) != (0, 0):
                position = position - writer.size(low, "low", axis)
            corner.append(position)
            offset = offset + position * writer.stride(0, 1 + axis)
        return _Pixel(corner[0], corner[1], offset)

    def _taps(self, pixels: Sequence[_Pixel], h: Expr, w: Expr | None) -> list[Pointer]:
        """The channels under a tap of each window, or zeros outside the picture.

        Without `w` it is the first tap of the row.
        """
        writer = self.writer
        picture, blank = writer.pointer(0), writer.pointer(2).of(self.shape.factors)
        down = h * self.op.dilations[0]
        move = down * writer.stride(0, 1)
        along: Expr | None = None
        if w is not None:
            along = w * self.op.dilations[1]
            move = move + along * writer.stride(0, 2)
        pointers: list[Pointer] = []
        for pixel in pixels:
            pointer = (picture + (pixel.offset + move)).of(self.shape.factors)
            inside = self._inside((pixel.row, pixel.column), (down, along))
            pointers.append(select_pointer(inside, pointer, blank))
        return pointers

    def _inside(self, corner: tuple[Expr, Expr], step: tuple[Expr, Expr | None]) -> Condition:
        """Whether an element `step` away from a window's first one is in the picture."""
        _, *extents, _ = kernel.array_type(self.op.lhs).shape
        inside: Condition = True
        for axis, (at, by) in enumerate(zip(corner, step, strict=True)):
            if by is None or self.op.padding[axis] == (0, 0):
                continue
            # As unsigned numbers, negative positions are larger than every extent.
            position = (at + by).cast(U64)
            within = position < self.writer.size(extents[axis], "extent", axis).cast(U64)
            inside = all_of([inside, within])
        return inside
