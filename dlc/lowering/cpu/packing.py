"""Putting parts of matrices in order for the micro-kernel, in memory of the thread's own.

A *strip* is `strip[k][width]`: for each k so many neighbouring rows of the left operand, or columns of the
right one, side by side. A panel is a strip of columns. Where the matrix has them side by side, too, they
are copied a register at a time, all strips of a line together, since lines are often pages apart. Where it
has the k side by side, squares of registers are transposed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.dialects import vec
from dlc.dialects.expr import Expr, Index, Pointer, index, minimum
from dlc.lowering.kernel_code.words import for_each, whole_registers

AHEAD = 16
"""Lines that are asked for before they are copied: a processor does not look ahead from page to page."""


@dataclass(frozen=True, slots=True)
class Source:
    """A matrix in memory: its lines `stride` elements apart, elements of a line side by side.

    With `along` a line holds neighbours for one k; else it holds all k of one row or column, and they are
    neighbours from line to line. There are `count` of them in all. `pointer` is at k = 0.
    """

    pointer: Pointer
    stride: Index
    along: bool
    count: Expr
    lanes: int

    def line(self, number: Expr) -> Pointer:
        """Where a line begins."""
        return self.pointer + number * self.stride


@dataclass(frozen=True, slots=True)
class Strips:
    """Where the strips go: the first one, the elements in a row of one, and those from one to the next."""

    buffer: Pointer
    width: int
    stride: Expr


def pack(source: Source, strips: Strips, first: Expr, last: Expr, depth: Expr) -> None:
    """Write the strips of the rows or columns from `first` up to `last`, for `depth` values of k.

    Beyond the end of the matrix its last row or column is taken again.
    """
    _Packing(source, strips, first, depth).write(last)


@dataclass(frozen=True, slots=True)
class _Packing:
    source: Source
    strips: Strips
    first: Expr
    depth: Expr

    def write(self, last: Expr) -> None:
        width = self.strips.width
        count = (last - self.first + (width - 1)) // width
        if not self.source.along:
            with self._each(0, count) as (first, strip):
                self._transpose(first, strip)
            return
        whole = (minimum(last, self.source.count) - self.first) // width
        self._by_lines(whole)
        with self._each(whole, count) as (first, strip):
            self._one_by_one(first, strip)

    @contextmanager
    def _each(self, lower: Index, upper: Expr) -> Generator[tuple[Expr, Pointer]]:
        """A loop over some strips: the first row or column of each, and where the strip is."""
        with for_each(self.depth.emit, lower, upper) as number:
            moved = number * self.strips.width
            strip = self.strips.buffer + number * self.strips.stride
            yield self.first + moved, strip

    # Neighbours side by side.

    def _by_lines(self, count: Expr) -> None:
        """All of the first strips, line after line."""
        with for_each(self.depth.emit, 0, self.depth) as k:
            line, down = self.source.line(k), k * self.strips.width
            later = self.source.line(k + AHEAD)
            with self._each(0, count) as (first, strip):
                later.prefetch(first)
                source, target = line + first, strip + down
                for place, lanes in _pieces(self.strips.width, self.source.lanes):
                    target.store(place, source.load(place, lanes))

    def _one_by_one(self, first: Expr, strip: Pointer) -> None:
        """A strip of which the matrix has a part only."""
        places = self._places(first)
        with for_each(self.depth.emit, 0, self.depth) as k:
            line, down = self.source.line(k), k * self.strips.width
            for number, place in enumerate(places):
                element = line[place]
                strip[down + number] = element

    def _places(self, first: Expr) -> list[Expr]:
        """The rows or columns of a strip: the last one again beyond the end."""
        last = self.source.count - 1
        return [minimum(first + number, last) for number in range(self.strips.width)]

    # All k side by side.

    def _transpose(self, first: Expr, strip: Pointer) -> None:
        """A strip whose rows or columns are lines: squares of registers, and what is left one by one."""
        emit, width = self.depth.emit, self.strips.width
        lines = [self.source.line(place) for place in self._places(first)]
        lanes = self.source.lanes if width % self.source.lanes == 0 else 1
        whole: Index = 0
        if lanes > 1:
            whole = whole_registers(index(emit, 0), self.depth, lanes)
            with for_each(emit, 0, whole, lanes) as k:
                for start in range(0, width, lanes):
                    square = [line.load(k, lanes) for line in lines[start : start + lanes]]
                    for number, register in enumerate(_transposed(square)):
                        strip.store((k + number) * width + start, register)
        with for_each(emit, whole, self.depth) as k:
            down = k * width
            for number, line in enumerate(lines):
                element = line[k]
                strip[down + number] = element


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


def _transposed(rows: Sequence[Expr]) -> list[Expr]:
    """A square of as many registers as each has lanes, transposed.

    In each round blocks of half the size change corners: the second half of the lanes of one register
    with the first half of those of another.
    """
    square, lanes = list(rows), len(rows)
    half = lanes // 2
    while half:
        low = [k if not k & half else lanes + k - half for k in range(lanes)]
        high = [k + half if not k & half else lanes + k for k in range(lanes)]
        for first in range(lanes):
            if first & half:
                continue
            one, other = square[first], square[first + half]
            square[first] = _shuffle(one, other, low)
            square[first + half] = _shuffle(one, other, high)
        half //= 2
    return square


def _shuffle(one: Expr, other: Expr, lanes: Sequence[int]) -> Expr:
    return one.apply(vec.Shuffle(one.value, other.value, tuple(lanes)))
