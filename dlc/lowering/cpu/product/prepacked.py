"""`kernel.gemm` and `kernel.conv` whose right operand is packed into panels before (BLIS), tile by tile.

A tile of the result is some rows (MC) times some panels (NC). Within a tile each panel stays in the cache
while the micro-kernel goes through all rows. Rows beyond the last are computed from the last one and not
stored, so one loop serves every height; panels likewise. A matrix product whose rows the call counts has
code for a single row, too, as a decoder's for each token: it takes as long as reading the panels. A
convolution (`prepacked_conv.py`) is an implicit GEMM: its rows are the windows of pixels, read from the
picture in place.

While rows meet a panel, they prefetch the next one (`prepacked_tiles.py`). A panel that is too long for
that is met in blocks of k (KC), between which the sums wait in memory; they are added in the same order.
How large tiles and blocks are is chosen in `cache_blocking.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.passes import Context
from dlc.ir.types import ViewType
from dlc.lowering.cpu.micro_kernel import (
    SUM_LENGTH,
    UNROLL,
    Sums,
    load,
    multiply,
    multiply_long,
    store,
    zeros,
)
from dlc.lowering.cpu.product.cache_blocking import depth_block
from dlc.lowering.cpu.product.prepacked_conv import PackedConv
from dlc.lowering.cpu.product.prepacked_tiles import PackedProduct, RowPosition, RowStart, Strip
from dlc.lowering.cpu.product.tiles import Corner
from dlc.lowering.kernel_code.words import for_each
from dlc.lowering.kernel_code.writer import Lowered


def lower_packed_product(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product whose right operand is packed."""
    match op:
        case Gemm():
            writer: PackedProduct = _PackedGemm(op, context)
        case Conv() if _PackedPointwise.applies(op):
            writer = _PackedPointwise(op, context)
        case Conv():
            writer = PackedConv(op, context)
        case _:
            raise AssertionError(op.name)
    return writer.lower()


class _PackedRows(PackedProduct):
    """A product whose left operand is a matrix, whose rows need no position."""

    row_axis: int
    """The axis of the left operand along which its rows are."""
    lhs: Pointer
    """The left operand of a batch."""

    def first_column(self, group: Expr | None) -> Index:
        """The column of the left operand at which a group begins."""
        raise NotImplementedError

    def sums(self, start: RowStart, panels: Sequence[Pointer]) -> tuple[Sums, RowPosition]:
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

    def _strip(self, strip: Strip) -> None:
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
