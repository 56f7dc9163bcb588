"""Packing while a product runs, into micro-panels, as in GotoBLAS (Goto & van de Geijn 2008) and BLIS.

A *micro-panel* is `panel[k][width]`: for each k, `width` neighbouring rows of the left operand (MR), or
columns of the right one (NR). Where these are contiguous in the matrix, too, they are copied a register at
a time, for all micro-panels of a line together, since lines are often pages apart. Where k is contiguous,
squares of registers are transposed. 16-bit elements are widened on the way,
or two lines become one of pairs.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.dialects import vec
from dlc.dialects.expr import Expr, Index, Pointer, index, minimum
from dlc.ir.types import U16, DType
from dlc.lowering.kernel_code.words import for_each, whole_registers

AHEAD = 16
"""Lines by which prefetches run ahead: hardware prefetchers stop at the end of a page."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A stored matrix of contiguous lines that are `stride` elements apart; `pointer` is at k = 0.

    With `side_contiguous` a line holds the rows (or columns) for one k; else it holds all k of one row (or
    column). There are `count` rows (or columns) in all.
    """

    pointer: Pointer
    stride: Index
    side_contiguous: bool
    count: Expr
    lanes: int
    pairs: bool = False
    """Whether a step of k is two lines: a packed element is two of 16 bits, the first one low."""

    def line(self, number: Expr) -> Pointer:
        """The address of a line."""
        return self.pointer + number * self.stride

    def step(self, k: Expr) -> _Step:
        """The lines of a step of k."""
        if not self.pairs:
            return _Step((self.line(k),))
        return _Step((self.line(k * 2).of(U16), self.line(k * 2 + 1).of(U16)))


@dataclass(frozen=True, slots=True)
class _Step:
    """The line of a step of k, or the two lines of a pair."""

    lines: tuple[Pointer, ...]

    def __add__(self, first: Expr) -> _Step:
        return _Step(tuple([line + first for line in self.lines]))

    def prefetch(self, first: Expr) -> None:
        """Prefetch what begins at a row or column."""
        for line in self.lines:
            line.prefetch(first)

    def load(self, position: Index, lanes: int, dtype: DType) -> Expr:
        """The elements of some rows or columns, in the dtype of the panel."""
        low, *high = [line.load(position, lanes).cast(dtype) for line in self.lines]
        return low | (high[0] << 16) if high else low


@dataclass(frozen=True, slots=True)
class MicroPanels:
    """The packed block: its buffer, the width of a micro-panel, and the elements from one to the next."""

    buffer: Pointer
    width: int
    stride: Expr


def pack(matrix: Matrix, panels: MicroPanels, first: Expr, last: Expr, depth: Expr) -> None:
    """Pack the rows or columns from `first` up to `last`, for `depth` steps of k.

    Beyond the end of the matrix its last row or column is repeated.
    """
    _Packing(matrix, panels, first, depth).write(last)


@dataclass(frozen=True, slots=True)
class _Packing:
    matrix: Matrix
    panels: MicroPanels
    first: Expr
    depth: Expr

    def write(self, last: Expr) -> None:
        width = self.panels.width
        count = (last - self.first + (width - 1)) // width
        if not self.matrix.side_contiguous:
            with self._each(0, count) as (first, panel):
                self._transpose(first, panel)
            return
        whole = (minimum(last, self.matrix.count) - self.first) // width
        self._copy_lines(whole)
        with self._each(whole, count) as (first, panel):
            self._copy_edge(first, panel)

    @contextmanager
    def _each(self, lower: Index, upper: Expr) -> Generator[tuple[Expr, Pointer]]:
        """A loop over micro-panels: the first row or column of each, and its address."""
        with for_each(self.depth.emit, lower, upper) as number:
            offset = number * self.panels.width
            panel = self.panels.buffer + number * self.panels.stride
            yield self.first + offset, panel

    # Rows or columns are contiguous.

    def _copy_lines(self, count: Expr) -> None:
        """The micro-panels that the matrix fills, line after line."""
        with for_each(self.depth.emit, 0, self.depth) as k:
            step, down = self.matrix.step(k), k * self.panels.width
            ahead = self.matrix.step(k + AHEAD)
            with self._each(0, count) as (first, panel):
                ahead.prefetch(first)
                source, target = step + first, panel + down
                for position, lanes in _register_runs(self.panels.width, self.matrix.lanes):
                    target.store(position, source.load(position, lanes, target.dtype))

    def _copy_edge(self, first: Expr, panel: Pointer) -> None:
        """A micro-panel at the edge, which the matrix fills in part."""
        positions = self._positions(first)
        with for_each(self.depth.emit, 0, self.depth) as k:
            step, down = self.matrix.step(k), k * self.panels.width
            for column, position in enumerate(positions):
                panel[down + column] = step.load(position, 1, panel.dtype)

    def _positions(self, first: Expr) -> list[Expr]:
        """The rows or columns of a micro-panel: the last one again beyond the end."""
        last = self.matrix.count - 1
        return [minimum(first + number, last) for number in range(self.panels.width)]

    # k is contiguous.

    def _transpose(self, first: Expr, panel: Pointer) -> None:
        """A micro-panel whose rows or columns are lines: squares of registers, then single elements."""
        emit, width = self.depth.emit, self.panels.width
        lines = [self.matrix.line(position) for position in self._positions(first)]
        lanes = self.matrix.lanes if width % self.matrix.lanes == 0 else 1
        whole: Index = 0
        if lanes > 1:
            whole = whole_registers(index(emit, 0), self.depth, lanes)
            with for_each(emit, 0, whole, lanes) as k:
                for start in range(0, width, lanes):
                    side = lines[start : start + lanes]
                    square = [line.load(k, lanes).cast(panel.dtype) for line in side]
                    for number, register in enumerate(_transposed(square)):
                        panel.store((k + number) * width + start, register)
        with for_each(emit, whole, self.depth) as k:
            down = k * width
            for number, line in enumerate(lines):
                element = line[k].cast(panel.dtype)
                panel[down + number] = element


def _register_runs(width: int, lanes: int) -> list[tuple[int, int]]:
    """Registers that cover `width` elements: the first element of each, and its lanes."""
    runs: list[tuple[int, int]] = []
    start = 0
    while start < width:
        while lanes > width - start:
            lanes //= 2
        runs.append((start, lanes))
        start += lanes
    return runs


def _transposed(rows: Sequence[Expr]) -> list[Expr]:
    """The transpose of a square: as many registers as each has lanes.

    In each round, halves of registers change places: the second half of one with the first half of another,
    in blocks half as large as in the round before.
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
