"""`kernel.gemm` and `kernel.conv` whose right operand is packed into panels before (BLIS), tile by tile.

A tile of the result is some rows (MC) times some panels (NC). Within a tile each panel stays in the cache
while the micro-kernel goes through all rows. Rows beyond the last are computed from the last one and not
stored, so one loop serves every height; panels likewise. A matrix product whose rows the call counts has
code for a single row, too, as a decoder's for each token: it takes as long as reading the panels. A
convolution is an implicit GEMM: its rows are the windows of pixels, read from the picture in place.

While rows meet a panel, they prefetch the next one. A panel that is too long for that is met in blocks of
k (KC), between which the sums wait in memory; they are added in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Self

from dlc.dialects import kernel
from dlc.dialects.expr import Condition, Expr, Index, Pointer, all_of, select, select_pointer
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import U64, DType, ViewType
from dlc.lowering.cpu.micro_kernel import (
    SUM_LENGTH,
    UNROLL,
    Ahead,
    Shape,
    Sums,
    load,
    multiply,
    multiply_long,
    store,
    streamed,
    zeros,
)
from dlc.lowering.cpu.product.tiles import Corner, ProductTiles, TileBounds
from dlc.lowering.cpu.register_epilogue import Target
from dlc.lowering.kernel_code.words import either, for_each, iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.cpu import CpuTarget
from dlc.target.products import ProductBlocking
from dlc.target.work import nanoseconds


def tile_rows(m: Size, bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """MC, the rows of a tile, each of which reads `bytes`: a multiple of the micro-kernel's `rows` (MR).

    They stay in the cache, and all tiles have about as many.
    """
    tiles = ceil_divide(maximum(m, 1), fitting_rows(bytes, rows, blocking))
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def fitting_rows(bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """The rows of a tile, each of which reads `bytes`, that the cache keeps."""
    return maximum(floor_divide(blocking.tile_left_bytes, maximum(bytes, 1)), rows)


def depth_block(depth: Size, step_bytes: int, steps: int, cpu: CpuTarget) -> int | None:
    """KC, the steps of k in each block of a panel: a multiple of `steps`. None if it is met whole.

    A step takes `step_bytes` of the panel.
    """
    most = cpu.l2_bytes // (cpu.products.cached_panels * step_bytes)
    if not isinstance(depth, int) or not most < depth <= SUM_LENGTH:
        return None
    fewest = -(-depth // most)
    even = (n for n in range(fewest, 2 * fewest) if depth % (n * steps) == 0)
    return next((depth // n for n in even), None)


def tile_panels(
    across: Size, work: Size, down: Size, shape: Shape, blocking: ProductBlocking
) -> Size:
    """NC as panels of a tile, of which each column has `work` products, where tiles are `down` in a column.

    They are a multiple of the micro-kernel's panels. A tile has the usual work, or less where a product of
    known size would otherwise be too few tiles for threads to share evenly.
    """
    each = maximum(work * shape.columns, 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    most: Size = blocking.tile_products
    if isinstance(share := floor_divide(several * each * down, blocking.product_tiles), int):
        most = min(max(share, blocking.least_tile_products), most)
    fitting = maximum(floor_divide(most, each), 1)
    tiles = ceil_divide(several, minimum(fitting, several))
    return ceil_divide(several, tiles) * shape.panels


def shared_rows(m: Size, work: Size, rows: int, blocking: ProductBlocking) -> Size:
    """MC of a tile that has all panels, where a row has `work` products: threads share the rows.

    The rows that a thread computes are often those that it has just written or reads next, in an
    element-wise or depthwise neighbour, so they stay in its second-level cache.
    """
    share = floor_divide(work * m, blocking.product_tiles)
    most = maximum(share, blocking.least_tile_products)
    return maximum(floor_divide(most, maximum(work, 1) * rows), 1) * rows


def lower_packed_product(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product whose right operand is packed."""
    match op:
        case Gemm():
            writer: _PackedProduct = _PackedGemm(op, context)
        case Conv() if _PackedPointwise.applies(op):
            writer = _PackedPointwise(op, context)
        case Conv():
            writer = _PackedConv(op, context)
        case _:
            raise AssertionError(op.name)
    return writer.lower()


RowPosition = list[Expr]
"""The position of a row of the left operand, as the subclass represents it."""
_Range = tuple[Index, Index]


class _PackedProduct(ProductTiles):
    """A product with packed panels. Subclasses read the rows of the left operand."""

    depth: Size
    """Products in one sum."""

    footprint: Size
    """Elements of the left operand that a row reads and the rows beside it do not."""

    block: int | None = None
    """Steps of k in a block (KC), None where panels are met whole."""
    most_height: Size = 1
    """The most rows of a tile (MC), where it is known."""

    @property
    def panel_dtype(self) -> DType:
        """What panels hold: pairs, or numbers as they are stored."""
        return self.shape.factors if self.pairs else kernel.array_type(self.product.rhs).dtype

    def row_position(self, batch: list[Expr], row: Expr) -> RowPosition:
        """The position of a row."""
        raise NotImplementedError

    def sums(self, start: _RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
        """The sums of a micro-tile, and the position after its rows."""
        raise NotImplementedError

    def lower(self) -> Lowered:
        op, writer = self.product, self.writer
        *batch, m, _ = op.domain
        height, width = self._tile_extents(m)
        single: _PackedProduct | None = None
        if isinstance(op, Gemm) and not isinstance(m, int):
            single = self._of_a_single_row()
            width += self.is_single_row * (single._streamed_panels() - width)
        down, along = ceil_divide(m, height), ceil_divide(self.across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]
        with for_each(writer.emit, writer.first, writer.last) as number:
            *batch_index, j, i = unravel(number, counts)
            tall, wide = writer.size(height, "height"), writer.size(width, "width")
            top, left = i * tall, j * wide
            rows = writer.size(m, "m")
            right = smaller(left + wide, writer.size(self.across, "panels"))
            tile = TileBounds(batch_index, top, smaller(top + tall, rows), left, right)
            if single is None:
                self._tile(tile)
            else:
                either(rows.equals(1), partial(single._tile, tile), partial(self._tile, tile))
        work_rows = maximum(height, self.cpu.products.streamed_rows)
        depth = maximum(self.depth, 8)
        work = work_rows * width * self.shape.panel * depth * self.cpu.costs.product
        return writer.finish(product(batch) * down * along, nanoseconds(work))

    def _tile_extents(self, m: Size) -> tuple[Size, Size]:
        """MC in rows and NC in panels; chooses the micro-tile of a product of few rows."""
        blocking, rows = self.cpu.products, self.shape.rows
        row_bytes = self.footprint * self.product.accumulator.bytes
        height = tile_rows(m, row_bytes, rows, blocking)
        self.most_height = height
        if not isinstance(height, int):
            self.most_height = ceil_divide(fitting_rows(row_bytes, rows, blocking), rows) * rows
        if isinstance(m, int) and m <= blocking.streamed_rows:
            self._stream()
            return height, self._streamed_panels()
        all_bytes = self.across * self._panel_bytes
        shares = isinstance(all_bytes, int) and all_bytes <= blocking.shared_panel_bytes
        if shares and isinstance(m, int):
            work = self.across * self.shape.panel * self.depth
            self.most_height = height = minimum(height, shared_rows(m, work, rows, blocking))
        down = ceil_divide(m, height)
        return height, tile_panels(self.across, height * self.depth, down, self.shape, blocking)

    def _of_a_single_row(self) -> Self:
        """The same product in micro-tiles for a single row, written by the same writer."""
        single = copy(self)
        single.shape, single.most_height, single.block = self.shape_of(1), 1, None
        single._stream()
        return single

    def _stream(self) -> None:
        """Take the micro-tile of a product of few rows."""
        self.shape = streamed(self.shape, self._panel_bytes, self.cpu.products)

    @property
    def _panel_bytes(self) -> Size:
        return self.depth * self.shape.panel * self.panel_dtype.bytes

    def _streamed_panels(self) -> Size:
        """NC as panels of a tile of few rows, a multiple of the micro-kernel's panels."""
        panels = self.shape.panels
        several = ceil_divide(maximum(self.across, 1), panels)
        each = maximum(panels * self._panel_bytes, 1)
        fitting = maximum(floor_divide(self.cpu.products.streamed_panel_bytes, each), 1)
        return minimum(fitting, several) * panels

    def _tile(self, tile: TileBounds) -> None:
        op, writer, shape = self.product, self.writer, self.shape
        emit, batch = writer.emit, tile.batch
        across = writer.size(self.across, "panels")
        buffer = writer.buffer(shape.rows * shape.columns, op.accumulator)
        shared = isinstance(op, Conv) or op.rhs_shared
        rhs = writer.part(1, [] if shared else batch)
        targets = self.targets(batch)
        position = self.row_position(batch, tile.top)
        with for_each(emit, tile.left, tile.right, shape.panels) as p:
            panels = self._panels(rhs, p, across)
            group, columns = self.columns_of(p)
            self._strip(_Strip(tile, position, panels, group, columns, buffer, targets))

    def _strip(self, strip: _Strip) -> None:
        """The results of all rows of a tile in the columns of a micro-tile."""
        tile = strip.tile

        def rows(row: Expr, position: RowPosition) -> RowPosition:
            corner = Corner(tile.batch, row, tile.bottom, strip.columns)
            self.prefetch(corner)
            ahead = self._ahead(strip.panels, row - tile.top, self.depth)
            start = _RowStart(position, row, tile.bottom, strip.group, ahead)
            sums, after = self.sums(start, strip.panels)
            self.finish(corner, sums, strip.buffer, strip.targets)
            return after

        top, bottom = tile.top, tile.bottom
        iterate(self.writer.emit, top, bottom, strip.position, rows, self.shape.rows)

    def _ahead(self, panels: Sequence[Pointer], above: Expr, steps: Size) -> Ahead | None:
        """What a micro-tile with `above` rows above it prefetches of what follows its steps of a panel."""
        (panel, *others), shape, height = panels, self.shape, self.most_height
        if others or not isinstance(height, int) or height <= shape.rows:
            return None
        most = -(-shape.panel * shape.rows // height)
        each = self.writer.size(most, "ahead")
        count = self.writer.size(steps, "steps")
        part = above // shape.rows * count * each
        return Ahead(panel + count * shape.panel + part, each, most)

    def _panels(self, rhs: Pointer, p: Expr, across: Expr) -> list[Pointer]:
        """The panels of a micro-tile, the last one again beyond the end."""
        stride = self.writer.stride(1, len(self.writer.views[1].shape) - 3)
        panels: list[Pointer] = []
        for number in range(self.shape.panels):
            panel = p
            if number:
                last = across - 1
                panel = smaller(p + number, last)
            panels.append((rhs + panel * stride).of(self.panel_dtype))
        return panels


@dataclass(frozen=True, slots=True)
class _Strip:
    """The columns of a micro-tile in all rows of a tile, and the position of its first row."""

    tile: TileBounds
    position: RowPosition
    panels: Sequence[Pointer]
    group: Expr | None
    columns: tuple[Expr, Expr]
    buffer: Pointer
    """Room for a micro-tile at the edge of the result."""
    targets: Sequence[Target]


@dataclass(frozen=True, slots=True)
class _RowStart:
    """The first row of a micro-tile, the `bottom` of its tile, the group of channels, and what is
    prefetched meanwhile."""

    position: RowPosition
    row: Expr
    bottom: Expr
    group: Expr | None
    ahead: Ahead | None


class _PackedRows(_PackedProduct):
    """A product whose left operand is a matrix, whose rows need no position."""

    row_axis: int
    """The axis of the left operand along which its rows are."""
    lhs: Pointer
    """The left operand of a batch."""

    def first_column(self, group: Expr | None) -> Index:
        """The column of the left operand at which a group begins."""
        raise NotImplementedError

    def sums(self, start: _RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
        shape = self.shape
        depth = self.writer.size(self.depth, "inner")
        rows = self.rows(start.row, start.bottom, self.first_column(start.group))
        if isinstance(self.depth, int) and self.depth <= SUM_LENGTH:
            most = self.cpu.products.long_unroll
            unroll = UNROLL if self.depth % most else most
            none = zeros(depth.emit, shape)
            return multiply(shape, rows, panels, depth, none, 1, unroll, start.ahead), []
        return multiply_long(shape, rows, panels, depth), []

    def rows(self, row: Expr, bottom: Expr, column: Index) -> list[Pointer]:
        """The rows of a micro-tile from a column on, the last one again beyond the end."""
        lhs, last, stride = self.lhs + column, bottom - 1, self.writer.stride(0, self.row_axis)
        return [
            (lhs + smaller(row + number, last) * stride).of(self.shape.factors)
            for number in range(self.shape.rows)
        ]


class _PackedGemm(_PackedRows):
    """A product of matrices."""

    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.depth = self.footprint = self.steps(op.inner)
        self.row_axis = len(op.domain) - 2
        self.block = self._depth_block()
        if self.block is not None:
            self.footprint = self.block

    def _depth_block(self) -> int | None:
        m, step = self.product.domain[-2], self.shape.panel * self.panel_dtype.bytes
        streamed = isinstance(m, int) and m <= self.cpu.products.streamed_rows
        if streamed or self.shape.panels > 1:
            return None
        return depth_block(self.depth, step, self.cpu.products.long_unroll, self.cpu)

    def row_position(self, batch: list[Expr], row: Expr) -> RowPosition:
        self.lhs = self.writer.part(0, batch)
        return []

    def first_column(self, group: Expr | None) -> Index:
        return 0

    def _strip(self, strip: _Strip) -> None:
        if self.block is None:
            super()._strip(strip)
            return
        shape, tile, emit = self.shape, strip.tile, self.writer.emit
        assert isinstance(self.most_height, int)
        waiting = self.writer.buffer(self.most_height * shape.columns, self.product.accumulator)
        micro_tiles = partial(for_each, emit, tile.top, tile.bottom, shape.rows)
        with micro_tiles() as row:
            store(shape, zeros(emit, shape), waiting + (row - tile.top) * shape.columns)
        block = self.writer.size(self.block, "block")
        with for_each(emit, 0, self.writer.size(self.depth, "inner"), block) as k:
            panels = [panel + k * shape.panel for panel in strip.panels]
            with micro_tiles() as row:
                sums = waiting + (row - tile.top) * shape.columns
                self._add_block(sums, self.rows(row, tile.bottom, k), panels, row - tile.top)
        with micro_tiles() as row:
            corner = Corner(tile.batch, row, tile.bottom, strip.columns)
            sums = load(shape, waiting + (row - tile.top) * shape.columns)
            self.finish(corner, sums, strip.buffer, strip.targets)

    def _add_block(
        self, waiting: Pointer, rows: Sequence[Pointer], panels: Sequence[Pointer], above: Expr
    ) -> None:
        """Add the products of a block of k to the sums of a micro-tile, which wait in memory."""
        shape, block = self.shape, self.block
        assert block is not None
        ahead = self._ahead(panels, above, block)
        unroll, length = self.cpu.products.long_unroll, self.writer.size(block, "block")
        sums = multiply(shape, rows, panels, length, load(shape, waiting), 1, unroll, ahead)
        store(shape, sums, waiting)


class _PackedPointwise(_PackedRows):
    """A 1 x 1 convolution in groups: rows are pixels, and each group reads columns of its own."""

    row_axis = 2

    def __init__(self, op: Conv, context: Context) -> None:
        super().__init__(op, context)
        self.inputs = kernel.array_type(op.lhs).shape[-1] // op.groups
        self.depth = self.footprint = self.steps(self.inputs)

    @staticmethod
    def applies(op: Conv) -> bool:
        """Whether a convolution is one, of pixels that are equally far apart in memory."""
        lhs = op.lhs.type
        assert isinstance(lhs, ViewType)
        _, height, width, _ = lhs.shape
        picture, row, pixel, _ = lhs.strides
        no_window = op.window == op.strides == (1, 1) and op.padding == ((0, 0), (0, 0))
        return no_window and row == width * pixel and picture == height * row

    def row_position(self, batch: list[Expr], row: Expr) -> RowPosition:
        self.lhs = self.writer.pointer(0)
        return []

    def first_column(self, group: Expr | None) -> Index:
        return 0 if group is None else group * self.writer.size(self.inputs, "inputs")


@dataclass(frozen=True, slots=True)
class _Pixel:
    """The first element of a pixel's window: its row and column in the picture, which may be out of
    bounds, and its offset."""

    row: Expr
    column: Expr
    offset: Expr


class _PackedConv(_PackedProduct):
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

    def sums(self, start: _RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
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

    def _positions(self, start: _RowStart) -> tuple[list[RowPosition], RowPosition]:
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
