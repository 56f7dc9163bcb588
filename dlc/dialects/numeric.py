"""The meaning of arithmetic, per operation and dtype, in NumPy: the table of `docs/semantics.md`.

Every function takes and gives NumPy arrays of one dtype and never warns. Integers wrap; divisions by
zero, shifts past the width and casts out of range have stated values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.ir.attributes import decode, encode
from dlc.ir.types import BF16, BOOL, F16, DType

# NumPy's stubs give operators to arrays of a known dtype or of Any; ours is known when running.
Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[..., Array]


def quiet(function: Function) -> Function:
    """The same function without NumPy's warnings: what it gives in every case is stated."""

    def silent(*arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays))

    return silent


def in_single(function: Function, dtype: DType, *arrays: Array) -> Array:
    """Apply to f16 and bf16 as to f32 and round once; to all else directly."""
    if dtype not in (F16, BF16):
        return function(*arrays)
    wide = [decode(array, dtype).astype(np.float32) for array in arrays]
    result = function(*wide)
    return encode(result, dtype) if result.dtype == np.float32 else result


def divide(x: Array, y: Array) -> Array:
    """`x / y`: IEEE division for floats; for integers toward zero, `x / 0 = 0`, `MIN / -1 = MIN`."""
    if x.dtype.kind == "f":
        return np.true_divide(x, y)
    quotient = floor_divide(x, y)
    inexact = (x - quotient * y) != 0
    return np.where(inexact & ((x < 0) != (y < 0)) & (y != 0), quotient + 1, quotient).astype(
        x.dtype
    )


def floor_divide(x: Array, y: Array) -> Array:
    """`floor(x / y)`; for integers `x // 0 = 0` and `MIN // -1 = MIN`."""
    if x.dtype.kind == "f":
        return np.floor(np.true_divide(x, y))
    if x.dtype.kind == "i":
        # NumPy gives MIN // -1 = MIN too, but not on every platform: negate instead.
        plain = np.where((y == 0) | (y == -1), 1, y).astype(x.dtype)
        return np.where(y == 0, 0, np.where(y == -1, -x, x // plain)).astype(x.dtype)
    return np.where(y == 0, 0, x // np.where(y == 0, 1, y)).astype(x.dtype)


def remainder(x: Array, y: Array) -> Array:
    """`x - floor(x / y) * y`, with the sign of y; for integers `x % 0 = x`; floats as Python's `%`."""
    if x.dtype.kind == "f":
        rest = np.fmod(x, y)
        inside = np.where((rest < 0) != (y < 0), rest + y, rest)
        return np.where(rest == 0, np.copysign(rest, y), inside).astype(x.dtype)
    return (x - floor_divide(x, y) * y).astype(x.dtype)


def truncated_remainder(x: Array, y: Array) -> Array:
    """`x - trunc(x / y) * y`, with the sign of x; for integers `x rem 0 = x`."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return (x - divide(x, y) * y).astype(x.dtype)


def power(x: Array, y: Array) -> Array:
    """`x ** y`: IEEE for floats; integers wrap, and a negative exponent gives `1 / x**-y` toward 0."""
    if x.dtype.kind == "f":
        return np.power(x, y)
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    base = np.broadcast_to(x, result.shape).copy()
    bits = np.broadcast_to(y, result.shape)
    negative = bits < 0
    rest = np.where(negative, 0, bits).astype(np.uint64)
    while rest.any():
        result = np.where(rest & np.uint64(1), result * base, result).astype(x.dtype)
        base = base * base
        rest = rest >> np.uint64(1)
    odd = (bits & 1) != 0
    inverse = np.where(base_is(x, 1), 1, np.where(base_is(x, -1), np.where(odd, -1, 1), 0))
    return np.where(negative, inverse.astype(x.dtype), result).astype(x.dtype)


def base_is(x: Array, value: int) -> Array:
    """Where x equals the value; nowhere if its dtype cannot hold it."""
    return np.zeros(x.shape, np.bool_) if value < 0 and x.dtype.kind == "u" else x == value


def shift_left(x: Array, y: Array) -> Array:
    """`x << y`; 0 where y is negative or at least the width."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0)), 0).astype(x.dtype)


def shift_right(x: Array, y: Array) -> Array:
    """`x >> y`, filled with the sign for signed x; all sign bits where y is outside the width."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    filled = np.where(x < 0, -1, 0).astype(x.dtype) if x.dtype.kind == "i" else np.zeros_like(x)
    return np.where(inside, np.right_shift(x, np.where(inside, y, 0)), filled).astype(x.dtype)


def raw_divide(x: Array, y: Array) -> Array:
    """`x / y` toward zero, where y is not 0 and it is not `MIN / -1`."""
    assert np.all(y != 0), "raw_divide by zero"
    if x.dtype.kind == "i":
        assert not np.any((y == -1) & (x == np.iinfo(x.dtype).min)), "raw_divide of MIN by -1"
    return divide(x, y)


def raw_shift_left(x: Array, y: Array) -> Array:
    """`x << y` where `0 <= y < width`."""
    return np.left_shift(x, _amount(y))


def raw_shift_right(x: Array, y: Array) -> Array:
    """`x >> y` where `0 <= y < width`."""
    return np.right_shift(x, _amount(y))


def _amount(y: Array) -> Array:
    assert np.all((y >= 0) & (y < y.dtype.itemsize * 8)), "raw shift beyond the width"
    return y


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN for NaN."""
    return np.sign(x)


def rsqrt(x: Array) -> Array:
    """`1 / sqrt(x)`."""
    return np.true_divide(1, np.sqrt(x), dtype=x.dtype)


def sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))` without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def erf(x: Array) -> Array:
    """The error function, as accurate as the C library's in f64."""
    flat = [math.erf(value) for value in x.astype(np.float64).ravel().tolist()]
    return np.asarray(flat, np.float64).reshape(x.shape).astype(x.dtype)


def convert(x: Array, source: DType, target: DType) -> Array:
    """A value conversion: floats to integers saturate and take NaN to 0, integers wrap.

    Integers go to bf16 through f32, everything else is rounded once.
    """
    values = decode(x, source)
    if target is BOOL:
        return values != 0
    if target.is_float:
        if target is BF16 and not source.is_float:
            values = values.astype(np.float32)
        return encode(values, target)
    if source.is_float:
        return _saturate(values, target)
    return values.astype(target.numpy)


def _saturate(values: Array, target: DType) -> Array:
    limits = np.iinfo(_integers(target))
    wide = np.trunc(values.astype(np.float64))
    # The largest i64 and u64 are not exact in f64: compare first, convert only what fits.
    above = wide >= float(limits.max)
    below = wide <= float(limits.min)
    inside = np.where(above | below | np.isnan(wide), 0, wide).astype(target.numpy)
    clipped = np.where(above, limits.max, np.where(below, limits.min, inside))
    return np.where(np.isnan(wide), 0, clipped).astype(target.numpy)


def compare(predicate: str, x: Array, y: Array) -> Array:
    """`eq ne lt le gt ge`; with NaN all but `ne` are false."""
    return COMPARISONS[predicate](x, y)


COMPARISONS: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def lowest(dtype: DType) -> float | int | bool:
    """What the maximum of no elements is: -inf, the smallest integer, or false."""
    if dtype.is_float:
        return -np.inf
    return False if dtype is BOOL else int(np.iinfo(_integers(dtype)).min)


def highest(dtype: DType) -> float | int | bool:
    """What the minimum of no elements is: inf, the largest integer, or true."""
    if dtype.is_float:
        return np.inf
    return True if dtype is BOOL else int(np.iinfo(_integers(dtype)).max)


def _integers(dtype: DType) -> np.dtype[np.integer]:
    return cast("np.dtype[np.integer]", dtype.numpy)
