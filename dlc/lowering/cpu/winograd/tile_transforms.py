"""Transforms of the tiles of pictures between memory and registers, for Winograd's forms.

A tile is loaded register by register of its channels, all of its pixels at once, and multiplied from both
sides by a constant matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects.expr import Expr, Index, Pointer, all_of, select_pointer
from dlc.ir.dims import Size
from dlc.ir.types import U64
from dlc.lowering.kernel_code.linear_map import Matrix, linear_map
from dlc.lowering.kernel_code.words import either, for_each
from dlc.lowering.kernel_code.writer import Writer

Write: TypeAlias = Callable[[Expr, list[Expr]], None]
"""Takes the first channel of a register, and the places of a transformed tile, row by row."""


def both_sides(matrix: Matrix, tile: Sequence[Sequence[Expr]], *, fused: bool) -> list[Expr]:
    """matrix · tile · matrixᵀ, row by row."""
    columns = [linear_map(matrix, column, fused=fused) for column in zip(*tile, strict=True)]
    rows = zip(*columns, strict=True)
    return [element for row in rows for element in linear_map(matrix, row, fused=fused)]


@dataclass(frozen=True, slots=True)
class _Line:
    """A row or column of a picture: the offset of its first element, and whether it is in the picture."""

    offset: Expr
    inside: Expr


@dataclass(frozen=True, slots=True)
class PictureTiles:
    """The tiles of the pictures `[batch, height, width, channels]` in a view, which are 0 outside.

    A tile has as many rows and columns as `matrix` has columns, and its corner is `lows` before a position.
    `blank` points at a zero for each channel of a transform.
    """

    writer: Writer
    view: int
    lows: Sequence[Size]
    blank: Pointer
    matrix: Matrix
    lanes: int
    fused: bool

    def transform(
        self, picture: Expr, position: Sequence[Expr], first: Index, count: Index, write: Write
    ) -> None:
        """Transform `count` channels, from `first` on, of the tile of a picture at a position.

        `write` is told the channel as counted from `first`.
        """
        source = self.writer.part(self.view, [picture]) + first
        rows, columns = (self._lines(axis, at) for axis, at in enumerate(position))
        pixels = [[source + (row.offset + column.offset) for column in columns] for row in rows]

        def at_border() -> None:
            chosen = [
                [
                    select_pointer(row.inside & column.inside, pixel, self.blank)
                    for column, pixel in zip(columns, line, strict=True)
                ]
                for row, line in zip(rows, pixels, strict=True)
            ]
            self._each_register(chosen, count, write)

        ends = (rows[0], rows[-1], columns[0], columns[-1])
        whole = all_of(line.inside for line in ends)
        assert isinstance(whole, Expr)
        either(whole, lambda: self._each_register(pixels, count, write), at_border)

    def _lines(self, axis: int, position: Expr) -> list[_Line]:
        """The rows or columns of a tile."""
        writer, low = self.writer, self.lows[axis]
        extent = writer.size(writer.views[self.view].shape[1 + axis], "extent", self.view, axis)
        start = position if low == 0 else position - writer.size(low, "low", axis)
        positions = [start + k for k in range(self.matrix.shape[1])]
        # As an unsigned number, a negative position is larger than every extent.
        return [
            _Line(at * writer.stride(self.view, 1 + axis), at.cast(U64) < extent.cast(U64))
            for at in positions
        ]

    def _each_register(
        self, pixels: Sequence[Sequence[Pointer]], count: Index, write: Write
    ) -> None:
        emit, lanes = self.writer.emit, self.lanes

        def transform(channel: Expr, lanes: int) -> None:
            tile = [[pixel.load(channel, lanes) for pixel in row] for row in pixels]
            write(channel, both_sides(self.matrix, tile, fused=self.fused))

        whole = count // lanes * lanes
        if whole != 0:
            with for_each(emit, 0, self._extent(whole, "whole registers"), lanes) as channel:
                transform(channel, lanes)
        if not isinstance(count, int) or whole < count:
            start, end = self._extent(whole, "whole registers"), self._extent(count, "channels")
            with for_each(emit, start, end) as channel:
                transform(channel, 1)

    def _extent(self, size: Index, role: str) -> Expr:
        """A number of channels as an argument, for code that does not depend on it."""
        return size if isinstance(size, Expr) else self.writer.size(size, role, self.view)
