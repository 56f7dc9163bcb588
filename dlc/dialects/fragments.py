"""Matrices of which the 32 threads of a warp hold a part each, as NVIDIA's processors want them.

The layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... for mma.m16n8k8", and of
"ldmatrix". Thread t has g = t // 4 and p = t % 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.simt import WARP
from dlc.ir.attributes import decode
from dlc.ir.core import Array
from dlc.ir.types import F32, DType

Numbers = NDArray[np.int64]

GROUP, PART = np.divmod(np.arange(WARP), 4)
"""g and p of each thread."""


def thread_addresses(rows: Numbers, dtype: DType, transposed: bool) -> Numbers:
    """The addresses that each thread reads of a matrix whose eight rows are at `rows`: one or two."""
    width = 1 if dtype is F32 else 2
    columns = width * PART[:, None] + np.arange(width)
    if transposed:
        return rows[columns] + GROUP[:, None] * dtype.bytes
    return rows[GROUP][:, None] + columns * dtype.bytes


def mma(
    lhs: Sequence[Array], rhs: Sequence[Array], sums: Sequence[Array], dtype: DType
) -> list[Array]:
    """The four sums of each thread, from its registers: exact products, added up in f64."""
    width = 1 if dtype is F32 else 2
    left, right = np.empty((16, 8 * width)), np.empty((8 * width, 8))
    k = width * PART[:, None] + np.arange(width)
    for number, register in enumerate(lhs):
        second, lower = divmod(number, 2)
        left[GROUP[:, None] + 8 * lower, k + 4 * width * second] = _exact(register, dtype)
    for second, register in enumerate(rhs):
        right[k + 4 * width * second, GROUP[:, None]] = _exact(register, dtype)
    total = np.empty((16, 8))
    for number, sum in enumerate(sums):
        total[GROUP + 8 * (number // 2), 2 * PART + number % 2] = sum
    total = (total + left @ right).astype(np.float32)
    return [total[GROUP + 8 * (number // 2), 2 * PART + number % 2] for number in range(4)]


def _exact(register: Array, dtype: DType) -> Array:
    """The factors in a register, `[threads, 1 or 2]`."""
    if dtype is F32:
        return to_tf32(register.astype(np.float32))[:, None]
    return decode(register, dtype)


def to_tf32(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """f32 rounded to 10 bits of mantissa, to nearest, ties away from zero."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(array), array, rounded.view(np.float32)).astype(np.float32)
