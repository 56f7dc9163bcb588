"""Matrix fragments: which elements each of the 32 threads of a warp holds, as tensor cores define it.

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

GROUP, THREAD_IN_GROUP = np.divmod(np.arange(WARP), 4)
"""g and p of each thread."""


def thread_addresses(rows: Numbers, dtype: DType, transposed: bool) -> Numbers:
    """The addresses of the elements of one matrix that each thread receives, `[threads, 1 or 2]`.

    `rows` are the addresses of the eight rows of the matrix.
    """
    width = 1 if dtype is F32 else 2
    columns = width * THREAD_IN_GROUP[:, None] + np.arange(width)
    if transposed:
        return rows[columns] + GROUP[:, None] * dtype.bytes
    return rows[GROUP][:, None] + columns * dtype.bytes


def mma(
    lhs: Sequence[Array], rhs: Sequence[Array], sums: Sequence[Array], dtype: DType
) -> list[Array]:
    """The four sums that each thread holds after `simt.mma`: exact products, added in f64."""
    width = 1 if dtype is F32 else 2
    left, right = np.empty((16, 8 * width)), np.empty((8 * width, 8))
    k = width * THREAD_IN_GROUP[:, None] + np.arange(width)
    for index, register in enumerate(lhs):
        k_half, row_half = divmod(index, 2)
        left[GROUP[:, None] + 8 * row_half, k + 4 * width * k_half] = _exact(register, dtype)
    for k_half, register in enumerate(rhs):
        right[k + 4 * width * k_half, GROUP[:, None]] = _exact(register, dtype)
    total = np.empty((16, 8))
    # Where the four sums of each thread are in the matrix.
    positions = [(GROUP + 8 * (i // 2), 2 * THREAD_IN_GROUP + i % 2) for i in range(4)]
    for position, addend in zip(positions, sums, strict=True):
        total[position] = addend
    total = (total + left @ right).astype(np.float32)
    return [total[position] for position in positions]


def _exact(register: Array, dtype: DType) -> Array:
    """The factors in a register of each thread, `[threads, 1 or 2]`; f32 rounded to tf32."""
    if dtype is F32:
        return to_tf32(register.astype(np.float32))[:, None]
    return decode(register, dtype)


def to_tf32(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """f32 rounded to 10 bits of mantissa, to nearest, ties away from zero."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(array), array, rounded.view(np.float32)).astype(np.float32)
