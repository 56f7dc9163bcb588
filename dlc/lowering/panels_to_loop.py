"""`kernel.gemm` and `kernel.conv` on panels: our own products, tile by tile.

A tile of the result is some rows times some panels. Inside, each panel meets all rows of the tile while
it is in the cache. Rows that would be beyond the last are computed from the last one and not stored, so
one loop serves every height; panels likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, loop, scalar
from dlc.dialects.kernel_products import Conv, Gemm
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import U64
from dlc.lowering.loop_words import for_each, index, times, unravel
from dlc.lowering.loop_words import minimum as smaller
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.micro_kernel import (
    STRETCH,
    Shape,
    Sums,
    multiply,
    multiply_long,
    zeros,
)
from dlc.lowering.product_tiles import Corner, ProductTiles
from dlc.lowering.work import PRODUCT, ceil_divide, nanoseconds

LEFT_BYTES = 96 * 1024
"""What the rows of a tile read stays in the second-level cache, together with a panel."""
TILE_PRODUCTS = 1_500_000
"""Products of a tile: some 15 to 30 microseconds."""


def tile_rows(m: Size, bytes: Size, rows: int) -> Size:
    """Rows of a tile, when each reads so many bytes: a multiple of the micro-kernel's.

    As many as stay in the cache, and about as many in the last tile as in the others.
    """
    fits = maximum(floor_divide(LEFT_BYTES, maximum(bytes, 1)), rows)
    tiles = ceil_divide(maximum(m, 1), fits)
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def tile_panels(across: Size, rows: Size, inner: Size, shape: Shape) -> Size:
    """Panels of a tile, so that its work is about `TILE_PRODUCTS`: a multiple of the micro-kernel's."""
    each = maximum(rows * inner * shape.columns, 1)
    wanted = maximum(floor_divide(TILE_PRODUCTS, each), 1)
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


Place = list[Value]
"""Where the first row of a micro-tile is; what is in it is the subclass's affair."""


class _Panels(ProductTiles):
    """A product on panels. Subclasses say where the rows of the left operand are."""

    depth: Size
    """Products in one sum."""

    footprint: Size
    """Elements of the left operand that a row reads and the rows beside it do not."""

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        """The place of a row."""
        raise NotImplementedError

    def sums(self, emit: Builder, start: _Start, panels: Sequence[Value]) -> tuple[Sums, Place]:
        """The sums of the rows of a micro-tile, and the place after them."""
        raise NotImplementedError

    def lower(self) -> Lowered:
        op, writer, shape = self.product, self.writer, self.shape
        *batch, m, _ = op.domain
        across = self.across
        height = tile_rows(m, self.footprint * op.accumulator.bytes, shape.rows)
        width = tile_panels(across, height, self.depth, shape)
        down, along = ceil_divide(m, height), ceil_divide(across, width)
        counts = [writer.size(size, "batch", k).value for k, size in enumerate(batch)]
        counts += [writer.size(along, "along").value, writer.size(down, "down").value]

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *where, j, i = unravel(emit, number, counts)
            self._tile(emit, where, i, j, height, width)
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        work = height * width * shape.panel * maximum(self.depth, 8) * PRODUCT
        return writer.finish(product(batch) * down * along, nanoseconds(work))

    def _tile(
        self, emit: Builder, batch: list[Value], i: Value, j: Value, height: Size, width: Size
    ) -> None:
        op, writer, shape = self.product, self.writer, self.shape
        *_, m, _ = op.domain
        tall, wide = writer.size(height, "height").value, writer.size(width, "width").value
        top = emit(scalar.Multiply(i, tall))
        bottom = smaller(emit, emit(scalar.Add(top, tall)), writer.size(m, "m").value)
        left = emit(scalar.Multiply(j, wide))
        across = writer.size(self.across, "panels").value
        right = smaller(emit, emit(scalar.Add(left, wide)), across)
        room = emit(loop.Buffer(shape.rows * shape.columns, op.accumulator))
        shared = isinstance(op, Conv) or op.rhs_shared
        rhs = self.part(emit, 1, [] if shared else batch)
        targets = self.targets(emit, batch)
        place = self.first(emit, batch, top)

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            panels = self._panels(inside, rhs, p, across)
            group, stretch = self.stretch(inside, p)

            def rows(deep: Builder, row: Value, here: list[Value]) -> Sequence[Value]:
                corner = Corner(batch, row, bottom, stretch)
                self.prefetch(deep, corner)
                sums, after = self.sums(deep, _Start(here, row, bottom, group), panels)
                self.finish(deep, corner, sums, room, targets)
                return after

            for_each(inside, top, bottom, shape.rows, place, rows)
            return ()

        for_each(emit, left, right, shape.panels, (), panel)

    def _panels(self, emit: Builder, rhs: Value, p: Value, across: Value) -> list[Value]:
        """Where the panels of a micro-tile are, the last one again beyond the end."""
        stride = self.writer.stride(1, len(self.writer.views[1].shape) - 3)
        found: list[Value] = []
        for number in range(self.shape.panels):
            mine = p
            if number:
                last = emit(scalar.Subtract(across, index(emit, 1)))
                mine = smaller(emit, emit(scalar.Add(p, index(emit, number))), last)
            start = times(emit, mine, stride)
            found.append(emit(loop.Offset(rhs, start, self.product.accumulator)))
        return found


@dataclass(frozen=True, slots=True)
class _Start:
    """Where the rows of a micro-tile begin: none from `bottom` on; of which group of channels."""

    place: Place
    row: Value
    bottom: Value
    group: Value | None


class _Matrix(_Panels):
    """Rows of a matrix: a place is where the matrix begins."""

    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.depth = self.footprint = op.inner

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        self.lhs = self.part(emit, 0, batch)
        return []

    def sums(self, emit: Builder, start: _Start, panels: Sequence[Value]) -> tuple[Sums, Place]:
        shape, dtype = self.shape, self.op.accumulator
        last = emit(scalar.Subtract(start.bottom, index(emit, 1)))
        stride = self.writer.stride(0, len(self.op.domain) - 2)
        pointers: list[Value] = []
        for number in range(shape.rows):
            mine = smaller(emit, emit(scalar.Add(start.row, index(emit, number))), last)
            pointers.append(emit(loop.Offset(self.lhs, times(emit, mine, stride), dtype)))
        depth = self.writer.size(self.op.inner, "inner").value
        if isinstance(self.op.inner, int) and self.op.inner <= STRETCH:
            return multiply(emit, shape, pointers, panels, depth, zeros(emit, shape)), []
        return multiply_long(emit, shape, pointers, panels, depth), []


@dataclass(frozen=True, slots=True)
class _Pixel:
    """Where the window of a pixel begins: its row and column in the picture, which may lie outside,
    and the offset of that element."""

    row: Value
    column: Value
    offset: Value


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

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        height, width = self.op.extents
        counts = [row, self.writer.size(height, "rows").value, self.writer.size(width, "columns").value]
        return unravel(emit, row, counts)

    def sums(self, emit: Builder, start: _Start, panels: Sequence[Value]) -> tuple[Sums, Place]:
        places, after = self._places(emit, start)
        pixels = [self._pixel(emit, start.group, *where) for where in places]
        zero = index(emit, 0)
        down = index(emit, self.op.window[0])

        def tap_row(inside: Builder, h: Value, sums: list[Value]) -> Sequence[Value]:
            return self._tap_row(inside, pixels, h, panels, sums)

        sums = for_each(emit, zero, down, 1, zeros(emit, self.shape), tap_row)
        return list(sums), after

    def _tap_row(
        self,
        emit: Builder,
        pixels: Sequence[_Pixel],
        h: Value,
        panels: Sequence[Value],
        sums: list[Value],
    ) -> Sequence[Value]:
        """Add what one row of the window meets."""
        taps = self.op.window[1]
        if self._joined:
            depth = self.writer.size(self.inputs * taps, "row").value
            rows = self._taps(emit, pixels, h, None)
            return multiply(emit, self.shape, rows, self._from(emit, panels, h, depth), depth, sums)
        channels = self.writer.size(self.inputs, "channels").value

        def across(inner: Builder, w: Value, sums: list[Value]) -> Sequence[Value]:
            rows = self._taps(inner, pixels, h, w)
            tap = inner(scalar.Add(inner(scalar.Multiply(h, index(inner, taps))), w))
            here = self._from(inner, panels, tap, channels)
            return multiply(inner, self.shape, rows, here, channels, sums)

        return for_each(emit, index(emit, 0), index(emit, taps), 1, sums, across)

    def _from(
        self, emit: Builder, panels: Sequence[Value], tap: Value, depth: Value
    ) -> list[Value]:
        """The panels from a tap on, each tap being `depth` rows of them."""
        row = emit(scalar.Multiply(tap, depth))
        start = emit(scalar.Multiply(row, index(emit, self.shape.panel)))
        return [emit(loop.Offset(panel, start, self.op.accumulator)) for panel in panels]

    def _places(self, emit: Builder, start: _Start) -> tuple[list[Place], Place]:
        """The places of the rows of a micro-tile, the last one again beyond the end; and the next."""
        places = [start.place]
        for number in range(1, self.shape.rows + 1):
            following = self._next(emit, places[-1])
            if number < self.shape.rows:
                here = emit(scalar.Add(start.row, index(emit, number)))
                inside = emit(scalar.Compare(here, start.bottom, "lt"))
                following = [
                    emit(scalar.Select(inside, new, old))
                    for new, old in zip(following, places[-1], strict=True)
                ]
            places.append(following)
        return places[:-1], places[-1]

    def _next(self, emit: Builder, place: Place) -> Place:
        picture, i, j = place
        one, zero = index(emit, 1), index(emit, 0)
        height, width = (
            self.writer.size(size, name).value
            for size, name in zip(self.op.extents, ("rows", "columns"), strict=True)
        )
        j = emit(scalar.Add(j, one))
        wrapped = emit(scalar.Compare(j, width, "eq"))
        j = emit(scalar.Select(wrapped, zero, j))
        i = emit(scalar.Select(wrapped, emit(scalar.Add(i, one)), i))
        ended = emit(scalar.Compare(i, height, "eq"))
        i = emit(scalar.Select(ended, zero, i))
        picture = emit(scalar.Select(ended, emit(scalar.Add(picture, one)), picture))
        return [picture, i, j]

    def _pixel(
        self, emit: Builder, group: Value | None, picture: Value, i: Value, j: Value
    ) -> _Pixel:
        """Where the window begins for the pixel (i, j) of a result, in a group of channels."""
        corner: list[Value] = []
        offset = times(emit, picture, self.writer.stride(0, 0))
        if group is not None:
            start = emit(scalar.Multiply(group, self.writer.size(self.inputs, "channels").value))
            offset = emit(scalar.Add(offset, start))
        for axis, at in enumerate((i, j)):
            moved = emit(scalar.Multiply(at, index(emit, self.op.strides[axis])))
            low, high = self.op.padding[axis]
            if (low, high) != (0, 0):
                moved = emit(scalar.Subtract(moved, self.writer.size(low, "low", axis).value))
            corner.append(moved)
            offset = emit(scalar.Add(offset, times(emit, moved, self.writer.stride(0, 1 + axis))))
        return _Pixel(corner[0], corner[1], offset)

    def _taps(
        self, emit: Builder, pixels: Sequence[_Pixel], h: Value, w: Value | None
    ) -> list[Value]:
        """Where the channels are that a tap of each window meets, or zeros outside the picture.

        Without `w` it is the first tap of the row.
        """
        down = emit(scalar.Multiply(h, index(emit, self.op.dilations[0])))
        move = times(emit, down, self.writer.stride(0, 1))
        along: Value | None = None
        if w is not None:
            along = emit(scalar.Multiply(w, index(emit, self.op.dilations[1])))
            move = emit(scalar.Add(move, times(emit, along, self.writer.stride(0, 2))))
        found: list[Value] = []
        for pixel in pixels:
            offset = emit(scalar.Add(pixel.offset, move))
            pointer = emit(loop.Offset(self.writer.pointers[0], offset, self.op.accumulator))
            inside = self._inside(emit, (pixel.row, pixel.column), (down, along))
            if inside is not None:
                pointer = emit(scalar.Select(inside, pointer, self.writer.pointers[2]))
            found.append(pointer)
        return found

    def _inside(
        self, emit: Builder, corner: tuple[Value, Value], step: tuple[Value, Value | None]
    ) -> Value | None:
        """Whether a step from a corner leads into the picture; None if it always does."""
        _, *extents, _ = kernel.array_type(self.op.lhs).shape
        inside: Value | None = None
        for axis, (at, by) in enumerate(zip(corner, step, strict=True)):
            if by is None or self.op.padding[axis] == (0, 0):
                continue
            # What is below zero is a very large unsigned number.
            place = emit(scalar.Cast(emit(scalar.Add(at, by)), U64))
            extent = emit(scalar.Cast(self.writer.size(extents[axis], "extent", axis).value, U64))
            here = emit(scalar.Compare(place, extent, "lt"))
            inside = here if inside is None else emit(scalar.And(inside, here))
        return inside
