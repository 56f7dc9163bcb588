"""`kernel.gemm` on matrices as they are: each tile puts the parts that it needs in order by itself.

The right operand need not be in panels: a tile copies the panel that its rows meet next into memory of the
thread's own, and a left operand that is stored transposed likewise, in strips as high as the micro-kernel.
Nothing of that size is ever in the arena, and a matrix is read once for every tile of rows. Long sums are
cut into blocks: those of a whole tile wait in the thread's memory for the next block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Gemm
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import POINTER
from dlc.lowering.cpu.micro_kernel import Shape, Sums, load, multiply, store, zeros
from dlc.lowering.cpu.packing import Source, Strips, pack
from dlc.lowering.cpu.product_tiles import Corner, ProductTiles
from dlc.lowering.cpu.register_epilogue import Target
from dlc.lowering.kernel_code.words import either, for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.products import ProductBlocking
from dlc.target.work import nanoseconds


def lower_blocks(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product that puts its operands in order by itself."""
    assert isinstance(op, Gemm)
    return _Blocks(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Extent:
    """The tile: its first row and panel and those behind its last, and where its batch is."""

    batch: list[Expr]
    top: Expr
    bottom: Expr
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of the sums: its first k and its length; None says that it is all of them."""

    start: Expr | None
    length: Expr


class _Blocks(ProductTiles):
    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.bytes = op.accumulator.bytes
        self.block = _block_depth(op.inner, self.cpu.products.block_depth)
        self.lanes = self.shape.register.lanes
        self.scratch: Size = 0
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.room = Pointer(self.writer.emit, argument, op.accumulator)

    @property
    def is_whole(self) -> bool:
        """Whether a block has all products of a sum."""
        return self.block == self.op.inner

    def lower(self) -> Lowered:
        op, writer, shape = self.op, self.writer, self.shape
        *batch, m, _ = op.domain
        depth_bytes, blocking = self.block * self.bytes, self.cpu.products
        height = _height(op, depth_bytes, shape.rows, blocking)
        width = _width(op, self.across, depth_bytes, shape, blocking)
        down, along = ceil_divide(m, height), ceil_divide(self.across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]
        self._lay_out(height, width)
        with for_each(writer.emit, writer.first, writer.last) as number:
            *where, j, i = unravel(number, counts)
            tall, wide = writer.size(height, "height"), writer.size(width, "width")
            top, left = i * tall, j * wide
            bottom = smaller(top + tall, writer.size(m, "m"))
            right = smaller(left + wide, writer.size(self.across, "panels"))
            self._tile(_Extent(where, top, bottom, left, right))
        work = height * width * shape.panel * maximum(op.inner, 8) * self.cpu.costs.product
        tiles = product(batch) * down * along
        return writer.finish(tiles, nanoseconds(work), self.scratch, (self.room.value,))

    def _lay_out(self, height: Size, width: Size) -> None:
        """Divide the thread's memory: panels, strips of the left operand, sums that wait."""
        shape = self.shape
        self.in_panels = self._buffer(width * shape.panel * self.block, "panels")
        if self.op.lhs_transposed:
            count = ceil_divide(height, shape.rows)
            self.strips = self._buffer(count * self._strip_elements, "strips")
        if not self.is_whole:
            self.waiting = self._buffer(height * width * shape.panel, "waiting")

    def _buffer(self, elements: Size, name: str) -> Pointer:
        start = self.writer.size(self.scratch, "scratch", name)
        self.scratch = self.scratch + ceil_divide(maximum(elements, 1) * self.bytes, 64) * 64
        return self.room.skip(start)

    def _tile(self, tile: _Extent) -> None:
        inner = self.writer.size(self.op.inner, "inner")
        if self.is_whole:
            self._block(tile, _Part(None, inner))
            return
        step = self.block if isinstance(self.block, int) else self.cpu.products.block_depth
        # Sums of nothing are made by one block, too.
        with for_each(self.writer.emit, 0, larger(inner, 1), step) as start:
            self._block(tile, _Part(start, smaller(inner - start, step)))

    def _block(self, tile: _Extent, part: _Part) -> None:
        """All rows of a tile times all its panels, for some k."""
        shape, writer = self.shape, self.writer
        emit = writer.emit
        self._pack(tile, part)
        targets = self.targets(tile.batch)
        buffer = writer.buffer(shape.rows * shape.columns, self.op.accumulator)
        with for_each(emit, tile.left, tile.right, shape.panels) as p:
            panels = self._panels(tile, p)
            _, stretch = self.stretch(p)
            with for_each(emit, tile.top, tile.bottom, shape.rows) as row:
                corner = Corner(tile.batch, row, tile.bottom, stretch)
                self.prefetch(corner)
                rows, stride = self._rows(tile, row, part)
                waiting = self._waiting(tile, row, p)
                sums = multiply(shape, rows, panels, part.length, zeros(emit, shape), stride)
                sums = self._total(part, waiting, sums)
                self._after(part, waiting, corner, sums, buffer, targets)

    # Operands.

    def _source(self, view: int, batch: Sequence[Expr], part: _Part) -> Source:
        """An operand from the first k of a block on."""
        op, writer = self.op, self.writer
        along = op.lhs_transposed if view == 0 else not op.rhs_transposed
        stride = writer.stride(view, len(writer.views[view].shape) - 2)
        pointer = writer.part(view, batch).of(op.accumulator)
        if part.start is not None:
            pointer = pointer + (part.start * stride if along else part.start)
        count = writer.size(op.domain[-2 + view], "mn"[view])
        return Source(pointer, stride, along, count, self.lanes)

    def _pack(self, tile: _Extent, part: _Part) -> None:
        """Put the panels of a tile in order, and its rows if they are stored as columns."""
        shape = self.shape
        rhs = self._source(1, [] if self.op.rhs_shared else tile.batch, part)
        left, right = tile.left * shape.panel, tile.right * shape.panel
        panels = Strips(self.in_panels, shape.panel, self._from_panel_to_panel())
        pack(rhs, panels, left, right, part.length)
        if self.op.lhs_transposed:
            lhs = self._source(0, tile.batch, part)
            strips = Strips(self.strips, shape.rows, self._from_strip_to_strip())
            pack(lhs, strips, tile.top, tile.bottom, part.length)

    def _from_panel_to_panel(self) -> Expr:
        return self.writer.size(self.block * self.shape.panel, "panel")

    def _from_strip_to_strip(self) -> Expr:
        return self.writer.size(self._strip_elements, "strip")

    @property
    def _strip_elements(self) -> Size:
        """From one strip to the next: strips are written side by side, so they begin in different sets of
        a cache."""
        return self.block * self.shape.rows + 64 // self.bytes

    def _strip(self, tile: _Extent, row: Expr) -> Pointer:
        """Where the strip of the left operand is that begins with a row of the tile."""
        number = (row - tile.top) // self.shape.rows
        return self.strips + number * self._from_strip_to_strip()

    def _panels(self, tile: _Extent, p: Expr) -> list[Pointer]:
        """Where the panels of a micro-tile are."""
        beside = p - tile.left
        return [
            self.in_panels + (beside + number) * self._from_panel_to_panel()
            for number in range(self.shape.panels)
        ]

    def _rows(self, tile: _Extent, row: Expr, part: _Part) -> tuple[list[Pointer], int]:
        """Where the rows of a micro-tile are, and how far apart their elements."""
        numbers = range(self.shape.rows)
        if self.op.lhs_transposed:
            strip = self._strip(tile, row)
            return [strip + number for number in numbers], self.shape.rows
        source = self._source(0, tile.batch, part)
        last = tile.bottom - 1
        return [source.line(smaller(row + number, last)) for number in numbers], 1

    # Sums between blocks.

    def _waiting(self, tile: _Extent, row: Expr, p: Expr) -> Pointer | None:
        """Where the sums of a micro-tile wait for the next block; None if there is only one."""
        if self.is_whole:
            return None
        shape = self.shape
        tall = (tile.bottom - tile.top + (shape.rows - 1)) // shape.rows * shape.rows
        wide = (p - tile.left) * tall * shape.panel
        return self.waiting + (wide + (row - tile.top) * shape.columns)

    def _total(self, part: _Part, waiting: Pointer | None, sums: Sums) -> Sums:
        """The sums of a block and of those before it: a sum of many sums keeps its digits."""
        if waiting is None or part.start is None:
            return sums

        def later() -> Sums:
            before = load(self.shape, waiting)
            return [one + other for one, other in zip(before, sums, strict=True)]

        return either(part.start.equals(0), lambda: sums, later)

    def _after(
        self,
        part: _Part,
        waiting: Pointer | None,
        corner: Corner,
        sums: Sums,
        buffer: Pointer,
        targets: Sequence[Target],
    ) -> None:
        """Finish the sums after the last block; before it they wait."""
        if waiting is None or part.start is None:
            self.finish(corner, sums, buffer, targets)
            return
        ends = part.start + part.length >= self.writer.size(self.op.inner, "inner")
        either(
            ends,
            lambda: self.finish(corner, sums, buffer, targets),
            lambda: store(self.shape, sums, waiting),
        )


def _block_depth(inner: Size, most: int) -> Size:
    """How many products of a sum a block has: about as many in the last as in the others."""
    if not isinstance(inner, int):
        return minimum(inner, most)
    blocks = max(1, -(-inner // most))
    return -(-inner // blocks)


def _height(op: Gemm, bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """Rows of a tile, when each reads so many bytes in a block: about as many in each tile."""
    m = op.domain[-2]
    most = blocking.packed_rows if op.lhs_transposed else blocking.block_rows
    cached = floor_divide(blocking.block_left_bytes, maximum(bytes, 1))
    fits = minimum(maximum(cached, rows), most)
    tiles = ceil_divide(maximum(m, 1), fits)
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def _width(op: Gemm, across: Size, bytes: Size, shape: Shape, blocking: ProductBlocking) -> Size:
    """Panels of a tile, when a column takes so many bytes in a block: about as many in each tile."""
    cached = blocking.packed_panel_bytes if op.lhs_transposed else blocking.block_panel_bytes
    fits = maximum(floor_divide(cached, maximum(bytes * shape.columns, 1)), 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    tiles = ceil_divide(several, minimum(fits, several))
    return ceil_divide(several, tiles) * shape.panels
