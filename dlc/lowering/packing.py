"""Putting parts of matrices in order for the micro-kernel, in memory of the thread's own.

A *strip* is `strip[k][width]`: for each k so many neighbouring rows of the left operand, or columns of the
right one, side by side. A panel is a strip of columns. Where the matrix has them side by side, too, they
are copied a register at a time, all strips of a line together, since lines are often pages apart. Where it
has the k side by side, squares of registers are transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import loop, scalar, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import DType, VectorType
from dlc.lowering.loop_words import for_each, index, minimum, times, whole_registers

AHEAD = 16
"""Lines that are asked for before they are copied: a processor does not look ahead from page to page."""


@dataclass(frozen=True, slots=True)
class Source:
    """A matrix in memory: its lines so many elements apart (None is 1), elements of a line side by side.

    With `along` a line holds neighbours for one k; else it holds all k of one row or column, and they are
    neighbours from line to line. There are `count` of them in all. `pointer` is at k = 0.
    """

    pointer: Value
    stride: Value | None
    along: bool
    count: Value
    dtype: DType
    lanes: int

    def line(self, emit: Builder, number: Value) -> Value:
        """Where a line begins."""
        return emit(loop.Offset(self.pointer, times(emit, number, self.stride), self.dtype))


@dataclass(frozen=True, slots=True)
class Strips:
    """Where the strips go: the first one, the elements in a row of one, and those from one to the next."""

    room: Value
    width: int
    apart: Value


def pack(
    emit: Builder, source: Source, strips: Strips, first: Value, last: Value, depth: Value
) -> None:
    """Write the strips of the rows or columns from `first` up to `last`, for `depth` values of k.

    Beyond the end of the matrix its last row or column is taken again.
    """
    _Packing(source, strips, first, depth).write(emit, last)


@dataclass(frozen=True, slots=True)
class _Packing:
    source: Source
    strips: Strips
    first: Value
    depth: Value

    def write(self, emit: Builder, last: Value) -> None:
        zero, width = index(emit, 0), index(emit, self.strips.width)
        length = emit(scalar.Subtract(last, self.first))
        rounded = emit(scalar.Add(length, index(emit, self.strips.width - 1)))
        count = emit(scalar.RawDivide(rounded, width))
        if not self.source.along:
            self._each(emit, zero, count, self._turn)
            return
        inside = emit(scalar.Subtract(minimum(emit, last, self.source.count), self.first))
        whole = emit(scalar.RawDivide(inside, width))
        self._by_lines(emit, whole)
        self._each(emit, whole, count, self._one_by_one)

    def _each(
        self,
        emit: Builder,
        lower: Value,
        upper: Value,
        write: Callable[[Builder, Value, Value], None],
    ) -> None:
        """`write` for some strips, given the first row or column of each, and where the strip is."""

        def strip(inside: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            moved = inside(scalar.Multiply(number, index(inside, self.strips.width)))
            start = inside(scalar.Multiply(number, self.strips.apart))
            room = inside(loop.Offset(self.strips.room, start, self.source.dtype))
            write(inside, inside(scalar.Add(self.first, moved)), room)
            return ()

        for_each(emit, lower, upper, 1, (), strip)

    def _down(self, emit: Builder, k: Value) -> Value:
        """Where the row k of a strip begins."""
        return emit(scalar.Multiply(k, index(emit, self.strips.width)))

    # Neighbours side by side.

    def _by_lines(self, emit: Builder, count: Value) -> None:
        """All of the first strips, line after line."""

        def line(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            start, down = self.source.line(inside, k), self._down(inside, k)
            later = self.source.line(inside, inside(scalar.Add(k, index(inside, AHEAD))))

            def row(deep: Builder, first: Value, room: Value) -> None:
                deep.place(loop.Prefetch(later, first, self.source.dtype))
                here = deep(loop.Offset(start, first, self.source.dtype))
                there = deep(loop.Offset(room, down, self.source.dtype))
                for place, lanes in _pieces(self.strips.width, self.source.lanes):
                    at = index(deep, place)
                    if lanes == 1:
                        element = deep(loop.Load(here, at, self.source.dtype))
                        deep.place(loop.Store(element, there, at))
                    else:
                        register = VectorType(self.source.dtype, lanes)
                        deep.place(vec.Store(deep(vec.Load(here, at, register)), there, at))

            self._each(inside, index(inside, 0), count, row)
            return ()

        for_each(emit, index(emit, 0), self.depth, 1, (), line)

    def _one_by_one(self, emit: Builder, first: Value, room: Value) -> None:
        """A strip of which the matrix has a part only."""
        places = self._places(emit, first)

        def line(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            start, down = self.source.line(inside, k), self._down(inside, k)
            for number, place in enumerate(places):
                element = inside(loop.Load(start, place, self.source.dtype))
                to = inside(scalar.Add(down, index(inside, number)))
                inside.place(loop.Store(element, room, to))
            return ()

        for_each(emit, index(emit, 0), self.depth, 1, (), line)

    def _places(self, emit: Builder, first: Value) -> list[Value]:
        """The rows or columns of a strip: the last one again beyond the end."""
        last = emit(scalar.Subtract(self.source.count, index(emit, 1)))
        steps = [index(emit, number) for number in range(self.strips.width)]
        return [minimum(emit, emit(scalar.Add(first, step)), last) for step in steps]

    # All k side by side.

    def _turn(self, emit: Builder, first: Value, room: Value) -> None:
        """A strip whose rows or columns are lines: squares of registers, and what is left one by one."""
        source, width = self.source, self.strips.width
        lines = [source.line(emit, place) for place in self._places(emit, first)]
        lanes = source.lanes if width % source.lanes == 0 else 1
        register = VectorType(source.dtype, lanes)

        def square(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            for start in range(0, width, lanes):
                given = [
                    inside(vec.Load(line, k, register)) for line in lines[start : start + lanes]
                ]
                for number, value in enumerate(_transposed(inside, given)):
                    down = self._down(inside, inside(scalar.Add(k, index(inside, number))))
                    to = inside(scalar.Add(down, index(inside, start)))
                    inside.place(vec.Store(value, room, to))
            return ()

        def single(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            down = self._down(inside, k)
            for number, line in enumerate(lines):
                element = inside(loop.Load(line, k, source.dtype))
                to = inside(scalar.Add(down, index(inside, number)))
                inside.place(loop.Store(element, room, to))
            return ()

        start = index(emit, 0)
        if lanes > 1:
            whole = whole_registers(emit, start, self.depth, lanes)
            for_each(emit, start, whole, lanes, (), square)
            start = whole
        for_each(emit, start, self.depth, 1, (), single)


def _pieces(width: int, lanes: int) -> list[tuple[int, int]]:
    """Registers that cover so many elements: where each begins, and its lanes."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < width:
        while lanes > width - start:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found


def _transposed(emit: Builder, rows: Sequence[Value]) -> list[Value]:
    """A square of as many registers as each has lanes, transposed.

    In each round blocks of half the size change corners: the second half of the lanes of one register
    with the first half of those of another.
    """
    found, lanes = list(rows), len(rows)
    half = lanes // 2
    while half:
        for first in range(lanes):
            if first & half:
                continue
            one, other = found[first], found[first + half]
            low = [k if not k & half else lanes + k - half for k in range(lanes)]
            high = [k + half if not k & half else lanes + k for k in range(lanes)]
            found[first] = emit(vec.Shuffle(one, other, tuple(low)))
            found[first + half] = emit(vec.Shuffle(one, other, tuple(high)))
        half //= 2
    return found
