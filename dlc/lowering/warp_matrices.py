"""What lowerings of attention share: rows in shared memory, and products of them by matrix instructions.

A warp makes a product for its 16 rows. The sums are the warp's together: of each eight columns, a thread
has two neighbours in two rows (`simt.multiply_add`). Rounded, they are the left factor of the next product
as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_attention import MOST_NARROW, Attention, AttentionGradient
from dlc.dialects.simt import WARP, WIDE
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Options
from dlc.ir.types import F32, DType
from dlc.lowering.formula import number
from dlc.lowering.loop_words import index, unravel
from dlc.lowering.multiples import in_units
from dlc.lowering.product_sources import below, both, offset
from dlc.lowering.shared_lines import BANKS, Lines, Order, Place, fragment, multiple, plus
from dlc.lowering.simt_writer import GridWriter
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


def bring_rows(
    writer: GridWriter,
    emit: Builder,
    view: int,
    batch: Sequence[Value],
    rows: tuple[Value, Value],
    lines: Lines,
    room: Value,
) -> None:
    """Start to bring rows of an operand to a room, from one on, with zeros from a limit on."""
    first, limit = rows
    last = len(writer.views[view].shape) - 1
    width = writer.views[view].shape[last]
    assert isinstance(width, int)

    def find(deep: Builder, line: Value, along: Value) -> Place:
        row = plus(deep, first, line)
        place = offset(writer, deep, view, [*batch, row, along])
        inside = both(deep, below(deep, row, limit), below(deep, along, index(deep, width)))
        return Place(writer.pointers[view], place, inside)

    whole = in_units(writer.op.operands[view], last, WIDE)
    lines.bring(writer, emit, room, find, whole=whole)


class WarpRows:
    """The 16 rows of the block that are a thread's warp's."""

    def __init__(self, writer: GridWriter) -> None:
        emit = writer.emit
        warp, self.lane = unravel(emit, writer.thread, [index(emit, WARP)] * 2)
        self.group, self.part = unravel(emit, self.lane, [index(emit, 4)] * 2)
        self.top = multiple(emit, warp, ROWS)
        """The first of them."""

    def rows(self, emit: Builder, first: Value) -> list[Value]:
        """The two rows of the thread, where the block begins with `first`."""
        own = plus(emit, plus(emit, first, self.top), self.group)
        return [own, plus(emit, own, 8)]

    def column(self, emit: Builder, sum: int) -> Value:
        """The column of one of the thread's sums: two of each eight, for both of its rows."""
        eighth, rest = divmod(sum, 4)
        return plus(emit, multiple(emit, self.part, 2), 8 * eighth + rest % 2)

    def sums(self, columns: Lines) -> int:
        """How many sums of a thread are in rows like these."""
        return ROWS * columns.elements // WARP

    def products(
        self, emit: Builder, left: tuple[Lines, Value], right: tuple[Lines, Value]
    ) -> list[Value]:
        """The warp's rows of one array times all rows of another, each with the room it is in."""
        (rows, own), (columns, others) = left, right
        sums = [number(emit, 0, F32)] * (columns.lines // 2)
        zero = index(emit, 0)
        for step in range(rows.units // 2):
            factor = fragment(
                emit, rows, own, self.lane, self.top, (0, step), along_k=True, of_rows=True
            )
            for first in range(0, columns.lines, 16):
                there = (first, step)
                other = fragment(
                    emit, columns, others, self.lane, zero, there, along_k=True, of_rows=False
                )
                _add(emit, factor, other, sums, first // 8)
        return sums

    def weighted(
        self, emit: Builder, lines: Lines, room: Value, weights: Sequence[Value], sums: list[Value]
    ) -> list[Value]:
        """Add the rows of an array, weighted by what a product gave, rounded to its dtype."""
        found = list(sums)
        depth = STEP // lines.dtype.bytes
        own = depth // 2
        for step in range(lines.lines // depth):
            left = _left(emit, lines.dtype, weights[own * step : own * (step + 1)])
            for first in range(0, lines.elements, 16):
                right = self._right(emit, lines, room, (first, step))
                _add(emit, left, right, found, first // 8)
        return found

    def _right(
        self, emit: Builder, lines: Lines, room: Value, at: tuple[int, int]
    ) -> Sequence[Value]:
        """Rows of an array as the right factor of `_left`."""
        if lines.dtype is not F32:
            zero = index(emit, 0)
            return fragment(emit, lines, room, self.lane, zero, at, along_k=False, of_rows=False)
        first, step = at
        group, rest = unravel(emit, self.group, [index(emit, lines.each)] * 2)
        found: list[Value] = []
        for of_side, of_k in product(range(2), repeat=2):
            low = plus(emit, multiple(emit, self.part, 2), of_k)
            unit = (first + 8 * of_side) // lines.each
            # Units change places with those of all banks only; what is added last is no register.
            near = unit % BANKS
            start = lines.place(emit, plus(emit, low, 8 * step), plus(emit, group, near), low)
            there = plus(emit, plus(emit, start, rest), (unit - near) * lines.each)
            found.append(emit(loop.Load(room, there, F32)))
        return found


def _left(emit: Builder, dtype: DType, sums: Sequence[Value]) -> Sequence[Value]:
    """Sums of a product, which are along k now, as the left factor of another one.

    Of each eight of k thread 4 g + p has the neighbours 2 p and 2 p + 1. Registers of 16 bits want these.
    Those of f32 want p and p + 4; as any order of k gives the same sums, they get the neighbours.
    """
    if dtype is F32:
        upper, lower = sums[:2], sums[2:]
        return [upper[0], lower[0], upper[1], lower[1]]
    narrow = [emit(scalar.Cast(sum, dtype)) for sum in sums]
    return [emit(simt.Join(*narrow[k : k + 2])) for k in range(0, len(narrow), 2)]


def _add(
    emit: Builder,
    left: Sequence[Value],
    right: Sequence[Value],
    sums: list[Value],
    eighth: int,
) -> None:
    """Add a product to the sums in 16 columns."""
    for half in range(2):
        place = slice(4 * (eighth + half), 4 * (eighth + half) + 4)
        two = right[2 * half : 2 * half + 2]
        sums[place] = emit.all(simt.MultiplyAdd(left, two, sums[place]))
