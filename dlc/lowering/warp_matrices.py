"""Products of matrices in shared memory that a warp of attention makes, for its 16 rows.

The sums of a product are the warp's together: of each eight columns, a thread has two neighbours in two
rows (`simt.multiply_add`). Rounded, they are the left factor of the next product as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import scalar, simt
from dlc.dialects.simt import WIDE
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import F32, DType
from dlc.lowering.formula import number
from dlc.lowering.loop_words import index, unravel
from dlc.lowering.shared_lines import Lines, Order, fragment, multiple, plus
from dlc.lowering.simt_writer import GridWriter

WARPS = 4
ROWS = 16
"""Rows of a warp."""
FEW = 64
"""Elements of a head up to which more columns at a time have room in shared memory."""


def lines_of(dtype: DType, count: int, elements: int) -> Lines:
    """Room for rows of so many elements, a power of two of units."""
    each = WIDE // dtype.bytes
    units = max(2, 1 << (-(-elements // each) - 1).bit_length())
    return Lines(dtype, count, units, Order.BY_UNITS)


class WarpRows:
    """The 16 rows of the block that are a thread's warp's."""

    def __init__(self, writer: GridWriter) -> None:
        emit = writer.emit
        warp, self.lane = unravel(emit, writer.thread, [index(emit, simt.WARP)] * 2)
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
        found, zero = list(sums), index(emit, 0)
        for step in range(lines.lines // 16):
            own = weights[8 * step : 8 * step + 8]
            narrow = [emit(scalar.Cast(weight, lines.dtype)) for weight in own]
            left = [emit(simt.Join(*narrow[k : k + 2])) for k in range(0, 8, 2)]
            for first in range(0, 8 * lines.units, 16):
                there = (first, step)
                right = fragment(
                    emit, lines, room, self.lane, zero, there, along_k=False, of_rows=False
                )
                _add(emit, left, right, found, first // 8)
        return found


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
