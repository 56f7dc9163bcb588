"""log and log1p.

`log(x) = k * log(2) + log(m)` with m near 1. f32 takes a polynomial in `f = m - 1`; f64 one in
`s = f / (2 + f)`, since `log(1 + f) = 2 * atanh(s)` converges faster (K. C. Ng, 1986, as in the
C library of 4.3BSD).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.ir.types import F32, F64, DType
from dlc.lowering.math.coefficients import LOG_F32, LOG_F64
from dlc.lowering.math.exponential import EXP
from dlc.lowering.math.pairs import fast_two_sum
from dlc.lowering.math.term import Number, Term


@dataclass(frozen=True, slots=True)
class LogFormat:
    """What log needs to know of a dtype.

    m lies in [lowest, 2 * lowest); a denormal number times `2 ** lift` is normal.
    """

    lowest: float
    lift: int


LOG: dict[DType, LogFormat] = {
    F32: LogFormat(2 / 3, 24),
    F64: LogFormat(math.sqrt(0.5), 54),
}


@dataclass(frozen=True, slots=True)
class Split:
    """A positive normal number as `2 ** exponent * mantissa`, and what else follows from the split.

    The exponent is a float, `power` is `2 ** -exponent` if that is a normal number.
    """

    exponent: Term
    mantissa: Term
    power: Term


def split(x: Term) -> Split:
    """The number taken apart; the mantissa lies around 1."""
    layout = x.format
    lowest = layout.bits(LOG[x.dtype].lowest)
    # Moved up so that the exponent changes where the mantissa is `lowest`, not 1.
    moved = x.bits() + (layout.one - lowest)
    biased = moved >> layout.fraction_bits
    base = 2.0**layout.fraction_bits
    exponent = (biased | layout.bits(base)).float() - (base + layout.bias)
    mantissa = ((moved & layout.fraction) + lowest).float()
    power = (2 * layout.bias - biased << layout.fraction_bits).float()
    return Split(exponent, mantissa, power)


def split_any(x: Term) -> tuple[Term, Term]:
    """The exponent and the mantissa of a positive number, which may be denormal."""
    lift = LOG[x.dtype].lift
    denormal = x < x.format.smallest_normal
    parts = split((x * 2.0**lift).where(denormal, x))
    return parts.exponent - x.constant(lift).where(denormal, 0), parts.mantissa


def log(x: Term) -> Term:
    """The natural logarithm."""
    exponent, mantissa = split_any(x)
    result = _combine(exponent, mantissa - 1, 0)
    return _outside(result, x, x)


def log1p(x: Term, exponent: Number = 0, more: Number = 0) -> Term:
    """`log(1 + x) + exponent * log(2) + more`, the first accurate near 0."""
    parts = split(x + 1)
    # 1 + x is rounded, but (1 + x) / 2**k - 1 need not be: it is x / 2**k - (1 - 1 / 2**k). Where x is
    # large, 1 is lost in it, and the power may be denormal.
    large = x > 2.0 ** (x.format.fraction_bits + 2)
    scaled = (parts.power * x).unless(large, parts.mantissa)
    f, lost = fast_two_sum((parts.power - 1).unless(large, -1), scaled)
    lost = lost.times_plus(-f, lost)  # almost lost / (1 + f)
    result = _combine(parts.exponent + exponent, f, lost + more)
    return _outside(result, x + 1, x).unless(x.equals(0), x)


def _combine(exponent: Term, f: Term, more: Number) -> Term:
    """`exponent * log(2) + log(1 + f) + more`."""
    ln2 = EXP[f.dtype]
    square = f * f
    low = exponent.times_plus(ln2.low, more)
    if f.dtype is F32:
        rest = square.times_plus(f.polynomial((-0.5, *LOG_F32)), low)
        return exponent.times_plus(ln2.high, f + rest)
    s = f / (f + 2)
    z = s * s
    half = square * 0.5
    rest = s.times_plus(half + z * z.polynomial(LOG_F64), low)
    return exponent.times_plus(ln2.high, f - (half - rest))


def _outside(result: Term, x: Term, same: Number) -> Term:
    """The result for positive numbers; for others what the logarithm of x is, `same` for inf and NaN."""
    result = result.where(x < math.inf, same)
    return result.unless(x.equals(0), -math.inf).unless(x < 0, math.nan)
