"""Walks along k: how a thread's addresses in an operand move from one k-tile to the next.

A thread copies the same units of each k-tile. It computes their addresses once, before the main loop, and
moves them by one addition for each k-tile (strength reduction); the loop multiplies and divides nothing. A
row or column beyond the operand reads the last one, since nothing that is stored depends on it. So only
what lies beyond the ends of k, or of a picture, is compared with a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Condition, Expr, Pointer, select
from dlc.ir.dims import ceil_divide
from dlc.lowering.gpu.product.k_positions import KPosition, TapTiles
from dlc.lowering.gpu.writer import GridWriter


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A unit of 16 bytes of a k-tile that a thread copies: its first element along the side and along k."""

    side: Expr
    k: Expr


class Walk:
    """The addresses of a thread's units, `pointers` in the first k-tile."""

    def __init__(self, pointers: Sequence[Pointer], units: Sequence[TileUnit]) -> None:
        self.pointers = pointers
        self.units = units

    def step(self, writer: GridWriter, position: KPosition) -> Expr:
        """The elements from the k-tile at a position to the next one."""
        raise NotImplementedError

    def within(self, position: KPosition) -> list[Condition]:
        """For each unit whether it is in bounds; the k-tile exists."""
        raise NotImplementedError


class StraightWalk(Walk):
    """Along a matrix: each k-tile is `step` elements further.

    `limit` is the end of k; None where k consists of whole k-tiles, so that no unit is beyond it.
    """

    def __init__(
        self,
        pointers: Sequence[Pointer],
        units: Sequence[TileUnit],
        step: Expr,
        limit: Expr | None,
    ) -> None:
        super().__init__(pointers, units)
        self._step = step
        self.limit = limit

    def step(self, writer: GridWriter, position: KPosition) -> Expr:
        return self._step

    def within(self, position: KPosition) -> list[Condition]:
        return _below(self.limit, position[0], self.units)


@dataclass(frozen=True, slots=True)
class Picture:
    """What a thread's units read of a picture: their pixels at the first tap, in 32 bits.

    Coordinates wrap below 0, so one unsigned comparison with `sizes` finds those on either side.
    """

    pixels: Sequence[tuple[Expr, Expr]]
    sizes: tuple[Expr, Expr]
    dilations: tuple[int, int]

    def within(self, taps: Sequence[Expr]) -> list[Expr]:
        """For each unit whether its pixel is in the picture at a tap."""
        return [
            self._inside(0, pixel[0], taps[0]) & self._inside(1, pixel[1], taps[1])
            for pixel in self.pixels
        ]

    def _inside(self, axis: int, coordinate: Expr, tap: Expr) -> Expr:
        return coordinate + tap * self.dilations[axis] < self.sizes[axis]


@dataclass(frozen=True, slots=True)
class TapSteps:
    """The elements from one k-tile to the next: within a tap, to the next tap of a row, to the next row."""

    channels: Expr
    column: Expr
    row: Expr

    @classmethod
    def of(cls, tiles: TapTiles, writer: GridWriter, strides: tuple[Expr, Expr, Expr]) -> TapSteps:
        """From the strides of a row of taps, of a tap in it and of a channel."""
        row, column, channel = strides
        last = (ceil_divide(tiles.inner, tiles.depth) - 1) * tiles.depth
        back = channel * writer.size(last, "last channels")
        _, width = tiles.window
        return cls(channel * tiles.depth, column - back, row - column * (width - 1) - back)


class WindowWalk(Walk):
    """Along the taps of a window, and the channels of each.

    `limit` is the end of the channels; None where they are whole k-tiles. `picture` is None for weights.
    """

    def __init__(
        self,
        pointers: Sequence[Pointer],
        units: Sequence[TileUnit],
        tiles: TapTiles,
        steps: TapSteps,
        limit: Expr | None,
        picture: Picture | None = None,
    ) -> None:
        super().__init__(pointers, units)
        self.tiles = tiles
        self.steps = steps
        self.limit = limit
        self.picture = picture

    def step(self, writer: GridWriter, position: KPosition) -> Expr:
        height, width = self.tiles.window
        if height * width == 1:
            return self.steps.channels
        ends, wraps = self.tiles.turns(writer, position)
        return select(ends, select(wraps, self.steps.row, self.steps.column), self.steps.channels)

    def within(self, position: KPosition) -> list[Condition]:
        *taps, channel = position
        conditions = _below(self.limit, channel, self.units)
        if self.picture is None:
            return conditions
        inside = self.picture.within(taps)
        return [one & other for one, other in zip(inside, conditions, strict=True)]


def _below(limit: Expr | None, first: Expr, units: Sequence[TileUnit]) -> list[Condition]:
    if limit is None:
        return [True] * len(units)
    return [first + unit.k.cast(first.dtype) < limit.cast(first.dtype) for unit in units]
