"""Schedules of products: the implementation, and how the right factor is stored.

A product has none until a pass chooses one. For CPUs `pack` chooses packed panels, as in BLIS, Winograd's
form of a convolution, or a call of BLAS; for GPUs, where products are always tiled, `split_k` may split the
reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir.attributes import DialectAttribute, dialect_attribute
from dlc.ir.dims import Size, floor_divide


@dialect_attribute("kernel.blas")
@dataclass(frozen=True, slots=True)
class Blas(DialectAttribute):
    """The product is a call of BLAS."""


@dialect_attribute("kernel.packed")
@dataclass(frozen=True, slots=True)
class Packed(DialectAttribute):
    """The right factor is stored in panels of `columns` columns, `[.., p, k, columns]`.

    Column n is column `n % columns` of panel `n // columns`; the last panel is padded with zeros.
    """

    columns: int

    def panel(self, depth: Size) -> tuple[Size, Size]:
        """The shape of a panel of `depth` steps of k."""
        return depth, self.columns


@dialect_attribute("kernel.packed_pairs")
@dataclass(frozen=True, slots=True)
class PackedPairs(Packed):
    """Panels of i16 or bf16 with two steps of k side by side, `[.., p, k / 2, columns * 2]`; k is even.

    Column n of a panel is at 2n and 2n + 1: products of pairs are summed at once (`vec.dot_pairs`).
    """

    def panel(self, depth: Size) -> tuple[Size, Size]:
        """The shape of a panel of `depth` steps of k."""
        return floor_divide(depth, 2), 2 * self.columns


@dialect_attribute("kernel.pack_inline")
@dataclass(frozen=True, slots=True)
class PackInline(DialectAttribute):
    """The kernel packs the right factor into such panels itself, block by block, as it needs them."""

    columns: int


@dialect_attribute("kernel.pack_pairs_inline")
@dataclass(frozen=True, slots=True)
class PackPairsInline(PackInline):
    """The panels have two steps of k side by side, as those of `PackedPairs`; k is even."""


@dialect_attribute("kernel.split_k")
@dataclass(frozen=True, slots=True)
class SplitK(DialectAttribute):
    """Split-K: each part sums over `steps` of k; the first axis of the result's domain is the part.

    The last part may be shorter, and a part that begins beyond k is 0.
    """

    steps: Size


@dialect_attribute("kernel.winograd")
@dataclass(frozen=True, slots=True)
class Winograd(DialectAttribute):
    """A convolution in the form F(tile x tile, 3 x 3) of Winograd (`dlc.dialects.kernel.winograd`).

    The right factor is the transformed kernel, a matrix `[c, o]` for each of the (tile + 2)² places of a
    transformed tile, all in panels of `columns` columns.
    """

    tile: int
    columns: int


GemmSchedule: TypeAlias = Blas | Packed | PackInline | SplitK
ConvSchedule: TypeAlias = Packed | SplitK | Winograd
