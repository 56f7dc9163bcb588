"""`kernel.gemm` on matrices as they are stored: each tile packs its operands itself, as in BLIS.

A task computes a tile of MC x NC results (`_tile_rows`, `_tile_panels`). k is cut into blocks of KC steps
(`_block_depth`); for each, the task packs the right operand into micro-panels of NR columns, and a left
operand that is stored transposed into micro-panels of MR rows, both in a workspace of the thread. So the
arena has no packed copy, and the right matrix is read once for every tile of rows. Between two blocks of k
the partial sums of the tile stay in the workspace. A single row packs nothing (`single_row`), and then a
tile has `ROW_PANELS` times as many columns, so that it reads longer lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Gemm
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import POINTER
from dlc.lowering.cpu.micro_kernel import Shape, Sums, load, multiply, store, zeros
from dlc.lowering.cpu.product.inline_packing import Matrix, MicroPanels, pack
from dlc.lowering.cpu.product.single_row import add_lines
from dlc.lowering.cpu.product.tiles import Corner, ProductTiles, TileBounds
from dlc.lowering.cpu.register_epilogue import Target
from dlc.lowering.kernel_code.words import either, for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.products import ProductBlocking
from dlc.target.work import nanoseconds

ROW_PANELS = 4
"""How many times as wide a tile of a single row is: lines from memory are read in longer pieces."""


def lower_inline_packed_gemm(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product that packs its operands itself."""
    assert isinstance(op, Gemm)
    return _InlinePackedGemm(op, context).lower()


@dataclass(frozen=True, slots=True)
class _KBlock:
    """A block of k: its first step, or None where one block has all of them, and its length."""

    start: Expr | None
    length: Expr


class _InlinePackedGemm(ProductTiles):
    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.bytes = op.accumulator.bytes
        self.depth = self.steps(op.inner)
        self.block = _block_depth(self.depth, self.cpu.products.block_depth)
        self.lanes = self.shape.register.lanes
        self.scratch: Size = 0
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.workspace = Pointer(self.writer.emit, argument, op.accumulator)

    @property
    def is_whole(self) -> bool:
        """Whether one block has all of k."""
        return self.block == self.depth

    @property
    def takes_single_rows(self) -> bool:
        """Whether there may be a single row, with operands that are read line by line."""
        m = self.op.domain[-2]
        plain = not (self.op.lhs_transposed or self.op.rhs_transposed)
        return plain and (m == 1 or not isinstance(m, int))

    def lower(self) -> Lowered:
        op, writer, shape = self.op, self.writer, self.shape
        *batch, m, _ = op.domain
        depth_bytes, blocking = self.block * self.bytes, self.cpu.products
        height = _tile_rows(op, depth_bytes, shape.rows, blocking)
        width = _tile_panels(op, self.across, depth_bytes, shape, blocking)
        if self.takes_single_rows:
            width = width * (1 + (ROW_PANELS - 1) * self.is_single_row)
            width = minimum(
                width, ceil_divide(maximum(self.across, 1), shape.panels) * shape.panels
            )
        down, along = ceil_divide(m, height), ceil_divide(self.across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]
        self._allocate_workspace(height, width)
        with for_each(writer.emit, writer.first, writer.last) as number:
            *batch_index, j, i = unravel(number, counts)
            tall, wide = writer.size(height, "height"), writer.size(width, "width")
            top, left = i * tall, j * wide
            bottom = smaller(top + tall, writer.size(m, "m"))
            right = smaller(left + wide, writer.size(self.across, "panels"))
            self._tile(TileBounds(batch_index, top, bottom, left, right))
        work = height * width * shape.panel * maximum(self.depth, 8) * self.cpu.costs.product
        tiles = product(batch) * down * along
        return writer.finish(tiles, nanoseconds(work), self.scratch, (self.workspace.value,))

    def _allocate_workspace(self, height: Size, width: Size) -> None:
        """Divide the thread's workspace: packed right operand, packed left operand, partial sums."""
        shape = self.shape
        panels = width * shape.panel
        if self.takes_single_rows:
            self.row_sums = self._buffer(panels, "row sums")
            panels = panels * (1 - self.is_single_row)
        self.packed_rhs = self._buffer(panels * self.block, "panels")
        if self.op.lhs_transposed:
            count = ceil_divide(height, shape.rows)
            self.packed_lhs = self._buffer(count * self._lhs_panel_elements, "strips")
        if not self.is_whole:
            self.partial_sums = self._buffer(height * width * shape.panel, "waiting")

    def _buffer(self, elements: Size, name: str) -> Pointer:
        start = self.writer.size(self.scratch, "scratch", name)
        self.scratch = self.scratch + ceil_divide(maximum(elements, 1) * self.bytes, 64) * 64
        return self.workspace.skip(start)

    def _tile(self, tile: TileBounds) -> None:
        inner = self.writer.size(self.depth, "inner")
        if self.is_whole:
            self._block(tile, _KBlock(None, inner))
            return
        known = self.block if isinstance(self.block, int) else self.cpu.products.block_depth
        step = self.writer.size(known, "block")
        # An empty sum takes one block, too.
        with for_each(self.writer.emit, 0, larger(inner, 1), step) as start:
            self._block(tile, _KBlock(start, smaller(inner - start, step)))

    def _block(self, tile: TileBounds, k_block: _KBlock) -> None:
        """Multiply all rows of the tile by all its panels, for a block of k."""
        if not self.takes_single_rows:
            self._packed_block(tile, k_block)
            return
        single = self.writer.size(self.op.domain[-2], "m").equals(1)
        either(
            single,
            lambda: self._single_row(tile, k_block),
            lambda: self._packed_block(tile, k_block),
        )

    def _single_row(self, tile: TileBounds, k_block: _KBlock) -> None:
        """The sums of the only row, then its results."""
        shape, emit = self.shape, self.writer.emit
        rhs = self._stored(1, [] if self.op.rhs_shared else tile.batch, k_block)
        row = self._stored(0, tile.batch, k_block).line(tile.top)
        columns = (tile.right - tile.left) * shape.panel
        depth = k_block.length * self.apart
        add_lines(rhs, row, self.row_sums, tile.left * shape.panel, columns, depth)
        targets = self.targets(tile.batch)
        buffer = self.writer.buffer(shape.rows * shape.columns, self.op.accumulator)
        with for_each(emit, tile.left, tile.right, shape.panels) as p:
            _, columns_left = self.columns_of(p)
            corner = Corner(tile.batch, tile.top, tile.bottom, columns_left)
            beside = self.row_sums + (p - tile.left) * shape.panel
            # The micro-tile's other rows are never written.
            sums = [
                beside.load(v * self.lanes, self.lanes) for v in range(shape.across)
            ] * shape.rows
            partial_sums = self._partial_sums_of(tile, tile.top, p)
            sums = self._accumulate(k_block, partial_sums, sums)
            self._finish_or_keep(k_block, partial_sums, corner, sums, buffer, targets)

    def _packed_block(self, tile: TileBounds, k_block: _KBlock) -> None:
        """Pack a block of k, then multiply all rows of the tile by all its panels."""
        shape, writer = self.shape, self.writer
        emit = writer.emit
        self._pack(tile, k_block)
        targets = self.targets(tile.batch)
        buffer = writer.buffer(shape.rows * shape.columns, self.op.accumulator)
        with for_each(emit, tile.left, tile.right, shape.panels) as p:
            panels = self._panels(tile, p)
            _, columns = self.columns_of(p)
            with for_each(emit, tile.top, tile.bottom, shape.rows) as row:
                corner = Corner(tile.batch, row, tile.bottom, columns)
                self.prefetch(corner)
                rows, stride = self._rows(tile, row, k_block)
                partial_sums = self._partial_sums_of(tile, row, p)
                sums = multiply(shape, rows, panels, k_block.length, zeros(emit, shape), stride)
                sums = self._accumulate(k_block, partial_sums, sums)
                self._finish_or_keep(k_block, partial_sums, corner, sums, buffer, targets)

    # Operands.

    @property
    def apart(self) -> int:
        """The elements of a row in one step of k."""
        return 2 if self.pairs else 1

    def _stored(self, view: int, batch: Sequence[Expr], k_block: _KBlock) -> Matrix:
        """An operand as it is stored, from the first step of a block on."""
        op, writer = self.op, self.writer
        along = op.lhs_transposed if view == 0 else not op.rhs_transposed
        stride = writer.stride(view, len(writer.views[view].shape) - 2)
        pointer = writer.part(view, batch)
        if k_block.start is not None:
            first = k_block.start * self.apart
            pointer = pointer + (first * stride if along else first)
        count = writer.size(op.domain[-2 + view], "mn"[view])
        return Matrix(pointer, stride, along, count, self.lanes)

    def _matrix(self, view: int, batch: Sequence[Expr], k_block: _KBlock) -> Matrix:
        """An operand in steps of k, from the first one of a block on."""
        stored = self._stored(view, batch, k_block)
        if not self.pairs:
            return stored
        if stored.side_contiguous:
            return replace(stored, pairs=True)
        # Two neighbours along k are a step as they are.
        return replace(
            stored, pointer=stored.pointer.of(self.shape.factors), stride=stored.stride // 2
        )

    def _pack(self, tile: TileBounds, k_block: _KBlock) -> None:
        """Pack the panels of a tile, and its rows if they are stored as columns."""
        shape = self.shape
        rhs = self._matrix(1, [] if self.op.rhs_shared else tile.batch, k_block)
        left, right = tile.left * shape.panel, tile.right * shape.panel
        panels = MicroPanels(
            self.packed_rhs.of(shape.factors), shape.panel, self._rhs_panel_stride()
        )
        pack(rhs, panels, left, right, k_block.length)
        if self.op.lhs_transposed:
            lhs = self._matrix(0, tile.batch, k_block)
            packed_lhs = MicroPanels(self.packed_lhs, shape.rows, self._lhs_panel_stride())
            pack(lhs, packed_lhs, tile.top, tile.bottom, k_block.length)

    def _rhs_panel_stride(self) -> Expr:
        return self.writer.size(self.block * self.shape.panel, "panel")

    def _lhs_panel_stride(self) -> Expr:
        return self.writer.size(self._lhs_panel_elements, "strip")

    @property
    def _lhs_panel_elements(self) -> Size:
        """Elements from one left micro-panel to the next: a cache line more than its size, since they are
        written side by side and are to begin in different sets of a cache."""
        return self.block * self.shape.rows + 64 // self.bytes

    def _lhs_panel(self, tile: TileBounds, row: Expr) -> Pointer:
        """The micro-panel of the left operand that begins with a row of the tile."""
        number = (row - tile.top) // self.shape.rows
        return self.packed_lhs + number * self._lhs_panel_stride()

    def _panels(self, tile: TileBounds, p: Expr) -> list[Pointer]:
        """The panels of a micro-tile."""
        beside = p - tile.left
        return [
            (self.packed_rhs + (beside + number) * self._rhs_panel_stride()).of(self.shape.factors)
            for number in range(self.shape.panels)
        ]

    def _rows(self, tile: TileBounds, row: Expr, k_block: _KBlock) -> tuple[list[Pointer], int]:
        """The rows of a micro-tile, and the stride of their elements along k."""
        numbers = range(self.shape.rows)
        if self.op.lhs_transposed:
            panel = self._lhs_panel(tile, row)
            return [panel + number for number in numbers], self.shape.rows
        matrix = self._matrix(0, tile.batch, k_block)
        last = tile.bottom - 1
        return [matrix.line(smaller(row + number, last)) for number in numbers], 1

    # Partial sums between blocks of k.

    def _partial_sums_of(self, tile: TileBounds, row: Expr, p: Expr) -> Pointer | None:
        """The memory of a micro-tile's partial sums; None if there is only one block."""
        if self.is_whole:
            return None
        shape = self.shape
        tall = (tile.bottom - tile.top + (shape.rows - 1)) // shape.rows * shape.rows
        wide = (p - tile.left) * tall * shape.panel
        return self.partial_sums + (wide + (row - tile.top) * shape.columns)

    def _accumulate(self, k_block: _KBlock, partial_sums: Pointer | None, sums: Sums) -> Sums:
        """The sums of a block added to those before it: blocked summation bounds rounding errors."""
        if partial_sums is None or k_block.start is None:
            return sums

        def later() -> Sums:
            before = load(self.shape, partial_sums)
            return [one + other for one, other in zip(before, sums, strict=True)]

        return either(k_block.start.equals(0), lambda: sums, later)

    def _finish_or_keep(
        self,
        k_block: _KBlock,
        partial_sums: Pointer | None,
        corner: Corner,
        sums: Sums,
        buffer: Pointer,
        targets: Sequence[Target],
    ) -> None:
        """Apply the epilogue after the last block; before it store the partial sums."""
        if partial_sums is None or k_block.start is None:
            self.finish(corner, sums, buffer, targets)
            return
        ends = k_block.start + k_block.length >= self.writer.size(self.depth, "inner")
        either(
            ends,
            lambda: self.finish(corner, sums, buffer, targets),
            lambda: store(self.shape, sums, partial_sums),
        )


def _block_depth(inner: Size, most: int) -> Size:
    """KC, the steps of a block of k: at most `most`, and about equal in all blocks."""
    if not isinstance(inner, int):
        return minimum(inner, most)
    blocks = max(1, -(-inner // most))
    return -(-inner // blocks)


def _tile_rows(op: Gemm, bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """MC, the rows of a tile, of `bytes` in a block each: about equal in all tiles."""
    m = op.domain[-2]
    most = blocking.packed_rows if op.lhs_transposed else blocking.block_rows
    cached = floor_divide(blocking.block_left_bytes, maximum(bytes, 1))
    fits = minimum(maximum(cached, rows), most)
    tiles = ceil_divide(maximum(m, 1), fits)
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def _tile_panels(
    op: Gemm, across: Size, bytes: Size, shape: Shape, blocking: ProductBlocking
) -> Size:
    """NC as panels of a tile, of which a column has `bytes` in a block: about equal in all tiles."""
    cached = blocking.packed_panel_bytes if op.lhs_transposed else blocking.block_panel_bytes
    fits = maximum(floor_divide(cached, maximum(bytes * shape.columns, 1)), 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    tiles = ceil_divide(several, minimum(fits, several))
    return ceil_divide(several, tiles) * shape.panels
