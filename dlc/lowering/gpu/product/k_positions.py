"""How k is walked in k-tiles: one after the other, or channel by channel for each tap of a window.

A `KPosition` is where a k-tile begins: a few indices that are advanced from one k-tile to the next without
a division, for a convolution the tap and the first channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.dialects.expr import Expr, constant, select
from dlc.dialects.kernel.product_schedule import SplitK
from dlc.dialects.kernel.products import Conv
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.types import INDEX, DType
from dlc.lowering.gpu.writer import GridWriter

KPosition: TypeAlias = Sequence[Expr]
"""Where a k-tile begins along k."""


class KTiles:
    """k in k-tiles of `depth`, one after the other.

    Positions are of `dtype`, which the end of k fits; that is the kernel's size with the role `role`.
    """

    def __init__(self, depth: int, inner: Size, dtype: DType = INDEX, role: str = "inner") -> None:
        self.depth = depth
        self.inner = inner
        self.dtype = dtype
        self.role = role

    @property
    def count(self) -> Size:
        return ceil_divide(self.inner, self.depth)

    def start(self, writer: GridWriter) -> list[Expr]:
        """The first k-tile."""
        return [self._zero(writer)]

    def advance(self, writer: GridWriter, position: KPosition) -> list[Expr]:
        """The k-tile after one; after the last it is out of bounds."""
        return [position[0] + self.depth]

    def exists(self, writer: GridWriter, position: KPosition) -> Expr:
        """Whether there is a k-tile at a position."""
        return position[0] < self._end(writer)

    def _end(self, writer: GridWriter) -> Expr:
        return writer.size(self.inner, self.role).cast(self.dtype)

    def _zero(self, writer: GridWriter) -> Expr:
        return constant(writer.emit, 0, self.dtype)


class TapTiles(KTiles):
    """The channels of a window's first tap in k-tiles, then those of the next one.

    `channels` are those of a group, with split-K those of one part.
    """

    def __init__(self, depth: int, conv: Conv, channels: Size, dtype: DType = INDEX) -> None:
        role = "part" if isinstance(conv.schedule, SplitK) else "inputs"
        super().__init__(depth, channels, dtype, role)
        self.window = conv.window

    @property
    def count(self) -> Size:
        return product(self.window) * super().count

    def start(self, writer: GridWriter) -> list[Expr]:
        zero = self._zero(writer)
        if isinstance(self.inner, int) and self.inner:
            return [zero] * 3
        # Without channels there is no k-tile, not even of the first tap.
        return [select(self._end(writer) > 0, zero, self.window[0]), zero, zero]

    def turns(self, writer: GridWriter, position: KPosition) -> tuple[Expr, Expr]:
        """Whether a k-tile is the last one of its tap, and whether that is the last of its row."""
        _, column, channel = position
        ends = channel + self.depth >= self._end(writer)
        return ends, column + 1 >= self.window[1]

    def advance(self, writer: GridWriter, position: KPosition) -> list[Expr]:
        row, column, channel = position
        ends, wraps = self.turns(writer, position)
        return [
            select(ends & wraps, row + 1, row),
            select(ends, select(wraps, self._zero(writer), column + 1), column),
            select(ends, self._zero(writer), channel + self.depth),
        ]

    def exists(self, writer: GridWriter, position: KPosition) -> Expr:
        return position[0] < self.window[0]
