"""Products of rows in shared memory by matrix instructions, for both lowerings of attention.

A warp computes the products of its 16 rows. The threads of the warp hold the sums as `simt.mma` leaves
them: of each eight columns a thread has two neighbours in two rows. Rounded, they are the left fragment of
the next product as they are, without a pass through shared memory (as in FlashAttention-2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dlc.dialects import kernel, simt
from dlc.dialects.expr import Expr, Pointer, constant
from dlc.dialects.kernel.attention import MOST_NARROW, Attention, AttentionGradient
from dlc.dialects.simt import WARP, WIDE
from dlc.ir.passes import Options
from dlc.ir.types import F32, DType
from dlc.lowering.gpu.product.shared_layout import (
    BANK_UNITS,
    GlobalElement,
    SharedLayout,
    Swizzle,
    load_fragment,
)
from dlc.lowering.gpu.writer import GridWriter, multiply_add
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.words import unravel
from dlc.target import gpu_of

ROWS = 16
"""Rows of a warp."""
STEP = 2 * WIDE
"""Bytes along k of one product."""


def by_matrices(op: Attention | AttentionGradient, options: Options) -> bool:
    """Whether matrix instructions compute an attention: the GPU has them, and registers hold the sums."""
    sizes = [kernel.array_type(operand).shape[-1] for operand in (op.query, op.values)]
    narrow = all(isinstance(size, int) and size <= MOST_NARROW for size in sizes)
    gpu, dtype = gpu_of(options), kernel.array_type(op.query).dtype
    matrices = gpu.has_matrix_instructions(dtype, options.matmul_precision)
    return narrow and gpu.copies_async and matrices


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """The tile of scores of a block: the rows of `warps` warps times `columns`."""

    warps: int
    columns: int

    @property
    def rows(self) -> int:
        return ROWS * self.warps


def tile_for(tiles: Mapping[int, AttentionTile], dtype: DType, elements: int) -> AttentionTile:
    """The tile for rows of `elements` elements; the keys of `tiles` are the most bytes of a row."""
    return next(tile for most, tile in tiles.items() if elements * dtype.bytes <= most)


def layout_of(dtype: DType, count: int, elements: int) -> SharedLayout:
    """The layout of `count` rows of `elements` elements, padded to a power of two, 16 at least."""
    padded = max(16, 1 << (elements - 1).bit_length())
    return SharedLayout(dtype, count, padded * dtype.bytes // WIDE, Swizzle.UNITS)


def load_rows(
    writer: GridWriter,
    view: int,
    batch: Sequence[Expr],
    rows: tuple[Expr, Expr],
    layout: SharedLayout,
    buffer: Pointer,
) -> None:
    """Start to copy rows of an operand to a buffer; `rows` are the first one and the limit, then zeros."""
    first, limit = rows
    last = len(writer.views[view].shape) - 1
    width = writer.views[view].shape[last]
    assert isinstance(width, int)

    def locate(line: Expr, along: Expr) -> GlobalElement:
        row = first + line
        offset = writer.offset(view, [*batch, row, along])
        return GlobalElement(writer.pointer(view), offset, (row < limit) & (along < width))

    whole = in_units(writer.op.operands[view], last, WIDE)
    layout.load(writer, buffer, locate, whole=whole)


class WarpRows:
    """The 16 rows of the block that belong to a thread's warp."""

    def __init__(self, writer: GridWriter) -> None:
        warp, self.lane = unravel(writer.thread, [WARP] * 2)
        self.group, self.part = unravel(self.lane, [4] * 2)
        self.top = warp * ROWS
        """The first row of the warp."""

    def rows(self, first: Expr) -> list[Expr]:
        """The two rows of the thread, where the block begins with `first`."""
        own = first + self.top + self.group
        return [own, own + 8]

    def column(self, sum: int) -> Expr:
        """The column of one of the thread's sums: two of each eight, for both of its rows."""
        eighth, rest = divmod(sum, 4)
        return self.part * 2 + (8 * eighth + rest % 2)

    def sums(self, columns: SharedLayout) -> int:
        """The number of a thread's sums for rows with this layout."""
        return ROWS * columns.elements // WARP

    def products(
        self, left: tuple[SharedLayout, Pointer], right: tuple[SharedLayout, Pointer]
    ) -> list[Expr]:
        """The warp's rows of one array times all rows of another; each is a layout and its buffer."""
        rows, own = left
        columns, _ = right
        sums = [constant(self.lane.emit, 0, F32)] * (columns.lines // 2)
        for step in range(rows.units // 2):
            at = 0, step
            factor = load_fragment(rows, own, self.lane, self.top, at, along_k=True, of_rows=True)
            for first in range(0, columns.lines, 16):
                at = first, step
                other = load_fragment(*right, self.lane, 0, at, along_k=True, of_rows=False)
                _add(factor, other, sums, first // 8)
        return sums

    def weighted(
        self, layout: SharedLayout, buffer: Pointer, weights: Sequence[Expr], sums: Sequence[Expr]
    ) -> list[Expr]:
        """Add the rows of an array, weighted by the sums of a product, which are rounded to its dtype."""
        sums = list(sums)
        depth = STEP // layout.dtype.bytes
        own = depth // 2
        for step in range(layout.lines // depth):
            left = _left(layout.dtype, weights[own * step : own * (step + 1)])
            for first in range(0, layout.elements, 16):
                right = self._right(layout, buffer, (first, step))
                _add(left, right, sums, first // 8)
        return sums

    def _right(self, layout: SharedLayout, buffer: Pointer, at: tuple[int, int]) -> list[Expr]:
        """The right fragment of rows of an array, in the order along k of `_left`."""
        if layout.dtype is not F32:
            return load_fragment(layout, buffer, self.lane, 0, at, along_k=False, of_rows=False)
        first, step = at
        group, rest = unravel(self.group, [layout.each] * 2)
        elements: list[Expr] = []
        for of_side, of_k in product(range(2), repeat=2):
            low = self.part * 2 + of_k
            unit = (first + 8 * of_side) // layout.each
            # The swizzle moves units within a row of banks; the rest of the offset is a constant.
            near = unit % BANK_UNITS
            start = layout.offset(low + 8 * step, group + near, low)
            elements.append(buffer[start + rest + (unit - near) * layout.each])
        return elements


def _left(dtype: DType, sums: Sequence[Expr]) -> list[Expr]:
    """Sums of a product as the left fragment of another one, whose k are the columns of the first.

    Of each eight steps along k thread 4 g + p has the neighbours 2 p and 2 p + 1, as 16-bit fragments need
    them. f32 fragments take p and p + 4: they get the neighbours, a permutation of k that `_right` follows.
    """
    if dtype is F32:
        upper, lower = sums[:2], sums[2:]
        return [upper[0], lower[0], upper[1], lower[1]]
    narrow = [sum.cast(dtype) for sum in sums]
    pairs = zip(narrow[::2], narrow[1::2], strict=True)
    return [one.apply(simt.Join(one.value, other.value)) for one, other in pairs]


def _add(left: Sequence[Expr], right: Sequence[Expr], sums: list[Expr], eighth: int) -> None:
    """Add a product to the sums in 16 columns."""
    for half in range(2):
        tile = slice(4 * (eighth + half), 4 * (eighth + half) + 4)
        sums[tile] = multiply_add(left, right[2 * half : 2 * half + 2], sums[tile])
