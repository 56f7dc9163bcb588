"""Schedules of products: who multiplies, and how the factors reach the registers.

A product has none until one is chosen. For processors `pack` chooses, as BLIS does it or by calling BLAS;
for GPUs, which multiply tiles in any case, `split_k` may divide the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir.attributes import DialectAttribute, dialect_attribute
from dlc.ir.dims import Size


@dialect_attribute("kernel.blas")
@dataclass(frozen=True, slots=True)
class Blas(DialectAttribute):
    """A call of BLAS multiplies."""


@dialect_attribute("kernel.packed")
@dataclass(frozen=True, slots=True)
class Packed(DialectAttribute):
    """The right factor is stored in panels of `columns` columns, `[.., p, k, columns]`.

    Column n is column `n % columns` of panel `n // columns`; zeros fill up the last panel.
    """

    columns: int


@dialect_attribute("kernel.pack_inline")
@dataclass(frozen=True, slots=True)
class PackInline(DialectAttribute):
    """The kernel itself puts the right factor into such panels, block by block as it needs them."""

    columns: int


@dialect_attribute("kernel.split_k")
@dataclass(frozen=True, slots=True)
class SplitK(DialectAttribute):
    """The sums are over `steps` k each: the first axis of the result's domain says over which.

    The last part may be shorter, and one that begins beyond k is 0.
    """

    steps: Size


Schedule: TypeAlias = Blas | Packed | PackInline | SplitK
