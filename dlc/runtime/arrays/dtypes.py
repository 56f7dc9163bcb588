"""Element types of arrays, with their names in the language, NumPy, DLPack and safetensors.

>>> DTYPES["f32"].bytes, DTYPES["bool"].numpy, BY_SAFETENSORS["BF16"].name
(4, dtype('bool'), 'bf16')
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_RANK = 16
"""The most axes of an array: of inputs, results, and values in between."""
MAX_BYTES = 1 << 62


class DType(NamedTuple):
    """An element type. `numpy` is the dtype of its bits in memory: uint16 for bf16, which NumPy lacks."""

    name: str
    bytes: int
    numpy: np.dtype[np.generic]
    safetensors: str
    dlpack: tuple[int, int]
    """Type code and bits of a DLDataType; lanes are always 1."""

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        """`f` float, `i` signed, `u` unsigned, `b` bool."""
        return "f" if self is BF16 else self.numpy.kind


def _dtype(name: str, numpy: str, safetensors: str, dlpack_code: int) -> DType:
    stored = np.dtype(numpy)
    return DType(name, stored.itemsize, stored, safetensors, (dlpack_code, 8 * stored.itemsize))


_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

BF16 = _dtype("bf16", "uint16", "BF16", _BFLOAT)
DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        _dtype("f64", "float64", "F64", _FLOAT),
        _dtype("f32", "float32", "F32", _FLOAT),
        _dtype("f16", "float16", "F16", _FLOAT),
        BF16,
        _dtype("i64", "int64", "I64", _INT),
        _dtype("i32", "int32", "I32", _INT),
        _dtype("i16", "int16", "I16", _INT),
        _dtype("i8", "int8", "I8", _INT),
        _dtype("u64", "uint64", "U64", _UINT),
        _dtype("u32", "uint32", "U32", _UINT),
        _dtype("u16", "uint16", "U16", _UINT),
        _dtype("u8", "uint8", "U8", _UINT),
        _dtype("bool", "bool", "BOOL", _BOOL),
    )
}
"""Every element type of the language, by name."""

BY_SAFETENSORS: dict[str, DType] = {dtype.safetensors: dtype for dtype in DTYPES.values()}
_BY_NUMPY: dict[np.dtype[np.generic], DType] = {
    dtype.numpy: dtype for dtype in DTYPES.values() if dtype is not BF16
}


def byte_count(shape: Sequence[int], dtype: DType) -> int | None:
    """Bytes of an array of that shape; None if no array can have the shape.

    Impossible are too many axes, a negative size, and sizes whose product is too large even if zeros are
    left out; NumPy refuses these, too.

    >>> byte_count((2, 3), BF16), byte_count((0, 1 << 60), BF16), byte_count((0, 1 << 62), BF16)
    (12, 0, None)
    """
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        return None
    if prod(max(size, 1) for size in shape) * dtype.bytes > MAX_BYTES:
        return None
    return prod(shape) * dtype.bytes


def dtype_of(array: NDArray[np.generic]) -> DType | None:
    """The element type of a NumPy array, `ml_dtypes.bfloat16` included; None if dlc lacks it."""
    dtype = _BY_NUMPY.get(array.dtype)
    if dtype is None and array.dtype.name == "bfloat16" and array.dtype.itemsize == BF16.bytes:
        return BF16
    return dtype


@cache
def numpy_bfloat16() -> np.dtype[np.generic] | None:
    """The dtype `ml_dtypes.bfloat16` if that package can be imported, else None."""
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return None


def bf16_bits(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Numbers rounded to bf16 (to nearest, ties to even; NaN stays NaN), as their 16 bits.

    f64 is first rounded to odd in f32: then both roundings give the result of one (Boldo & Melquiond 2008).

    >>> [hex(bits) for bits in bf16_bits(np.float32([1.0, -2.0, 3.1415927]))]
    ['0x3f80', '0xc000', '0x4049']
    """
    single = _to_odd_f32(values)
    bits = single.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = (bits | np.uint32(0x400000)) & np.uint32(0xFFFF0000)
    return np.asarray(np.where(np.isnan(single), quiet, rounded) >> np.uint32(16), np.uint16)


def _to_odd_f32(values: NDArray[np.generic]) -> NDArray[np.float32]:
    """The values rounded to odd in f32: inexact ones to the neighbour with an odd significand."""
    if values.dtype.itemsize < 4 or values.dtype == np.float32:
        return values.astype(np.float32)
    wide = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    inexact = (back != wide) & np.isfinite(back) & (bits & np.uint32(1) == 0)
    # Even and inexact: step one unit in the last place towards the true value.
    step = np.where(np.abs(back) < np.abs(wide), 1, -1).astype(np.int32)
    odd = (bits.view(np.int32) + np.where(inexact, step, 0)).astype(np.int32)
    return odd.view(np.float32)


def bf16_values(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The exact values of bf16 bits."""
    return np.asarray(bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
