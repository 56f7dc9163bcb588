"""`x * y + z` with one rounding, in NumPy: what the processor's fma instruction gives, bit for bit.

The method: take the product and the sum apart into numbers whose exact sum is the result, put all but
the leading one together rounding *to odd*, and round once at the end (S. Boldo and G. Melquiond,
"Emulation of a FMA and correctly-rounded sums: proved algorithms using rounding to odd", IEEE
Transactions on Computers 57 (4), 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

FAR = 400
"""Powers of two between terms from which on only the sign of the smaller one counts."""


def fma(
    x: NDArray[np.generic], y: NDArray[np.generic], z: NDArray[np.generic]
) -> NDArray[np.generic]:
    """`x * y + z` of f32 or f64 arrays, rounded once to their dtype."""
    dtype = x.dtype
    with np.errstate(all="ignore"):
        a, b, c = [v.astype(np.float64, copy=False) for v in (x, y, z)]
        if not a.shape == b.shape == c.shape:
            a, b, c = np.broadcast_arrays(a, b, c)
        if dtype == np.float32:
            return _add_to_single(a * b, c)  # the product of two f32 is exact in f64
        return _fma(a, b, c)


def _fma(x: Doubles, y: Doubles, z: Doubles) -> Doubles:
    plain = x * y
    ordinary = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    if not ordinary.any():
        return plain + z
    result = np.where(ordinary, plain, plain + z)
    sums = ordinary & (z != 0) & np.isfinite(z)
    result = np.where(ordinary & ~np.isfinite(z), z, result)
    if not sums.any():
        return result
    return np.where(sums, _fma_ordinary(*[np.where(sums, v, 1.0) for v in (x, y, z)]), result)


def _fma_ordinary(x: Doubles, y: Doubles, z: Doubles) -> Doubles:
    """Of numbers that are finite and not zero."""
    (mx, ex), (my, ey), (mz, ez) = np.frexp(x), np.frexp(y), np.frexp(z)
    scale = np.maximum(ex + ey, ez)
    high, low = _product(mx, my)
    shift = np.maximum(ex + ey - scale, -FAR)
    high, low = np.ldexp(high, shift), np.ldexp(low, shift)
    third = np.ldexp(mz, np.maximum(ez - scale, -FAR))
    upper, rest = _sum(third, low)
    head, tail = _sum(high, upper)
    tail = _add_to_odd(tail, rest)
    whole = head + tail
    # A denormal result has fewer bits: a large number added first puts the rounding where it belongs.
    last_bit = np.minimum(-1074 - scale, FAR)
    large = np.copysign(np.ldexp(1.0, 52 + last_bit), whole)
    top, bottom = _sum(large, head)
    rounded = (top + _add_to_odd(bottom, tail)) - large
    denormal = np.copysign(np.ldexp(rounded, scale), whole)
    is_denormal = np.frexp(whole)[1] + scale <= -1022
    return np.where(is_denormal, denormal, np.ldexp(whole, scale))


def _product(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """Two numbers whose sum is exactly `x * y` (T. J. Dekker, 1971)."""
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    high = x * y
    return high, x2 * y2 - (((high - x1 * y1) - x2 * y1) - x1 * y2)


def _halves(x: Doubles) -> tuple[Doubles, Doubles]:
    """Two numbers of 26 bits whose sum is `x`."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _sum(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """`x + y` rounded, and what the rounding left out (D. E. Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _add_to_single(x: Doubles, y: Doubles) -> NDArray[np.float32]:
    """`x + y` rounded once to f32.

    Rounding it to f64 before changes nothing but where that is midway between two f32. Rounded to odd it is
    not, unless it is exact.
    """
    total = x + y
    midway = (total.view(np.int64) & (2**29 - 1)) == 2**28
    denormal = (np.abs(total) < np.finfo(np.float32).smallest_normal) & (total != 0)
    if (midway | denormal).any():
        total = _add_to_odd(x, y)
    return total.astype(np.float32)


def _add_to_odd(x: Doubles, y: Doubles) -> Doubles:
    """`x + y`; where that is not exact, of the two neighbours the one with an odd last bit."""
    total, error = _sum(x, y)
    even = (total.view(np.int64) & 1) == 0
    inexact = np.isfinite(total) & (error != 0)
    return np.where(inexact & even, np.nextafter(total, np.copysign(np.inf, error)), total)
