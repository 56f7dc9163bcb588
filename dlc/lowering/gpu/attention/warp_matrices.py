"""What lowerings of attention share: rows in shared memory, and products of them by matrix instructions.

A warp makes a product for its 16 rows. The sums are the warp's together: of each eight columns, a thread
has two neighbours in two rows (`simt.mma`). Rounded, they are the left factor of the next product
as they stand.
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
from dlc.lowering.gpu.product.shared_layout import BANKS, Lines, Order, Place, fragment
from dlc.lowering.gpu.writer import GridWriter, multiply_add
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.words import unravel
from dlc.target import gpu_of

ROWS = 16
"""Rows of a warp."""
STEP = 2 * WIDE
"""Bytes along k of one product."""


def by_matrices(op: Attention | AttentionGradient, options: Options) -> bool:
    """Whether matrix instructions compute an attention: where its sums stay in registers."""
    sizes = [kernel.array_type(operand).shape[-1] for operand in (op.query, op.values)]
    narrow = all(isinstance(size, int) and size <= MOST_NARROW for size in sizes)
    gpu, dtype = gpu_of(options), kernel.array_type(op.query).dtype
    matrices = gpu.has_matrix_instructions(dtype, options.matmul_precision)
    return narrow and gpu.copies_async and matrices


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block does at a time: the rows of so many warps, and so many columns."""

    warps: int
    columns: int

    @property
    def rows(self) -> int:
        return ROWS * self.warps


def tile_for(tiles: Mapping[int, Tile], dtype: DType, elements: int) -> Tile:
    """The tile for rows of so many elements, of those for rows of at most so many bytes, in order."""
    return next(tile for most, tile in tiles.items() if elements * dtype.bytes <= most)


def lines_of(dtype: DType, count: int, elements: int) -> Lines:
    """Room for rows of so many elements: a power of two, 16 at least."""
    room = max(16, 1 << (elements - 1).bit_length())
    return Lines(dtype, count, room * dtype.bytes // WIDE, Order.BY_UNITS)


def load_rows(
    writer: GridWriter,
    view: int,
    batch: Sequence[Expr],
    rows: tuple[Expr, Expr],
    lines: Lines,
    buffer: Pointer,
) -> None:
    """Start to copy rows of an operand to a buffer, from one on, with zeros from a limit on."""
    first, limit = rows
    last = len(writer.views[view].shape) - 1
    width = writer.views[view].shape[last]
    assert isinstance(width, int)

    def find(line: Expr, along: Expr) -> Place:
        row = first + line
        place = writer.offset(view, [*batch, row, along])
        return Place(writer.pointer(view), place, (row < limit) & (along < width))

    whole = in_units(writer.op.operands[view], last, WIDE)
    lines.load(writer, buffer, find, whole=whole)


class WarpRows:
    """The 16 rows of the block that are a thread's warp's."""

    def __init__(self, writer: GridWriter) -> None:
        warp, self.lane = unravel(writer.thread, [WARP] * 2)
        self.group, self.part = unravel(self.lane, [4] * 2)
        self.top = warp * ROWS
        """The first of them."""

    def rows(self, first: Expr) -> list[Expr]:
        """The two rows of the thread, where the block begins with `first`."""
        own = first + self.top + self.group
        return [own, own + 8]

    def column(self, sum: int) -> Expr:
        """The column of one of the thread's sums: two of each eight, for both of its rows."""
        eighth, rest = divmod(sum, 4)
        return self.part * 2 + (8 * eighth + rest % 2)

    def sums(self, columns: Lines) -> int:
        """How many sums of a thread are in rows like these."""
        return ROWS * columns.elements // WARP

    def products(self, left: tuple[Lines, Pointer], right: tuple[Lines, Pointer]) -> list[Expr]:
        """The warp's rows of one array times all rows of another, each with the buffer it is in."""
        rows, own = left
        columns, _ = right
        sums = [constant(self.lane.emit, 0, F32)] * (columns.lines // 2)
        for step in range(rows.units // 2):
            at = 0, step
            factor = fragment(rows, own, self.lane, self.top, at, along_k=True, of_rows=True)
            for first in range(0, columns.lines, 16):
                at = first, step
                other = fragment(*right, self.lane, 0, at, along_k=True, of_rows=False)
                _add(factor, other, sums, first // 8)
        return sums

    def weighted(
        self, lines: Lines, buffer: Pointer, weights: Sequence[Expr], sums: Sequence[Expr]
    ) -> list[Expr]:
        """Add the rows of an array, weighted by what a product gave, rounded to its dtype."""
        sums = list(sums)
        depth = STEP // lines.dtype.bytes
        own = depth // 2
        for step in range(lines.lines // depth):
            left = _left(lines.dtype, weights[own * step : own * (step + 1)])
            for first in range(0, lines.elements, 16):
                right = self._right(lines, buffer, (first, step))
                _add(left, right, sums, first // 8)
        return sums

    def _right(self, lines: Lines, buffer: Pointer, at: tuple[int, int]) -> list[Expr]:
        """Rows of an array as the right factor of `_left`."""
        if lines.dtype is not F32:
            return fragment(lines, buffer, self.lane, 0, at, along_k=False, of_rows=False)
        first, step = at
        group, rest = unravel(self.group, [lines.each] * 2)
        numbers: list[Expr] = []
        for of_side, of_k in product(range(2), repeat=2):
            low = self.part * 2 + of_k
            unit = (first + 8 * of_side) // lines.each
            # Units change places with those of all banks only; what is added last is no register.
            near = unit % BANKS
            start = lines.place(low + 8 * step, group + near, low)
            numbers.append(buffer[start + rest + (unit - near) * lines.each])
        return numbers


def _left(dtype: DType, sums: Sequence[Expr]) -> list[Expr]:
    """Sums of a product, which are along k now, as the left factor of another one.

    Of each eight of k thread 4 g + p has the neighbours 2 p and 2 p + 1. Registers of 16 bits want these.
    Those of f32 want p and p + 4; as any order of k gives the same sums, they get the neighbours.
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
