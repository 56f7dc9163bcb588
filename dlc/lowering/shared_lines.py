"""Arrays in shared memory as matrix instructions want them, and how they come there.

*Lines* consist of units of 16 bytes, as they lie in memory: of each row of a matrix some elements along k,
or for each k some along the side. Where threads read units of several lines at once, they are in another
order in each line, so that all are in different banks: the unit's number is XORed with some bits of the
line's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dlc.dialects import loop, scalar, simt
from dlc.dialects.simt import WIDE
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.types import F32, DType
from dlc.lowering.formula import number
from dlc.lowering.loop_words import for_each, index, unravel
from dlc.lowering.simt_writer import GridWriter

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
    """Where an element is, and whether there is one."""

    pointer: Value
    index: Value
    within: Value


Find = Callable[[Builder, Value, Value], Place]
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

    def place(self, emit: Builder, line: Value, unit: Value, low: Value) -> Value:
        """Where a unit is, in elements; `low` is the line's number, of which only `% 8` counts."""
        start = emit(scalar.Multiply(line, index(emit, self.units)))
        found = emit(scalar.Add(start, self._turned(emit, unit, low)))
        return emit(scalar.Multiply(found, index(emit, self.each)))

    def _turned(self, emit: Builder, unit: Value, low: Value) -> Value:
        match self.order:
            case Order.PLAIN:
                return unit
            case Order.BY_NUMBERS:
                turn = emit(scalar.Multiply(_rest(emit, low, 4), index(emit, 2)))
            case Order.BY_UNITS if self.units < BANKS:
                lines = emit(scalar.RawDivide(low, index(emit, BANKS // self.units)))
                turn = _rest(emit, lines, self.units)
            case Order.BY_UNITS:
                turn = _rest(emit, low, BANKS)
        return emit(scalar.Xor(unit, turn))

    def bring(
        self, writer: GridWriter, emit: Builder, room: Value, find: Find, *, whole: bool
    ) -> None:
        """Start to bring all lines to a room, with zeros where there is nothing.

        Elements come in `whole` units, or one by one.
        """
        size = self.each if whole else 1
        count = self.lines * self.elements // size

        def piece(deep: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            line, part = unravel(deep, number, [index(deep, self.elements // size)] * 2)
            along = deep(scalar.Multiply(part, index(deep, size)))
            self._copy(deep, find(deep, line, along), room, self._there(deep, line, along), size)
            return ()

        thread, threads = writer.thread, writer.threads
        if count % threads or count > MOST_WRITTEN * threads:
            for_each(emit, thread, index(emit, count), threads, (), piece)
            return
        for part in range(count // threads):
            piece(emit, emit(scalar.Add(thread, index(emit, part * threads))), [])

    def _there(self, emit: Builder, line: Value, along: Value) -> Value:
        """Where in the room an element of a line is."""
        unit, rest = unravel(emit, along, [index(emit, self.each)] * 2)
        return emit(scalar.Add(self.place(emit, line, unit, line), rest))

    def _copy(self, emit: Builder, place: Place, room: Value, there: Value, count: int) -> None:
        if count * self.dtype.bytes >= 4:
            copy = simt.Copy(
                place.pointer, place.index, room, there, place.within, self.dtype, count
            )
            emit.place(copy)
            return
        value = if_within(emit, place.within, place.pointer, place.index, self.dtype)
        emit.place(loop.Store(value, room, there))


def fragment(
    emit: Builder,
    lines: Lines,
    room: Value,
    lane: Value,
    base: Value,
    at: tuple[int, int],
    *,
    along_k: bool,
    of_rows: bool,
) -> Sequence[Value]:
    """Four matrices of 8 x 16 bytes as `simt.multiply_add` takes them: 16 of the side, 32 bytes of k.

    They begin at number `base` of the side and `at` beyond: so many of the side, so many steps of 32 bytes
    along k. Of lhs (`of_rows`) the upper and lower rows come first, of rhs the halves of k.
    """
    first, step = at
    if lines.dtype is F32 and not along_k:
        return _numbers(emit, lines, room, lane, base, at, of_rows=of_rows)
    which, low = unravel(emit, lane, [index(emit, 8)] * 2)
    halves = unravel(emit, which, [index(emit, 2)] * 2)
    of_k, of_side = halves if of_rows else reversed(halves)
    if along_k:
        line = plus(emit, plus(emit, base, plus(emit, multiple(emit, of_side, 8), low)), first)
        unit = plus(emit, of_k, 2 * step)
    else:
        line = plus(emit, plus(emit, multiple(emit, of_k, 8), low), 16 * step)
        eighths = emit(scalar.RawDivide(base, index(emit, 8)))
        unit = plus(emit, plus(emit, eighths, of_side), first // 8)
    place = lines.place(emit, line, unit, low)
    return emit.all(simt.LoadMatrix(room, place, lines.dtype, not along_k))


def _numbers(
    emit: Builder,
    lines: Lines,
    room: Value,
    lane: Value,
    base: Value,
    at: tuple[int, int],
    *,
    of_rows: bool,
) -> list[Value]:
    """The same of f32 that lie the other way, which no instruction turns."""
    first, step = at
    group, part = unravel(emit, lane, [index(emit, 4)] * 2)
    found: list[Value] = []
    for register in range(4):
        of_k, of_side = divmod(register, 2) if of_rows else reversed(divmod(register, 2))
        line = plus(emit, part, 8 * step + 4 * of_k)
        side = plus(emit, plus(emit, base, group), first + 8 * of_side)
        unit, rest = unravel(emit, side, [index(emit, lines.each)] * 2)
        place = plus(emit, lines.place(emit, line, unit, part), rest)
        found.append(emit(loop.Load(room, place, F32)))
    return found


def if_within(emit: Builder, within: Value, pointer: Value, place: Value, dtype: DType) -> Value:
    """The element at a place, 0 where it is outside."""
    yes, no = Block(), Block()
    inside, outside = Builder(yes, emit.location), Builder(no, emit.location)
    inside.place(loop.Yield([inside(loop.Load(pointer, place, dtype))]))
    outside.place(loop.Yield([number(outside, 0, dtype)]))
    (value,) = emit.all(loop.If(within, yes, no))
    return value


def _rest(emit: Builder, number: Value, size: int) -> Value:
    """The remainder by a power of two."""
    return emit(scalar.And(number, index(emit, size - 1)))


def plus(emit: Builder, one: Value, other: int | Value) -> Value:
    """The sum of two indices."""
    return emit(scalar.Add(one, other if isinstance(other, Value) else index(emit, other)))


def multiple(emit: Builder, one: Value, factor: int) -> Value:
    """So many times an index."""
    return emit(scalar.Multiply(one, index(emit, factor)))
