"""`x ** y` for floats, and the reciprocal of the square root.

`|x| ** y = exp(y * log(|x|))`. An error of the logarithm counts y times, so it needs more digits than the
result has: f32 is computed in f64, and f64 with pairs of numbers.
"""

from __future__ import annotations

import math

from dlc.ir.types import F32, F64
from dlc.lowering.math.coefficients import EXP_FOR_F32, LOG_FIFTH, LOG_FOR_F32
from dlc.lowering.math.exponential import EXP, exp_of_sum, reduce
from dlc.lowering.math.logarithm import split, split_any
from dlc.lowering.math.pairs import fast_two_sum, remainder, two_product, two_sum
from dlc.lowering.math.term import Term

LN2 = EXP[F64]
TWO_THIRDS = (2 / 3, 3.700743415417188e-17)
"""2/3 as two numbers of f64."""


def rsqrt(x: Term) -> Term:
    """`1 / sqrt(x)`."""
    return 1 / x.sqrt()


def power(x: Term, y: Term) -> Term:
    """`x ** y` with the special cases of IEEE 754 `pow`."""
    if x.dtype is F32:
        wide, exponent = x.cast(F64), y.cast(F64)
        size = _power_of_single(abs(wide), exponent).cast(F32)
        return _with_sign(size, wide, exponent)
    return _with_sign(_power_of_double(abs(x), y), x, y)


def _with_sign(size: Term, x: Term, y: Term) -> Term:
    """The power from that of `|x|`: negative for odd exponents, NaN where it is not a real number."""
    whole = y.floor().equals(y)
    half = y * 0.5
    odd = whole & half.floor().differs(half)
    negative = x.sign_bit().differs(0)
    no_number = (x < 0) & (x > -math.inf) & ~whole
    return (-size).where(negative & odd, size).unless(no_number, math.nan)


def _is_one(x: Term, y: Term) -> Term:
    """Where `x ** y` is 1 even if x or y is infinite or NaN."""
    return x.equals(1) | y.equals(0)


def _power_of_single(x: Term, y: Term) -> Term:
    """Of f32 numbers in f64, so accurate that rounding to f32 is almost the only error."""
    parts = split(x)
    f = parts.mantissa - 1
    s = f / (f + 2)
    square = s * s
    log = (s * square).times_plus(square.polynomial(LOG_FOR_F32), s + s)
    log = parts.exponent.times_plus(LN2.high + LN2.low, log)
    log = log.where(x < math.inf, x).unless(x.equals(0), -math.inf)
    product = (y * log).unless(_is_one(x, y), 0)
    # f32 is 0 or infinite beyond these.
    reduced = reduce(product.at_least(-110).at_most(100))
    return reduced.rest.polynomial((1, 1, *EXP_FOR_F32)) * reduced.power()


def _power_of_double(x: Term, y: Term) -> Term:
    log, more = _log_pair(x)
    log = log.where(x < math.inf, x).unless(x.equals(0), -math.inf)
    product, rest = two_product(y, log)
    is_one = _is_one(x, y)
    return exp_of_sum(product.unless(is_one, 0), y.times_plus(more, rest).unless(is_one, 0))


def _log_pair(x: Term) -> tuple[Term, Term]:
    """The logarithm of a positive number as the sum of two, with about 64 digits.

    With s = f / (2 + f) it is 2 * s + 2/3 * s**3 + s**5 * P(s**2); the first two terms are pairs.
    """
    exponent, mantissa = split_any(x)
    f = mantissa - 1
    bottom, bottom_low = fast_two_sum(x.constant(2), f)
    s = f / bottom
    s_low = (remainder(f, s, bottom) - s * bottom_low) / bottom
    square, square_low = two_product(s, s)
    square_low = (s + s).times_plus(s_low, square_low)
    cube, cube_low = two_product(square, s)
    cube_low = square_low.times_plus(s, square.times_plus(s_low, cube_low))
    third, third_low = two_product(cube, x.constant(TWO_THIRDS[0]))
    third_low = cube_low.times_plus(TWO_THIRDS[0], cube.times_plus(TWO_THIRDS[1], third_low))
    tail = cube * square * square.polynomial(LOG_FIFTH)
    total, rest = two_sum(exponent * LN2.high, s + s)
    small = exponent.times_plus(LN2.low, s_low + s_low + third_low) + rest
    total, rest = two_sum(total, third)
    small = small + rest
    total, rest = two_sum(total, tail)
    return fast_two_sum(total, small + rest)
