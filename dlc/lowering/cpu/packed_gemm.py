"""`kernel.gemm` and `kernel.conv` on panels: our own products, tile by tile.

A tile of the result is some rows times some panels. Inside, each panel meets all rows of the tile while
it is in the cache. Rows that would be beyond the last are computed from the last one and not stored, so
one loop serves every height; panels likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Condition, Expr, Pointer, all_of, select, select_pointer
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import U64
from dlc.lowering.cpu.micro_kernel import STRETCH, Shape, Sums, multiply, multiply_long, zeros
from dlc.lowering.cpu.product_tiles import Corner, ProductTiles
from dlc.lowering.kernel_code.words import for_each, iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.products import ProductBlocking
from dlc.target.work import nanoseconds


def tile_rows(m: Size, bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """Rows of a tile, when each reads so many bytes: a multiple of the micro-kernel's.

    As many as stay in the cache, and about as many in the last tile as in the others.
    """
    fits = maximum(floor_divide(blocking.tile_left_bytes, maximum(bytes, 1)), rows)
    tiles = ceil_divide(maximum(m, 1), fits)
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def tile_panels(across: Size, work: Size, shape: Shape, blocking: ProductBlocking) -> Size:
    """Panels of a tile, each column `work` products, for a tile of the usual work.

    They are a multiple of the micro-kernel's.
    """
    each = maximum(work * shape.columns, 1)
    wanted = maximum(floor_divide(blocking.tile_products, each), 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    tiles = ceil_divide(several, minimum(wanted, several))
    return ceil_divide(several, tiles) * shape.panels


def lower_panels(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product whose right operand is in panels."""
    match op:
        case Gemm():
            writer: _Panels = _Matrix(op, context)
        case Conv():
            writer = _Pictures(op, context)
        case _:
            raise AssertionError(op.name)
    return writer.lower()


Place = list[Expr]
"""Where the first row of a micro-tile is; what is in it is the subclass's affair."""


class _Panels(ProductTiles):
    """A product on panels. Subclasses say where the rows of the left operand are."""

    depth: Size
    """Products in one sum."""

    footprint: Size
    """Elements of the left operand that a row reads and the rows beside it do not."""

    def first(self, batch: list[Expr], row: Expr) -> Place:
        """The place of a row."""
        raise NotImplementedError

    def sums(self, start: _Start, panels: Sequence[Pointer]) -> tuple[Sums, Place]:
        """The sums of the rows of a micro-tile, and the place after them."""
        raise NotImplementedError

    def lower(self) -> Lowered:
        op, writer, shape = self.product, self.writer, self.shape
        *batch, m, _ = op.domain
        across = self.across
        blocking, row_bytes = self.cpu.products, self.footprint * op.accumulator.bytes
        height = tile_rows(m, row_bytes, shape.rows, blocking)
        width = tile_panels(across, height * self.depth, shape, blocking)
        down, along = ceil_divide(m, height), ceil_divide(across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]
        with for_each(writer.emit, writer.first, writer.last) as number:
            *where, j, i = unravel(number, counts)
            self._tile(where, i, j, height, width)
        work = height * width * shape.panel * maximum(self.depth, 8) * self.cpu.costs.product
        return writer.finish(product(batch) * down * along, nanoseconds(work))

    def _tile(self, batch: list[Expr], i: Expr, j: Expr, height: Size, width: Size) -> None:
        op, writer, shape = self.product, self.writer, self.shape
        emit = writer.emit
        *_, m, _ = op.domain
        tall, wide = writer.size(height, "height"), writer.size(width, "width")
        top = i * tall
        bottom = smaller(top + tall, writer.size(m, "m"))
        left = j * wide
        across = writer.size(self.across, "panels")
        right = smaller(left + wide, across)
        buffer = writer.buffer(shape.rows * shape.columns, op.accumulator)
        shared = isinstance(op, Conv) or op.rhs_shared
        rhs = writer.part(1, [] if shared else batch)
        targets = self.targets(batch)
        place = self.first(batch, top)
        with for_each(emit, left, right, shape.panels) as p:
            panels = self._panels(rhs, p, across)
            group, stretch = self.stretch(p)

            def rows(row: Expr, place: Place) -> Place:
                corner = Corner(batch, row, bottom, stretch)
                self.prefetch(corner)
                sums, after = self.sums(_Start(place, row, bottom, group), panels)
                self.finish(corner, sums, buffer, targets)
                return after

            iterate(emit, top, bottom, place, rows, shape.rows)

    def _panels(self, rhs: Pointer, p: Expr, across: Expr) -> list[Pointer]:
        """Where the panels of a micro-tile are, the last one again beyond the end."""
        stride = self.writer.stride(1, len(self.writer.views[1].shape) - 3)
        panels: list[Pointer] = []
        for number in range(self.shape.panels):
            panel = p
            if number:
                last = across - 1
                panel = smaller(p + number, last)
            panels.append(rhs.of(self.product.accumulator) + panel * stride)
        return panels


@dataclass(frozen=True, slots=True)
class _Start:
    """Where the rows of a micro-tile begin: none from `bottom` on; of which group of channels."""

    place: Place
    row: Expr
    bottom: Expr
    group: Expr | None


class _Matrix(_Panels):
    """Rows of a matrix: a place is where the matrix begins."""

    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.depth = self.footprint = op.inner

    def first(self, batch: list[Expr], row: Expr) -> Place:
        self.lhs = self.writer.part(0, batch)
        return []

    def sums(self, start: _Start, panels: Sequence[Pointer]) -> tuple[Sums, Place]:
        shape = self.shape
        last = start.bottom - 1
        stride = self.writer.stride(0, len(self.op.domain) - 2)
        rows = [
            self.lhs.of(self.op.accumulator) + smaller(start.row + number, last) * stride
            for number in range(shape.rows)
        ]
        depth = self.writer.size(self.op.inner, "inner")
        if isinstance(self.op.inner, int) and self.op.inner <= STRETCH:
            return multiply(shape, rows, panels, depth, zeros(depth.emit, shape)), []
        return multiply_long(shape, rows, panels, depth), []


@dataclass(frozen=True, slots=True)
class _Pixel:
    """Where the window of a pixel begins: its row and column in the picture, which may lie outside,
    and the offset of that element."""

    row: Expr
    column: Expr
    offset: Expr


class _Pictures(_Panels):
    """Rows are pixels of results: a place is the picture, row and column of the first pixel."""

    def __init__(self, op: Conv, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.channels = kernel.array_type(op.lhs).shape[-1]
        self.inputs = self.channels // op.groups
        self.depth = op.window[0] * op.window[1] * self.inputs
        self.footprint = op.strides[0] * op.strides[1] * self.inputs

    @property
    def _joined(self) -> bool:
        """Whether the elements that a row of the window meets are neighbours in memory."""
        beside = self.writer.views[0].strides[2] == self.inputs
        # A row above or below the picture is read from the zeros, which are as many as the channels.
        blank = self.op.padding[0] == (0, 0) or self.op.window[1] <= self.op.groups
        return blank and beside and self.op.padding[1] == (0, 0) and self.op.dilations[1] == 1

    def first(self, batch: list[Expr], row: Expr) -> Place:
        height, width = self.op.extents
        counts = [row, self.writer.size(height, "rows"), self.writer.size(width, "columns")]
        return unravel(row, counts)

    def sums(self, start: _Start, panels: Sequence[Pointer]) -> tuple[Sums, Place]:
        emit = self.writer.emit
        places, after = self._places(start)
        pixels = [self._pixel(start.group, *where) for where in places]

        def tap_row(h: Expr, sums: Sums) -> Sums:
            return self._tap_row(pixels, h, panels, sums)

        return iterate(emit, 0, self.op.window[0], zeros(emit, self.shape), tap_row), after

    def _tap_row(
        self, pixels: Sequence[_Pixel], h: Expr, panels: Sequence[Pointer], sums: Sums
    ) -> Sums:
        """Add what one row of the window meets."""
        taps = self.op.window[1]
        if self._joined:
            depth = self.writer.size(self.inputs * taps, "row")
            rows = self._taps(pixels, h, None)
            return multiply(self.shape, rows, self._from(panels, h, depth), depth, sums)
        channels = self.writer.size(self.inputs, "channels")

        def across(w: Expr, sums: Sums) -> Sums:
            rows = self._taps(pixels, h, w)
            weights = self._from(panels, h * taps + w, channels)
            return multiply(self.shape, rows, weights, channels, sums)

        return iterate(self.writer.emit, 0, taps, sums, across)

    def _from(self, panels: Sequence[Pointer], tap: Expr, depth: Expr) -> list[Pointer]:
        """The panels from a tap on, each tap being `depth` rows of them."""
        start = tap * depth * self.shape.panel
        return [panel + start for panel in panels]

    def _places(self, start: _Start) -> tuple[list[Place], Place]:
        """The places of the rows of a micro-tile, the last one again beyond the end; and the next."""
        places = [start.place]
        for number in range(1, self.shape.rows + 1):
            following = self._next(places[-1])
            if number < self.shape.rows:
                inside = start.row + number < start.bottom
                pairs = zip(following, places[-1], strict=True)
                following = [select(inside, new, old) for new, old in pairs]
            places.append(following)
        return places[:-1], places[-1]

    def _next(self, place: Place) -> Place:
        picture, i, j = place
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
        """Where the window begins for the pixel (i, j) of a result, in a group of channels."""
        writer = self.writer
        corner: list[Expr] = []
        offset = picture * writer.stride(0, 0)
        if group is not None:
            offset = offset + group * writer.size(self.inputs, "channels")
        for axis, at in enumerate((i, j)):
            place = at * self.op.strides[axis]
            low, high = self.op.padding[axis]
            if (low, high) != (0, 0):
                place = place - writer.size(low, "low", axis)
            corner.append(place)
            offset = offset + place * writer.stride(0, 1 + axis)
        return _Pixel(corner[0], corner[1], offset)

    def _taps(self, pixels: Sequence[_Pixel], h: Expr, w: Expr | None) -> list[Pointer]:
        """Where the channels are that a tap of each window meets, or zeros outside the picture.

        Without `w` it is the first tap of the row.
        """
        writer = self.writer
        picture, blank = writer.pointer(0).of(self.op.accumulator), writer.pointer(2)
        down = h * self.op.dilations[0]
        move = down * writer.stride(0, 1)
        along: Expr | None = None
        if w is not None:
            along = w * self.op.dilations[1]
            move = move + along * writer.stride(0, 2)
        pointers: list[Pointer] = []
        for pixel in pixels:
            pointer = picture + (pixel.offset + move)
            inside = self._inside((pixel.row, pixel.column), (down, along))
            pointers.append(select_pointer(inside, pointer, blank))
        return pointers

    def _inside(self, corner: tuple[Expr, Expr], step: tuple[Expr, Expr | None]) -> Condition:
        """Whether a step from a corner leads into the picture."""
        _, *extents, _ = kernel.array_type(self.op.lhs).shape
        inside: Condition = True
        for axis, (at, by) in enumerate(zip(corner, step, strict=True)):
            if by is None or self.op.padding[axis] == (0, 0):
                continue
            # What is below zero is a very large unsigned number.
            place = (at + by).cast(U64)
            within = place < self.writer.size(extents[axis], "extent", axis).cast(U64)
            inside = all_of([inside, within])
        return inside
