"""`x * y + z` with one rounding, for processors that have no instruction for it.

The method is that of `dlc.dialects.fused`, which the names here follow.
"""

from __future__ import annotations

import math

from dlc.ir.types import F32, F64, I64
from dlc.lowering.math.pairs import two_product, two_sum
from dlc.lowering.math.term import DOUBLE, Term

FAR = 400
"""Powers of two between terms from which on only the sign of the smaller one counts."""
LIFT = 64
"""A denormal f64 number times `2**LIFT` is normal."""


def fma(x: Term, y: Term, z: Term) -> Term:
    """`x * y + z`, rounded once."""
    if x.dtype is F32:
        # The product of two f32 is exact in f64, and 53 bits rounded to odd round to 24 as one.
        return _add_to_odd(x.cast(F64) * y.cast(F64), z.cast(F64)).cast(F32)
    product = x * y
    multiplies = (abs(x) < math.inf) & (abs(y) < math.inf) & x.differs(0) & y.differs(0)
    adds = (abs(z) < math.inf) & z.differs(0)
    result = (product + z).unless(multiplies & z.equals(0), product)
    result = result.unless(multiplies & ~(abs(z) < math.inf), z)
    return result.unless(multiplies & adds, _ordinary(x, y, z))


def _ordinary(x: Term, y: Term, z: Term) -> Term:
    """Of f64 numbers that are finite and not zero."""
    (mx, ex), (my, ey), (mz, ez) = _split(x), _split(y), _split(z)
    exponent = ex + ey
    scale = exponent.where(exponent > ez, ez)
    high, low = two_product(mx, my)
    down, third = _power(exponent - scale), mz * _power(ez - scale)
    upper, rest = two_sum(third, low * down)
    head, tail = two_sum(high * down, upper)
    tail = _add_to_odd(tail, rest)
    whole = head + tail
    # A denormal result has fewer bits: a large number added first puts the rounding where it belongs,
    # and has the result in its last bits.
    least = -1074 - scale
    last_bit = least.unless(least > FAR, FAR)
    large = (_power_bits(last_bit + 52) | whole.sign_bit()).float()
    top, bottom = two_sum(large, head)
    rounded = top + _add_to_odd(bottom, tail)
    denormal = (rounded.bits() - large.bits()) | whole.sign_bit()
    is_denormal = _split(whole)[1] + scale < -1022
    return _scaled(whole, scale).unless(is_denormal, denormal.float())


def _split(x: Term) -> tuple[Term, Term]:
    """The number as its mantissa, at least 1 in magnitude and below 2, and the exponent, in i64."""
    denormal = abs(x) < DOUBLE.smallest_normal
    bits = (x * 2.0**LIFT).where(denormal, x).bits()
    mantissa = (bits & (DOUBLE.sign | DOUBLE.fraction) | DOUBLE.one).float()
    biased = ((bits & (DOUBLE.sign - 1)) >> DOUBLE.fraction_bits).bitcast(I64)
    bias = biased.constant(DOUBLE.bias + LIFT).where(denormal, DOUBLE.bias)
    return mantissa, biased - bias


def _power_bits(exponent: Term) -> Term:
    return ((exponent + DOUBLE.bias) << DOUBLE.fraction_bits).bitcast(DOUBLE.unsigned)


def _power(exponent: Term) -> Term:
    """`2**exponent` for an exponent up to 0, or a power that is small enough."""
    return _power_bits(exponent.at_least(-FAR)).float()


def _scaled(x: Term, exponent: Term) -> Term:
    """`x * 2**exponent`, where that is not denormal, in two steps that do not overflow before the end."""
    bounded = exponent.at_least(-1100)
    half = bounded >> 1
    return x * _power_bits(half).float() * _power_bits(bounded - half).float()


def _add_to_odd(x: Term, y: Term) -> Term:
    """`x + y` in f64; where that is not exact, of the two neighbours the one with an odd last bit."""
    total, error = two_sum(x, y)
    bits = total.bits()
    # Away from zero is one more in the bits, whatever the sign.
    away = (error > 0).equals(total > 0)
    neighbour = (bits + 1).where(away, bits - 1)
    even = (bits & 1).equals(0)
    inexact = (abs(total) < math.inf) & error.differs(0)
    return neighbour.where(inexact & even, bits).float()
