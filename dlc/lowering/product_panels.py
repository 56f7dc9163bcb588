"""Strips of a product's operands in shared memory, and how they come there.

A *panel* has lines of units of 16 bytes, as they lie in memory: of each row of the operand some elements
along k, or for each k the elements along the side. Where threads read units of several lines at once, they
are in another order in each line, so that all are in different banks: the unit's number is XORed with some
bits of the line's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from dlc.dialects import loop, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.types import DType
from dlc.lowering.formula import number
from dlc.lowering.loop_words import for_each, index, unravel
from dlc.lowering.product_sources import UNIT, Source, State
from dlc.lowering.simt_writer import GridWriter

STRIP = 64
"""Bytes of a strip along k."""
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


class Panel:
    """Room for `stages` strips of an operand, of which `side` rows or columns are a tile's."""

    def __init__(self, writer: GridWriter, source: Source, side: int, order: Order) -> None:
        self.writer = writer
        self.source = source
        self.dtype = source.dtype
        self.each = UNIT // self.dtype.bytes
        """Elements of a unit."""
        self.depth = STRIP // self.dtype.bytes
        along = STRIP // UNIT, side // self.each
        self.lines, self.units = (side, along[0]) if source.along_k else (self.depth, along[1])
        self.bytes = self.lines * self.units * UNIT
        self.order = order

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

    def bring(self, emit: Builder, room: Value, first: Value, state: State) -> None:
        """Start to bring a strip, with zeros beyond the ends; `first` is the tile's row or column."""
        size = self.each if self.source.whole else 1
        count = self.lines * self.units * self.each // size

        def piece(deep: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            self._bring_piece(deep, room, first, state, number, size)
            return ()

        thread, threads = self.writer.thread, self.writer.threads
        if count > MOST_WRITTEN * threads:
            for_each(emit, thread, index(emit, count), threads, (), piece)
            return
        for part in range(count // threads):
            piece(emit, emit(scalar.Add(thread, index(emit, part * threads))), [])

    def _bring_piece(
        self, emit: Builder, room: Value, first: Value, state: State, number: Value, size: int
    ) -> None:
        """Start to bring one of the panel's pieces of so many elements."""
        across = index(emit, self.units * self.each // size)
        line, piece = unravel(emit, number, [across] * 2)
        along = emit(scalar.Multiply(piece, index(emit, size)))
        side, k = (line, along) if self.source.along_k else (along, line)
        side = emit(scalar.Add(first, side))
        place, within = self.source.place(emit, state, side, k)
        self._copy(emit, place, room, self._there(emit, line, along), within, size)

    def _there(self, emit: Builder, line: Value, along: Value) -> Value:
        """Where in the panel an element of a line is."""
        unit, rest = unravel(emit, along, [index(emit, self.each)] * 2)
        return emit(scalar.Add(self.place(emit, line, unit, line), rest))

    def _copy(
        self, emit: Builder, place: Value, room: Value, there: Value, within: Value, count: int
    ) -> None:
        pointer, dtype = self.source.pointer, self.dtype
        if count * dtype.bytes >= 4:
            emit.place(simt.Copy(pointer, place, room, there, within, dtype, count))
            return
        value = if_within(emit, within, pointer, place, dtype)
        emit.place(loop.Store(value, room, there))


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
