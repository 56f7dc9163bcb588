"""`kernel.gemm` on matrices as they are: each tile puts the parts that it needs in order by itself.

The right operand need not be in panels: a tile copies the panel that its rows meet next into memory of the
thread's own, and a left operand that is stored transposed likewise, in strips as high as the micro-kernel.
Nothing of that size is ever in the arena, and a matrix is read once for every tile of rows. Long sums are
cut into blocks: those of a whole tile wait in the thread's memory for the next block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, loop, scalar
from dlc.dialects.kernel_products import Gemm
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Size, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import POINTER, U8
from dlc.lowering.epilogue import Target
from dlc.lowering.loop_words import for_each, index, times, unravel
from dlc.lowering.loop_words import minimum as smaller
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.micro_kernel import Shape, Sums, load, multiply, store, zeros
from dlc.lowering.packing import Source, Strips, pack
from dlc.lowering.product_tiles import Corner, ProductTiles
from dlc.lowering.work import PRODUCT, ceil_divide, nanoseconds

DEPTH = 512
"""Products of a sum in one block: a panel of so many rows stays in the first or second cache."""
LEFT_BYTES = 512 * 1024
"""What the rows of a tile read in a block stays in the second-level cache, or near it."""
MOST_ROWS = 192
"""Rows of a tile: putting a panel in order costs a hundredth of what so many rows do with it."""
PANEL_BYTES = 128 * 1024
"""The panels of a tile, in a block, take a quarter of the second-level cache: the rows pass by them."""
TURNED_ROWS = 96
"""Rows of a tile where the left operand is put in order, too: its strips stay in the second-level cache."""
TURNED_ROWS_WIDE = 144
"""The same with AVX-512, whose processors have caches of 1 MiB and more."""
TURNED_PANEL_BYTES = 512 * 1024
"""There the panels pass by the strips: the more of them, the less often a strip is put in order."""


def lower_blocks(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product that puts its operands in order by itself."""
    assert isinstance(op, Gemm)
    return _Blocks(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Extent:
    """The tile: its first row and panel and those behind its last, and where its batch is."""

    batch: list[Value]
    top: Value
    bottom: Value
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of the sums: its first k and its length; None says that it is all of them."""

    start: Value | None
    length: Value


class _Blocks(ProductTiles):
    def __init__(self, op: Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.bytes = op.accumulator.bytes
        self.block = _block_depth(op.inner)
        self.lanes = self.shape.register.lanes
        self.scratch: Size = 0
        self.room = self.writer.block.add_argument(POINTER, "scratch")

    @property
    def is_whole(self) -> bool:
        """Whether a block has all products of a sum."""
        return self.block == self.op.inner

    def lower(self) -> Lowered:
        op, writer, shape = self.op, self.writer, self.shape
        *batch, m, _ = op.domain
        height = _height(op, self.block * self.bytes, shape)
        width = _width(op, self.across, self.block * self.bytes, shape)
        down, along = ceil_divide(m, height), ceil_divide(self.across, width)
        counts = [writer.size(size, "batch", k).value for k, size in enumerate(batch)]
        counts += [writer.size(along, "along").value, writer.size(down, "down").value]
        self._lay_out(height, width)

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *where, j, i = unravel(emit, number, counts)
            tall, wide = writer.size(height, "height").value, writer.size(width, "width").value
            top = emit(scalar.Multiply(i, tall))
            left = emit(scalar.Multiply(j, wide))
            bottom = smaller(emit, emit(scalar.Add(top, tall)), writer.size(m, "m").value)
            across = writer.size(self.across, "panels").value
            right = smaller(emit, emit(scalar.Add(left, wide)), across)
            self._tile(emit, _Extent(where, top, bottom, left, right))
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        work = height * width * shape.panel * maximum(op.inner, 8) * PRODUCT
        tiles = product(batch) * down * along
        return writer.finish(tiles, nanoseconds(work), self.scratch, (self.room,))

    def _lay_out(self, height: Size, width: Size) -> None:
        """Divide the thread's memory: panels, strips of the left operand, sums that wait."""
        emit, shape = self.writer.emit, self.shape
        self.in_panels = self._part(emit, width * shape.panel * self.block, "panels")
        if self.op.lhs_transposed:
            count = ceil_divide(height, shape.rows)
            self.strips = self._part(emit, count * self._strip_elements, "strips")
        if not self.is_whole:
            self.waiting = self._part(emit, height * width * shape.panel, "waiting")

    def _part(self, emit: Builder, elements: Size, name: str) -> Value:
        start = self.writer.size(self.scratch, "scratch", name).value
        self.scratch = self.scratch + ceil_divide(maximum(elements, 1) * self.bytes, 64) * 64
        return emit(loop.Offset(self.room, start, U8))

    def _tile(self, emit: Builder, tile: _Extent) -> None:
        inner = self.writer.size(self.op.inner, "inner").value
        if self.is_whole:
            self._block(emit, tile, _Part(None, inner))
            return

        step = self.block if isinstance(self.block, int) else DEPTH

        def block(inside: Builder, start: Value, _: list[Value]) -> Sequence[Value]:
            left = inside(scalar.Subtract(inner, start))
            self._block(inside, tile, _Part(start, smaller(inside, left, index(inside, step))))
            return ()

        # Sums of nothing are made by one block, too.
        end = emit(scalar.Maximum(inner, index(emit, 1)))
        for_each(emit, index(emit, 0), end, step, (), block)

    def _block(self, emit: Builder, tile: _Extent, part: _Part) -> None:
        """All rows of a tile times all its panels, for some k."""
        self._pack(emit, tile, part)
        targets = self.targets(emit, tile.batch)
        room = emit(loop.Buffer(self.shape.rows * self.shape.columns, self.op.accumulator))

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            panels = self._panels(inside, tile, p)
            stretch = self.stretch(inside, p)[1]

            def rows(deep: Builder, row: Value, _: list[Value]) -> Sequence[Value]:
                corner = Corner(tile.batch, row, tile.bottom, stretch)
                self.prefetch(deep, corner)
                pointers, apart = self._rows(deep, tile, row, part)
                waiting = self._waiting(deep, tile, row, p)
                nothing = zeros(deep, self.shape)
                sums = multiply(deep, self.shape, pointers, panels, part.length, nothing, apart)
                sums = self._total(deep, part, waiting, sums)
                self._after(deep, part, waiting, corner, sums, room, targets)
                return ()

            for_each(inside, tile.top, tile.bottom, self.shape.rows, (), rows)
            return ()

        for_each(emit, tile.left, tile.right, self.shape.panels, (), panel)

    # Operands.

    def _source(self, emit: Builder, view: int, batch: Sequence[Value], part: _Part) -> Source:
        """An operand from the first k of a block on."""
        op = self.op
        along = op.lhs_transposed if view == 0 else not op.rhs_transposed
        stride = known_stride(self.writer.stride(view, len(self.writer.views[view].shape) - 2))
        pointer = self.part(emit, view, batch)
        if part.start is not None:
            start = times(emit, part.start, stride) if along else part.start
            pointer = emit(loop.Offset(pointer, start, op.accumulator))
        count = self.writer.size(op.domain[-2 + view], "mn"[view]).value
        return Source(pointer, stride, along, count, op.accumulator, self.lanes)

    def _pack(self, emit: Builder, tile: _Extent, part: _Part) -> None:
        """Put the panels of a tile in order, and its rows if they are stored as columns."""
        rhs = self._source(emit, 1, [] if self.op.rhs_shared else tile.batch, part)
        width = index(emit, self.shape.panel)
        left, right = (emit(scalar.Multiply(p, width)) for p in (tile.left, tile.right))
        panels = Strips(self.in_panels, self.shape.panel, self._from_panel_to_panel())
        pack(emit, rhs, panels, left, right, part.length)
        if self.op.lhs_transposed:
            lhs = self._source(emit, 0, tile.batch, part)
            strips = Strips(self.strips, self.shape.rows, self._from_strip_to_strip())
            pack(emit, lhs, strips, tile.top, tile.bottom, part.length)

    def _from_panel_to_panel(self) -> Value:
        return self.writer.size(self.block * self.shape.panel, "panel").value

    def _from_strip_to_strip(self) -> Value:
        return self.writer.size(self._strip_elements, "strip").value

    @property
    def _strip_elements(self) -> Size:
        """From one strip to the next: strips are written side by side, so they begin in different sets of
        a cache."""
        return self.block * self.shape.rows + 64 // self.bytes

    def _strip(self, emit: Builder, tile: _Extent, row: Value) -> Value:
        """Where the strip of the left operand is that begins with a row of the tile."""
        down = emit(scalar.Subtract(row, tile.top))
        number = emit(scalar.RawDivide(down, index(emit, self.shape.rows)))
        start = emit(scalar.Multiply(number, self._from_strip_to_strip()))
        return emit(loop.Offset(self.strips, start, self.op.accumulator))

    def _panels(self, emit: Builder, tile: _Extent, p: Value) -> list[Value]:
        """Where the panels of a micro-tile are."""
        beside = emit(scalar.Subtract(p, tile.left))
        found: list[Value] = []
        for number in range(self.shape.panels):
            mine = emit(scalar.Add(beside, index(emit, number)))
            start = emit(scalar.Multiply(mine, self._from_panel_to_panel()))
            found.append(emit(loop.Offset(self.in_panels, start, self.op.accumulator)))
        return found

    def _rows(
        self, emit: Builder, tile: _Extent, row: Value, part: _Part
    ) -> tuple[list[Value], int]:
        """Where the rows of a micro-tile are, and how far apart their elements."""
        shape, dtype = self.shape, self.op.accumulator
        if self.op.lhs_transposed:
            strip = self._strip(emit, tile, row)
            steps = [index(emit, number) for number in range(shape.rows)]
            return [emit(loop.Offset(strip, step, dtype)) for step in steps], shape.rows
        source = self._source(emit, 0, tile.batch, part)
        last = emit(scalar.Subtract(tile.bottom, index(emit, 1)))
        pointers: list[Value] = []
        for number in range(shape.rows):
            mine = smaller(emit, emit(scalar.Add(row, index(emit, number))), last)
            pointers.append(
                emit(loop.Offset(source.pointer, times(emit, mine, source.stride), dtype))
            )
        return pointers, 1

    # Sums between blocks.

    def _waiting(self, emit: Builder, tile: _Extent, row: Value, p: Value) -> Value | None:
        """Where the sums of a micro-tile wait for the next block; None if there is only one."""
        if self.is_whole:
            return None
        tall = emit(scalar.Subtract(tile.bottom, tile.top))
        whole = emit(scalar.Add(tall, index(emit, self.shape.rows - 1)))
        rows = index(emit, self.shape.rows)
        tall = emit(scalar.Multiply(emit(scalar.RawDivide(whole, rows)), rows))
        beside = emit(scalar.Multiply(emit(scalar.Subtract(p, tile.left)), tall))
        wide = emit(scalar.Multiply(beside, index(emit, self.shape.panel)))
        down = emit(scalar.Subtract(row, tile.top))
        start = emit(scalar.Add(wide, emit(scalar.Multiply(down, index(emit, self.shape.columns)))))
        return emit(loop.Offset(self.waiting, start, self.op.accumulator))

    def _total(self, emit: Builder, part: _Part, waiting: Value | None, sums: Sums) -> Sums:
        """The sums of a block and of those before it: a sum of many sums keeps its digits."""
        if waiting is None or part.start is None:
            return sums
        first, later = Block(), Block()
        Builder(first, emit.location).place(loop.Yield(sums))
        inside = Builder(later, emit.location)
        before = load(inside, self.shape, waiting)
        both = [inside(scalar.Add(*pair)) for pair in zip(before, sums, strict=True)]
        inside.place(loop.Yield(both))
        begins = emit(scalar.Compare(part.start, index(emit, 0), "eq"))
        return list(emit.all(loop.If(begins, first, later)))

    def _after(
        self,
        emit: Builder,
        part: _Part,
        waiting: Value | None,
        corner: Corner,
        sums: Sums,
        room: Value,
        targets: Sequence[Target],
    ) -> None:
        """Finish the sums after the last block; before it they wait."""
        if waiting is None or part.start is None:
            self.finish(emit, corner, sums, room, targets)
            return
        last, earlier = Block(), Block()
        inside = Builder(last, emit.location)
        self.finish(inside, corner, sums, room, targets)
        inside.place(loop.Yield([]))
        inside = Builder(earlier, emit.location)
        store(inside, self.shape, sums, waiting)
        inside.place(loop.Yield([]))
        end = emit(scalar.Add(part.start, part.length))
        ends = emit(scalar.Compare(end, self.writer.size(self.op.inner, "inner").value, "ge"))
        emit.place(loop.If(ends, last, earlier))


def _block_depth(inner: Size) -> Size:
    """How many products of a sum a block has: about as many in the last as in the others."""
    if not isinstance(inner, int):
        return minimum(inner, DEPTH)
    blocks = max(1, -(-inner // DEPTH))
    return -(-inner // blocks)


def _height(op: Gemm, bytes: Size, shape: Shape) -> Size:
    """Rows of a tile, when each reads so many bytes in a block: about as many in each tile."""
    m, most = op.domain[-2], MOST_ROWS
    if op.lhs_transposed:
        is_wide = shape.register.lanes * op.accumulator.bytes == 64
        most = TURNED_ROWS_WIDE if is_wide else TURNED_ROWS
    fits = minimum(maximum(floor_divide(LEFT_BYTES, maximum(bytes, 1)), shape.rows), most)
    tiles = ceil_divide(maximum(m, 1), fits)
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), shape.rows) * shape.rows


def _width(op: Gemm, across: Size, bytes: Size, shape: Shape) -> Size:
    """Panels of a tile, when a column takes so many bytes in a block: about as many in each tile."""
    room = TURNED_PANEL_BYTES if op.lhs_transposed else PANEL_BYTES
    fits = maximum(floor_divide(room, maximum(bytes * shape.columns, 1)), 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    tiles = ceil_divide(several, minimum(fits, several))
    return ceil_divide(several, tiles) * shape.panels
