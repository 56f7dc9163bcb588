"""Arrays in shared memory as matrix instructions want them, and how they come there.

*Lines* consist of units of 16 bytes, as they lie in memory: of each row of a matrix some elements along k,
or for each k some along the side. Where threads read units of several lines at once, they are in another
order in each line, so that all are in different banks: the unit's number is XORed with some bits of the
line's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from dlc.dialects import simt
from dlc.dialects.expr import Expr, Index, Pointer, constant, exprs
from dlc.dialects.simt import WIDE
from dlc.ir.types import F32, DType
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.words import either, for_each, unravel

BANKS = 8
"""Units that are as wide as all banks together."""
MOST_WRITTEN = 4
"""Pieces that a thread brings in code of their own; more are a loop."""


class Order(Enum):
    """How units are ordered in a line."""

    PLAIN = auto()
    """As they lie in memory: for threads that read one line at a time, or all the same unit."""
    BY_UNITS = auto()
    """For threads that read the same unit of eight lines."""
    BY_NUMBERS = auto()
    """For threads that read eight neighbouring numbers of each of four lines."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an element is in memory, and whether there is one."""

    array: Pointer
    index: Expr
    within: Expr


Find = Callable[[Expr, Expr], Place]
"""Where in memory the element of a line is: from the line's number and the element's."""


@dataclass(frozen=True, slots=True)
class Lines:
    """So many lines of so many units, a power of two."""

    dtype: DType
    lines: int
    units: int
    order: Order

    @property
    def each(self) -> int:
        """Elements of a unit."""
        return WIDE // self.dtype.bytes

    @property
    def elements(self) -> int:
        """Elements of a line."""
        return self.units * self.each

    @property
    def bytes(self) -> int:
        return self.lines * self.units * WIDE

    def place(self, line: Index, unit: Expr, low: Expr) -> Expr:
        """Where a unit is, in elements; `low` is the line's number, of which only `% 8` counts."""
        return (line * self.units + self._swizzled(unit, low)) * self.each

    def _swizzled(self, unit: Expr, low: Expr) -> Expr:
        match self.order:
            case Order.PLAIN:
                return unit
            case Order.BY_NUMBERS:
                return unit ^ low % 4 * 2
            case Order.BY_UNITS if self.units < BANKS:
                return unit ^ low // (BANKS // self.units) % self.units
            case Order.BY_UNITS:
                return unit ^ low % BANKS

    def load(self, writer: GridWriter, buffer: Pointer, find: Find, *, whole: bool) -> None:
        """Start to copy all lines to a buffer, with zeros where there is nothing.

        Elements come in `whole` units, or one by one.
        """
        size = self.each if whole else 1
        count = self.lines * self.elements // size
        thread, threads = writer.thread, writer.threads
        if count % threads or count > MOST_WRITTEN * threads:
            with for_each(writer.emit, thread, count, threads) as number:
                self._load_piece(buffer, find, number, size)
            return
        for part in range(count // threads):
            self._load_piece(buffer, find, thread + part * threads, size)

    def _load_piece(self, buffer: Pointer, find: Find, number: Expr, size: int) -> None:
        """Start to copy one of the pieces of `size` elements."""
        line, part = unravel(number, [self.elements // size] * 2)
        along = part * size
        place = find(line, along)
        unit, rest = unravel(along, [self.each] * 2)
        self._copy(place, buffer, self.place(line, unit, line) + rest, size)

    def _copy(self, place: Place, buffer: Pointer, to: Expr, count: int) -> None:
        if count * self.dtype.bytes < 4:
            buffer[to] = load_if(place.within, place.array, place.index)
            return
        to.emit.place(
            simt.Copy(
                place.array.value,
                place.index.value,
                buffer.value,
                to.value,
                place.within.value,
                self.dtype,
                count,
            )
        )


def fragment(
    lines: Lines,
    buffer: Pointer,
    lane: Expr,
    base: Index,
    at: tuple[int, int],
    *,
    along_k: bool,
    of_rows: bool,
) -> list[Expr]:
    """Four matrices of 8 x 16 bytes as `simt.mma` takes them: 16 of the side, 32 bytes of k.

    They begin at number `base` of the side and `at` beyond: so many of the side, so many steps of 32 bytes
    along k. Of lhs (`of_rows`) the upper and lower rows come first, of rhs the halves of k.
    """
    first, step = at
    if lines.dtype is F32 and not along_k:
        return _numbers(lines, buffer, lane, base, at, of_rows=of_rows)
    which, low = unravel(lane, [8] * 2)
    halves = unravel(which, [2] * 2)
    of_k, of_side = halves if of_rows else reversed(halves)
    if along_k:
        line = base + (of_side * 8 + low) + first
        unit = of_k + 2 * step
    else:
        line = of_k * 8 + low + 16 * step
        unit = base // 8 + of_side + first // 8
    emit, place = lane.emit, lines.place(line, unit, low)
    return exprs(
        emit, emit.all(simt.LoadMatrix(buffer.value, place.value, lines.dtype, not along_k))
    )


def _numbers(
    lines: Lines,
    buffer: Pointer,
    lane: Expr,
    base: Index,
    at: tuple[int, int],
    *,
    of_rows: bool,
) -> list[Expr]:
    """The same of f32 that lie the other way, which no instruction turns."""
    first, step = at
    group, part = unravel(lane, [4] * 2)
    numbers: list[Expr] = []
    for register in range(4):
        of_k, of_side = divmod(register, 2) if of_rows else reversed(divmod(register, 2))
        line = part + (8 * step + 4 * of_k)
        side = base + group + (first + 8 * of_side)
        unit, rest = unravel(side, [lines.each] * 2)
        numbers.append(buffer.of(F32)[lines.place(line, unit, part) + rest])
    return numbers


def load_if(within: Expr, array: Pointer, place: Expr) -> Expr:
    """The element at a place, 0 where it is outside."""
    (element,) = either(
        within, lambda: [array[place]], lambda: [constant(array.emit, 0, array.dtype)]
    )
    return element
