"""Remainders of floats, exact for all magnitudes.

The quotient may have two thousand bits, so it is taken off from the top, 52 bits at a time: from the
largest `y * 2**(52 * k)` on, each rest is at most three quarters of the divisor, hence a number of the
format, and the fused multiply-add that gives it does not round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlc.ir.types import F32, F64
from dlc.lowering.math.pairs import remainder
from dlc.lowering.math.term import Term

STEP = 52
SINGLE_STEPS = 5  # 2**(128 + 149) is less than 2**(52 * 5 + 51)
DOUBLE_STEPS = 40  # and 2**(1024 + 1074) less than 2**(52 * 40 + 51)


def floor_divide(x: Term, y: Term) -> Term:
    """`floor(x / y)`, the quotient rounded first."""
    return (x / y).floor()


def truncated_remainder(x: Term, y: Term) -> Term:
    """`x - trunc(x / y) * y`: C's `fmod`."""
    if x.dtype is F32:
        wide, divisor = x.cast(F64), y.cast(F64)
        return _reduced(wide, divisor, _divisors_of_single(abs(divisor))).cast(F32)
    return _reduced(x, y, _divisors_of_double(abs(x), abs(y)))


def _reduced(x: Term, y: Term, divisors: Iterator[Term]) -> Term:
    """The remainder by way of those by larger divisors, y the last of them."""
    rest = abs(x)
    if not x.fused:
        rest = _scaled_step(rest, next(divisors))
    for divisor in divisors:
        rest = _step(rest, divisor)
    rest = abs((rest + abs(y)).where(rest < 0, rest)).with_sign_of(x)
    # An infinite y gives NaN above; a finite x is its own remainder then.
    return rest.unless(abs(y).equals(math.inf) & (abs(x) < math.inf), x)


def _step(x: Term, y: Term) -> Term:
    """x less the nearest multiple of y."""
    return remainder(x, (x / y).round(), y)


def _scaled_step(x: Term, y: Term) -> Term:
    """The first step where the multiple is rounded before it is taken off, and may overflow."""
    scale = x.constant(0.25).where(x > 2.0**1000, 1)
    return _step(x * scale, y * scale) / scale


def _divisors_of_single(y: Term) -> Iterator[Term]:
    """f64 has room for `y * 2**(52 * k)`; where that is larger than x, the quotient is 0."""
    for k in range(SINGLE_STEPS, 0, -1):
        yield y * 2.0 ** (STEP * k)
    yield y


def _divisors_of_double(x: Term, y: Term) -> Iterator[Term]:
    """From the largest `y * 2**(52 * k)` that is not above x down to y, which is then repeated."""
    divisor = y
    for k in (32, 16, 8, 4, 2, 1):
        half = 2.0 ** (STEP * k // 2)
        larger = divisor * half * half
        divisor = larger.where(larger <= x, divisor)
    for _ in range(DOUBLE_STEPS):
        yield divisor
        smaller = divisor * 2.0**-STEP
        divisor = y.where(smaller < y, smaller)
    yield divisor


def floor_remainder(x: Term, y: Term) -> Term:
    """`x - floor(x / y) * y`: Python's `%`, where a zero has the sign of y."""
    rest = truncated_remainder(x, y)
    other_side = (rest < 0) ^ (y < 0)
    zero = (rest.bits() ^ (rest.sign_bit() ^ y.sign_bit())).float()
    return (rest + y).where(other_side, rest).unless(rest.equals(0), zero)
