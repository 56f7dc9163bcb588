"""exp, expm1 and the logistic function.

`exp(x) = 2**n * exp(r)` with n the nearest integer to `x / log(2)` and r what is left, at most half of
log(2) (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, chapter 6).
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.ir.types import F32, F64, DType
from dlc.lowering.math import coefficients
from dlc.lowering.math.coefficients import LN2, LOG2_E
from dlc.lowering.math.pairs import fast_two_sum
from dlc.lowering.math.term import Format, Number, Term


@dataclass(frozen=True, slots=True)
class ExpFormat:
    """What exp needs to know of a dtype.

    `high + low` is log(2); `high` has so few bits that its product with any n is exact. exp is 0 below
    `lowest` and infinite above `highest`; `expm1` is -1 below `minus_one`; 1 + x is 1 for x up to `tiny`.
    """

    tail: tuple[float, ...]
    high: float
    low: float
    lowest: float
    highest: float
    minus_one: float
    tiny: float


def _ln2(bits: int) -> tuple[float, float]:
    """log(2) as a number with `bits` bits after the point, and the rest."""
    high = round(LN2[0] * 2**bits) / 2**bits
    return high, (LN2[0] - high) + LN2[1]


EXP: dict[DType, ExpFormat] = {
    F32: ExpFormat(coefficients.EXP_F32, *_ln2(15), -104.0, 89.0, -18.0, 2.0**-24),
    F64: ExpFormat(coefficients.EXP_F64, *_ln2(40), -746.0, 710.0, -38.0, 2.0**-53),
}


@dataclass(frozen=True, slots=True)
class Reduced:
    """`x = n * log(2) + rest`; `count` has n in its low bits.

    `head` is `rest` before its last rounding: `head + correction` is exact.
    """

    count: Term
    head: Term
    correction: Term
    rest: Term

    @property
    def small(self) -> Term:
        """`exp(rest) - 1 - head`."""
        tail = self.rest.polynomial(EXP[self.rest.dtype].tail)
        return (self.rest * self.rest).times_plus(tail, self.correction)

    def scaled_expm1(self, scale: Term, addend: Term) -> Term:
        """`scale * (exp(rest) - 1) + addend`, for a scale that is a power of two."""
        # The large parts first: where they cancel, they do so exactly.
        return scale.times_plus(self.small, scale.times_plus(self.head, addend))

    def power(self, more: int = 0) -> Term:
        """`2 ** (n + more)`, if that is a normal number."""
        layout = self.rest.format
        one = (layout.bias + more) << layout.fraction_bits
        return ((self.count << layout.fraction_bits) + one).float()


def halves(count: Term, layout: Format) -> tuple[Term, Term]:
    """Two powers of two whose product is `2 ** count`, which itself may be out of range."""
    half = (count >> 1) << layout.fraction_bits
    other = (count << layout.fraction_bits) - half
    return (other + layout.one).float(), (half + layout.one).float()


def reduce(x: Term, more: Number = 0) -> Reduced:
    """`x + more` reduced about the nearest multiple of log(2).

    x has at most the magnitude where exp overflows, and `more` is much smaller.
    """
    count, n, head = _nearest_multiple(x)
    correction = n.times_plus(-EXP[x.dtype].low, more)
    return Reduced(count, head, correction, head + correction)


def _nearest_multiple(x: Term) -> tuple[Term, Term, Term]:
    """n in the low bits of an integer, n as a float, and `x - n * log(2)` with the high part of log(2)."""
    magic = x.format.magic
    shifted = x.times_plus(LOG2_E[0], magic)
    n = shifted - magic
    return shifted.bits(), n, n.times_plus(-EXP[x.dtype].high, x)


def exp(x: Term) -> Term:
    """`e ** x`."""
    facts = EXP[x.dtype]
    return _exp_in_range(x.at_least(facts.lowest).at_most(facts.highest))


def _exp_in_range(x: Term) -> Term:
    facts = EXP[x.dtype]
    count, n, head = _nearest_multiple(x)
    rest = n.times_plus(-facts.low, head)
    first, second = halves(count, x.format)
    return rest.polynomial((1, 1, *facts.tail)) * first * second


def exp_of_sum(x: Term, more: Term) -> Term:
    """`e ** (x + more)` for a number that is no more than a rounding error of x."""
    facts = EXP[x.dtype]
    inside = (x > facts.lowest) & (x < facts.highest)
    reduced = reduce(x.at_least(facts.lowest).at_most(facts.highest), more.where(inside, 0))
    first, second = halves(reduced.count, x.format)
    most, lost = fast_two_sum(x.constant(1), reduced.head)
    return (most + (lost + reduced.small)) * first * second


def expm1(x: Term) -> Term:
    """`e ** x - 1`, accurate near 0."""
    facts = EXP[x.dtype]
    reduced = reduce(x.at_least(facts.minus_one).at_most(facts.highest))
    # Half of the result has half of 2**n in it, which does not overflow before the end.
    half = reduced.power(-1)
    result = reduced.scaled_expm1(half, half - 0.5) * 2
    return result.unless(abs(x) <= facts.tiny, x)


RAISED = 64
"""`2 ** RAISED` times the smallest denormal number is a normal number, in f32 and in f64."""


def sigmoid(x: Term) -> Term:
    """`1 / (1 + e ** -x)`.

    With `e = exp(-abs(x))` and `part = e / (1 + e)` it is `1 - part`, or `e - e * part` for a negative x:
    roundings of the smaller term hardly count.
    """
    facts, layout = EXP[x.dtype], x.format
    count, n, head = _nearest_multiple((-abs(x)).at_least(facts.lowest))
    rest = n.times_plus(-facts.low, head)
    # e may be denormal, so it is kept as a multiple that is not: a result is rounded once.
    scale = ((count + (layout.bias + RAISED)) << layout.fraction_bits).float()
    multiple = rest.polynomial((1, 1, *facts.tail)) * scale
    e = multiple * 2.0**-RAISED
    whole = multiple.where(x < 0, 2.0**RAISED)
    return (-(e / (e + 1))).times_plus(whole, whole) * 2.0**-RAISED
