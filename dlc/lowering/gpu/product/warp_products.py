"""How the threads of a block multiply two panels: by matrix instructions, or a product at a time.

Warps share a tile of the result out in a grid; each has `rows` x `columns` of it. Sums stay in registers.
When they are finished, they leave them in *groups* of 16 rows, as `Piece`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Expr, Pointer, fma
from dlc.dialects.simt import WARP
from dlc.ir.types import F32
from dlc.lowering.gpu.product.k_tiles import Panel
from dlc.lowering.gpu.product.operands import Source
from dlc.lowering.gpu.product.shared_layout import Order, fragment
from dlc.lowering.gpu.writer import GridWriter, load_several, multiply_add
from dlc.lowering.kernel_code.words import iterate, unravel

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

    row: Expr
    column: Expr
    sums: Sequence[Expr]


class WarpProduct:
    """What a warp does with its part of the panels."""

    def __init__(self, form: Form, writer: GridWriter, lhs: Panel, rhs: Panel) -> None:
        self.form = form
        self.lhs, self.rhs = lhs, rhs
        self.writer = writer
        warp, self.lane = unravel(writer.thread, [WARP] * 2)
        self.down, self.across = unravel(warp, [form.across] * 2)
        self.row = self.down * form.warp_rows
        self.column = self.across * form.warp_columns

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        """How the units of a panel are to be ordered, of lhs (`of_rows`) or of rhs."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Sums of a thread."""
        return self.form.warp_rows * self.form.warp_columns // WARP

    def multiply(self, lhs: Pointer, rhs: Pointer, sums: Sequence[Expr]) -> list[Expr]:
        """The sums, with the product of the strips that are in these buffers added."""
        raise NotImplementedError

    def pieces(self, group: int, sums: Sequence[Expr]) -> list[Piece]:
        """The thread's sums in a group of rows."""
        raise NotImplementedError


class MatrixProduct(WarpProduct):
    """By `simt.mma`: 16 x 8 sums at a time, and 32 bytes along k."""

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        by_numbers = source.dtype is F32 and not source.along_k
        return Order.BY_NUMBERS if by_numbers else Order.BY_UNITS

    def multiply(self, lhs: Pointer, rhs: Pointer, sums: Sequence[Expr]) -> list[Expr]:
        sums = list(sums)
        for step in range(2):
            left = self._fragments(self.lhs, lhs, self.row, self.form.warp_rows, step)
            right = self._fragments(self.rhs, rhs, self.column, self.form.warp_columns, step)
            pairs = [(rows, two[k : k + 2]) for rows in left for two in right for k in (0, 2)]
            for number, (rows, columns) in enumerate(pairs):
                tile = slice(4 * number, 4 * number + 4)
                sums[tile] = multiply_add(rows, columns, sums[tile])
        return sums

    def _fragments(
        self, panel: Panel, buffer: Pointer, base: Expr, length: int, step: int
    ) -> list[list[Expr]]:
        """What a step along k multiplies of a panel: a fragment for each 16 of the warp's side."""
        along_k, of_rows = panel.source.along_k, panel is self.lhs
        return [
            fragment(
                panel.lines,
                buffer,
                self.lane,
                base,
                (first, step),
                along_k=along_k,
                of_rows=of_rows,
            )
            for first in range(0, length, 16)
        ]

    def pieces(self, group: int, sums: Sequence[Expr]) -> list[Piece]:
        row, part = unravel(self.lane, [4] * 2)
        eighths = self.form.warp_columns // 8
        pieces: list[Piece] = []
        for number in range(eighths):
            column = part * 2 + 8 * number
            first = 4 * (group * eighths + number)
            for half in range(2):
                two = sums[first + 2 * half : first + 2 * half + 2]
                pieces.append(Piece(row + 8 * half, column, two))
        return pieces


class ScalarProduct(WarpProduct):
    """By `fma` in f32: a thread adds in order of k.

    The threads of a warp are 4 down and 8 across. A thread has every fourth row of the warp's and every
    eighth column, or four neighbouring ones where those are read at once.
    """

    @staticmethod
    def order(source: Source, *, of_rows: bool) -> Order:
        # Eight threads have the same rows; only columns that lie along k are as many lines.
        return Order.BY_UNITS if source.along_k and not of_rows else Order.PLAIN

    def multiply(self, lhs: Pointer, rhs: Pointer, sums: Sequence[Expr]) -> list[Expr]:
        def unit(number: Expr, sums: list[Expr]) -> list[Expr]:
            for half in range(2):
                rows = self._factors(self.lhs, lhs, self.row, number, half)
                columns = self._factors(self.rhs, rhs, self.column, number, half)
                for left, right in zip(rows, columns, strict=True):
                    pairs = [(row, column) for row in left for column in right]
                    sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, self.lhs.depth // self.lhs.lines.each, sums, unit)

    @property
    def _each(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        return self.form.warp_rows // DOWN, self.form.warp_columns // ACROSS

    def _own(self) -> list[Expr]:
        """The thread's number along the rows, and along the columns."""
        return unravel(self.lane, [ACROSS] * 2)

    def _factors(
        self, panel: Panel, buffer: Pointer, base: Expr, unit: Expr, half: int
    ) -> list[list[Expr]]:
        """The thread's numbers of a panel, for each of two steps along k: half of a unit."""
        axis = 0 if panel is self.lhs else 1
        own, each, threads = self._own()[axis], self._each[axis], (DOWN, ACROSS)[axis]
        if panel.source.along_k:
            rows = [
                load_several(buffer, self._in_line(panel, base, own, threads * part, unit, half), 2)
                for part in range(each)
            ]
            return [list(step) for step in zip(*rows, strict=True)]
        units = base // 4
        steps: list[list[Expr]] = []
        for k in (2 * half, 2 * half + 1):
            line = unit * 4 + k
            places = (
                panel.lines.place(line, units + own + threads * part, line)
                for part in range(each // 4)
            )
            steps.append([number for place in places for number in load_several(buffer, place, 4)])
        return steps

    def _in_line(
        self, panel: Panel, base: Expr, own: Expr, beyond: int, unit: Expr, half: int
    ) -> Expr:
        """Where half of a unit is in one of the lines of the thread, which are along k."""
        low = own + beyond % 8
        return panel.lines.place(base + own + beyond, unit, low) + 2 * half

    def pieces(self, group: int, sums: Sequence[Expr]) -> list[Piece]:
        (y, x), (_, each) = self._own(), self._each
        pieces: list[Piece] = []
        for part in range(4):
            row = y + 4 * part if self.lhs.source.along_k else y * 4 + part
            first = each * (4 * group + part)
            own = sums[first : first + each]
            if self.rhs.source.along_k:
                pieces += [Piece(row, x + 8 * k, [sum]) for k, sum in enumerate(own)]
            else:
                pieces += [
                    Piece(row, x * 4 + 32 * k, own[4 * k : 4 * k + 4]) for k in range(each // 4)
                ]
        return pieces
