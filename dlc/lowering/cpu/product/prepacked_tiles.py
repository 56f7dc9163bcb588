"""The tiles of a product with packed panels: loops over tiles, over panels, and over the rows of a tile.

Products of `kernel.gemm` (`prepacked.py`) and `kernel.conv` (`prepacked_conv.py`) have them. While rows
meet a panel, they prefetch the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Self

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.types import DType
from dlc.lowering.cpu.micro_kernel import (
    Ahead,
    Sums,
    streamed,
)
from dlc.lowering.cpu.product.cache_blocking import (
    fitting_rows,
    shared_rows,
    tile_panels,
    tile_rows,
)
from dlc.lowering.cpu.product.tiles import Corner, ProductTiles, TileBounds
from dlc.lowering.cpu.register_epilogue import Target
from dlc.lowering.kernel_code.words import either, for_each, iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

RowPosition = list[Expr]
"""The position of a row of the left operand, as the subclass represents it."""


class PackedProduct(ProductTiles):
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

    def sums(self, start: RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
        """The sums of a micro-tile, and the position after its rows."""
        raise NotImplementedError

    def lower(self) -> Lowered:
        op, writer = self.product, self.writer
        *batch, m, _ = op.domain
        height, width = self._tile_extents(m)
        single: PackedProduct | None = None
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
            self._strip(Strip(tile, position, panels, group, columns, buffer, targets))

    def _strip(self, strip: Strip) -> None:
        """The results of all rows of a tile in the columns of a micro-tile."""
        tile = strip.tile

        def rows(row: Expr, position: RowPosition) -> RowPosition:
            corner = Corner(tile.batch, row, tile.bottom, strip.columns)
            self.prefetch(corner)
            ahead = self._ahead(strip.panels, row - tile.top, self.depth)
            start = RowStart(position, row, tile.bottom, strip.group, ahead)
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
class Strip:
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
class RowStart:
    """The first row of a micro-tile, the `bottom` of its tile, the group of channels, and what is
    prefetched meanwhile."""

    position: RowPosition
    row: Expr
    bottom: Expr
    group: Expr | None
    ahead: Ahead | None
