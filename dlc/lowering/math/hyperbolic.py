"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.ir.types import F32, F64, DType
from dlc.lowering.math import coefficients
from dlc.lowering.math.exponential import Reduced, reduce
from dlc.lowering.math.logarithm import log1p
from dlc.lowering.math.pairs import fast_two_sum, remainder
from dlc.lowering.math.term import Term


@dataclass(frozen=True, slots=True)
class HyperbolicFormat:
    """What these functions need to know of a dtype.

    sinh and cosh are infinite before `highest`; tanh is 1 from `one` on; sinh(x) is x up to `tiny`.
    """

    sinh: tuple[float, ...]
    cosh: tuple[float, ...]
    tanh: tuple[float, ...]
    highest: float
    one: float
    tiny: float


HYPERBOLIC: dict[DType, HyperbolicFormat] = {
    F32: HyperbolicFormat(
        coefficients.SINH_F32, coefficients.COSH_F32, coefficients.TANH_F32, 89.5, 9.25, 2.0**-13
    ),
    F64: HyperbolicFormat(
        coefficients.SINH_F64, coefficients.COSH_F64, coefficients.TANH_F64, 710.5, 20.0, 2.0**-27
    ),
}

TANH_SPLIT = 0.625


def tanh(x: Term) -> Term:
    """The hyperbolic tangent."""
    facts, size = HYPERBOLIC[x.dtype], abs(x)
    square = x * x
    small = (size * square).times_plus(square.polynomial(facts.tanh), size)
    limited = size.at_most(facts.one)
    reduced = reduce(limited + limited)
    power = reduced.power()
    large = 1 - 2 / reduced.scaled_expm1(power, power + 1)
    return small.where(size < TANH_SPLIT, large).with_sign_of(x)


@dataclass(frozen=True, slots=True)
class Halved:
    """A number `n * log(2) + rest` by its `reduced`, and a quarter of `2**n + 2**-n` and `2**n - 2**-n`.

    The larger power may be out of range, a quarter of it is not.
    """

    reduced: Reduced
    square: Term
    growing: Term
    shrinking: Term

    @property
    def total(self) -> Term:
        return self.growing + self.shrinking

    @property
    def difference(self) -> Term:
        return self.growing - self.shrinking

    @property
    def cosh_minus_one(self) -> Term:
        """Of the rest."""
        square = self.square
        return square * square.polynomial((0.5, *HYPERBOLIC[square.dtype].cosh))

    @property
    def sinh_minus_head(self) -> Term:
        """Of the rest."""
        rest, square = self.reduced.rest, self.square
        tail = square.polynomial(HYPERBOLIC[rest.dtype].sinh)
        return (rest * square).times_plus(tail, self.reduced.correction)


def _halved(x: Term) -> Halved:
    size = abs(x).at_most(HYPERBOLIC[x.dtype].highest)
    reduced, layout = reduce(size), x.format
    exponent = reduced.count << layout.fraction_bits
    quarter = (layout.bias - 2) << layout.fraction_bits
    # Where 2**-n is too small to be a normal number it does not count.
    shrinking = (-exponent + quarter).bitcast(layout.signed).at_least(0).float()
    square = reduced.rest * reduced.rest
    return Halved(reduced, square, (exponent + quarter).float(), shrinking)


def cosh(x: Term) -> Term:
    """The hyperbolic cosine."""
    parts = _halved(x)
    sinh_of_rest = parts.reduced.head + parts.sinh_minus_head
    small = parts.difference.times_plus(sinh_of_rest, parts.shrinking)
    return (parts.growing + parts.total.times_plus(parts.cosh_minus_one, small)) * 2


def sinh(x: Term) -> Term:
    """The hyperbolic sine."""
    parts = _halved(x)
    total, difference = parts.total, parts.difference
    large = total.times_plus(parts.reduced.head, difference)
    small = total.times_plus(parts.sinh_minus_head, difference * parts.cosh_minus_one)
    result = ((large + small) * 2).with_sign_of(x)
    return result.unless(abs(x) <= HYPERBOLIC[x.dtype].tiny, x)


LARGE = 2.0**500
"""From here on a square may overflow in f64, and adding 1 changes nothing."""


def asinh(x: Term) -> Term:
    """The inverse of sinh."""
    if x.dtype is F32:
        return asinh(x.cast(F64)).cast(F32)
    size = abs(x)
    square = size * size
    return _log_of_sum(size, size, square / ((square + 1).sqrt() + 1)).with_sign_of(x)


def acosh(x: Term) -> Term:
    """The inverse of cosh for numbers from 1 on; NaN for others."""
    if x.dtype is F32:
        return acosh(x.cast(F64)).cast(F32)
    above = x - 1
    root = above.times_plus(above, above + above).sqrt()
    return _log_of_sum(x, root, above).unless(x < 1, math.nan)


def _log_of_sum(x: Term, first: Term, second: Term) -> Term:
    """`log(1 + first + second)`, or `log(2 * x)` where x is so large that its square overflows."""
    large = x > LARGE
    total, lost = fast_two_sum(first, second)
    more = (lost / (total + 1)).unless(large, 0)
    return log1p(total.unless(large, x), x.constant(1).where(large, 0), more)


def atanh(x: Term) -> Term:
    """The inverse of tanh; infinite at -1 and 1, NaN outside."""
    if x.dtype is F32:
        return atanh(x.cast(F64)).cast(F32)
    size = abs(x)
    twice, below = size + size, 1 - size
    quotient = twice / below
    lost = remainder(twice, quotient, below) - quotient * ((1 - below) - size)
    return (log1p(quotient, 0, lost / (size + 1)) * 0.5).with_sign_of(x)
