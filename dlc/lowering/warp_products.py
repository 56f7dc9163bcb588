"""How the threads of a block multiply two panels: by matrix instructions, or a product at a time.

Warps share a tile of the result out in a grid; each has `rows` x `columns` of it. Sums stay in registers.
When they are finished, they leave them in *groups* of 16 rows, as `Piece`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import scalar, simt
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import F32
from dlc.lowering.loop_words import for_each, index, unravel
from dlc.lowering.product_panels import Panel
from dlc.lowering.product_sources import Source
from dlc.lowering.shared_lines import Order, fragment, multiple, plus
from dlc.lowering.simt_writer import GridWriter

GROUP = 16
"""Rows of a group."""
DOWN, ACROSS = 4, 8
"""Threads of a warp that multiplies by `fma`, along rows and along columns."""


@dataclass(frozen=True, slots=True)
class Form:
    """A tile of the result, the grid of warps that compute it, and strips in shared memory at a time.

    A core of the processor is to hold so many `blocks`.
    """

    rows: int
    columns: int
    down: int
    across: int
    stages: int
    blocks: int = 1

    @property
    def threads(self) -> int:
        return self.down * self.across * WARP

    @property
    def warp_rows(self) -> int:
        return self.rows // self.down

    @property
    def warp_columns(self) -> int:
        return self.columns // self.across


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring sums of a thread: their row in the group, and the first column of the warp's."""

    row: Value
    column: Value
    sums: Sequence[Value]


class WarpProduct:
    """What a warp does with its part of the panels."""

    def __init__(self, form: Form, writer: GridWriter, lhs: Panel, rhs: Panel) -> None:
        self.form = form
        self.lhs, self.rhs = lhs, rhs
        emit = writer.emit
        warp, self.lane = unravel(emit, writer.thread, [index(emit, WARP)] * 2)
        self.down, self.across = unravel(emit, warp, [index(emit, form.across)] * 2)
        self.row = emit(scalar.Multiply(self.down, index(emit, form.warp_rows)))
        self.column = emit(scalar.Multiply(self.across, index(emit, form.warp_columns)))

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        """How the units of a panel are to be ordered, of lhs (`of_rows`) or of rhs."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Sums of a thread."""
        return self.form.warp_rows * self.form.warp_columns // WARP

    def multiply(
        self, emit: Builder, rooms: Sequence[Value], sums: Sequence[Value]
    ) -> Sequence[Value]:
        """The sums, with the products of the strips that are in these rooms added."""
        raise NotImplementedError

    def pieces(self, emit: Builder, group: int, sums: Sequence[Value]) -> list[Piece]:
        """The thread's sums in a group of rows."""
        raise NotImplementedError


class MatrixProduct(WarpProduct):
    """By `simt.multiply_add`: 16 x 8 sums at a time, and 32 bytes along k."""

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        by_numbers = source.dtype is F32 and not source.along_k
        return Order.BY_NUMBERS if by_numbers else Order.BY_UNITS

    def multiply(
        self, emit: Builder, rooms: Sequence[Value], sums: Sequence[Value]
    ) -> Sequence[Value]:
        found = list(sums)
        for step in range(2):
            left, right = (
                [
                    fragment(
                        emit,
                        panel.lines,
                        room,
                        self.lane,
                        base,
                        (first, step),
                        along_k=panel.source.along_k,
                        of_rows=panel is self.lhs,
                    )
                    for first in range(0, length, 16)
                ]
                for panel, room, base, length in (
                    (self.lhs, rooms[0], self.row, self.form.warp_rows),
                    (self.rhs, rooms[1], self.column, self.form.warp_columns),
                )
            )
            pairs = [(rows, two[k : k + 2]) for rows in left for two in right for k in (0, 2)]
            for number, (rows, columns) in enumerate(pairs):
                place = slice(4 * number, 4 * number + 4)
                found[place] = emit.all(simt.MultiplyAdd(rows, columns, found[place]))
        return found

    def pieces(self, emit: Builder, group: int, sums: Sequence[Value]) -> list[Piece]:
        row, part = unravel(emit, self.lane, [index(emit, 4)] * 2)
        eighths = self.form.warp_columns // 8
        found: list[Piece] = []
        for number in range(eighths):
            column = plus(emit, multiple(emit, part, 2), 8 * number)
            first = 4 * (group * eighths + number)
            for half in range(2):
                two = sums[first + 2 * half : first + 2 * half + 2]
                found.append(Piece(plus(emit, row, 8 * half), column, two))
        return found


class ScalarProduct(WarpProduct):
    """By `fma` in f32: a thread adds in order of k.

    The threads of a warp are 4 down and 8 across. A thread has every fourth row of the warp's and every
    eighth column, or four neighbouring ones where those are read at once.
    """

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        # Eight threads have the same rows; only columns that lie along k are as many lines.
        return Order.BY_UNITS if source.along_k and not of_rows else Order.PLAIN

    def multiply(
        self, emit: Builder, rooms: Sequence[Value], sums: Sequence[Value]
    ) -> Sequence[Value]:
        def unit(deep: Builder, number: Value, carried: list[Value]) -> Sequence[Value]:
            for half in range(2):
                rows = self._factors(deep, self.lhs, rooms[0], self.row, number, half)
                columns = self._factors(deep, self.rhs, rooms[1], self.column, number, half)
                for left, right in zip(rows, columns, strict=True):
                    pairs = [(row, column) for row in left for column in right]
                    carried = [
                        deep(scalar.Fma(*pair, sum))
                        for pair, sum in zip(pairs, carried, strict=True)
                    ]
            return carried

        units = index(emit, self.lhs.depth // self.lhs.lines.each)
        return for_each(emit, index(emit, 0), units, 1, sums, unit)

    @property
    def _each(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        return self.form.warp_rows // DOWN, self.form.warp_columns // ACROSS

    def _own(self, emit: Builder) -> list[Value]:
        """The thread's number along the rows, and along the columns."""
        return unravel(emit, self.lane, [index(emit, ACROSS)] * 2)

    def _factors(
        self,
        emit: Builder,
        panel: Panel,
        room: Value,
        base: Value,
        number: Value,
        half: int,
    ) -> list[list[Value]]:
        """The thread's numbers of a panel, for each of two steps along k: half of a unit."""
        axis = 0 if panel is self.lhs else 1
        own, each, across = self._own(emit)[axis], self._each[axis], (DOWN, ACROSS)[axis]
        if panel.source.along_k:
            found: list[tuple[Value, ...]] = []
            for part in range(each):
                low = plus(emit, own, across * part % 8)
                line = plus(emit, plus(emit, base, own), across * part)
                place = plus(emit, panel.lines.place(emit, line, number, low), 2 * half)
                found.append(emit.all(simt.Load(room, place, F32, 2)))
            return [list(step) for step in zip(*found, strict=True)]
        units = emit(scalar.RawDivide(base, index(emit, 4)))
        steps: list[list[Value]] = []
        for k in range(2 * half, 2 * half + 2):
            line = plus(emit, multiple(emit, number, 4), k)
            numbers: list[Value] = []
            for part in range(each // 4):
                unit = plus(emit, plus(emit, units, own), across * part)
                place = panel.lines.place(emit, line, unit, line)
                numbers += emit.all(simt.Load(room, place, F32, 4))
            steps.append(numbers)
        return steps

    def pieces(self, emit: Builder, group: int, sums: Sequence[Value]) -> list[Piece]:
        (y, x), (_, each) = self._own(emit), self._each
        found: list[Piece] = []
        for part in range(4):
            row = (
                plus(emit, y, 4 * part)
                if self.lhs.source.along_k
                else plus(emit, multiple(emit, y, 4), part)
            )
            first = each * (4 * group + part)
            own = sums[first : first + each]
            if self.rhs.source.along_k:
                found += [Piece(row, plus(emit, x, 8 * k), [sum]) for k, sum in enumerate(own)]
            else:
                start = multiple(emit, x, 4)
                found += [
                    Piece(row, plus(emit, start, 32 * half), own[4 * half : 4 * half + 4])
                    for half in range(each // 4)
                ]
        return found
