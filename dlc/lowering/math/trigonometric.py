"""sin, cos and tan, after the angle is reduced to half a turn.

f32 is computed in f64, where one polynomial for the sine serves all.
"""

from __future__ import annotations

from dlc.ir.types import F32
from dlc.lowering.math.coefficients import COS_F64, PI, SIN_F64, SINE_OF_PI
from dlc.lowering.math.pairs import fast_two_sum, remainder, two_product
from dlc.lowering.math.reduction import Angle, reduce_angle
from dlc.lowering.math.term import Term

TINY = 2.0**-27
"""Up to here sin(x) and tan(x) are x, and products with pieces of 1 / pi may be denormal in f64."""


def sin(x: Term) -> Term:
    """The sine of an angle in radians."""
    (angle,) = reduce_angle(x, (0,))
    return _finish(_flip(_sine(angle)[0], angle.sign_flip), x)


def cos(x: Term) -> Term:
    """The cosine of an angle in radians."""
    # cos(pi * (n + 1/2 + part)) = -(-1)**n * sin(pi * part)
    (angle,) = reduce_angle(x, (0.5,))
    result = -_flip(_sine(angle)[0], angle.sign_flip)
    return result.cast(F32) if x.dtype is F32 else result


def tan(x: Term) -> Term:
    """The tangent of an angle in radians."""
    above, below = reduce_angle(x, (0, 0.5))
    (sine, rest), (cosine, more) = _sine(above), _sine(below)
    sine = -sine
    quotient = sine / cosine
    if rest and more:
        left = remainder(sine, quotient, cosine) - rest - quotient * more
        quotient = quotient + left / cosine
    return _finish(_flip(quotient, above.sign_flip ^ below.sign_flip), x)


def _sine(angle: Angle) -> tuple[Term, Term | None]:
    """`sin(pi * part)`, and for f64 what is to be added to that."""
    if angle.low is None:
        part = angle.high
        return part * (part * part).polynomial(SINE_OF_PI), None
    return _sine_of_pair(angle.high, angle.low)


def _sine_of_pair(high: Term, low: Term) -> tuple[Term, Term]:
    """`sin(pi * (high + low))`, by the cosine beyond an eighth of a turn."""
    sign, size, rest = high.sign_bit(), abs(high), _flip(low, high.sign_bit())
    turned = size > 0.25
    size, rest = (0.5 - size).where(turned, size), (-rest).where(turned, rest)
    x, low = two_product(size, size.constant(PI[0]))
    low = rest.times_plus(PI[0], size.times_plus(PI[1], low))
    square = x * x
    half = square * 0.5
    tail = (x * square).times_plus(square.polynomial(SIN_F64), low.times_plus(-half, low))
    sine, sine_rest = fast_two_sum(x, tail)
    tail = (square * square).times_plus(square.polynomial(COS_F64), x * -low)
    most = 1 - half
    cosine, cosine_rest = fast_two_sum(most, ((1 - most) - half) + tail)
    return (
        _flip(cosine.where(turned, sine), sign),
        _flip(cosine_rest.where(turned, sine_rest), sign),
    )


def _flip(value: Term, sign: Term) -> Term:
    return (value.bits() ^ sign).float()


def _finish(result: Term, x: Term) -> Term:
    """The result in x's dtype; where x is tiny, x itself."""
    return result.cast(F32) if x.dtype is F32 else result.unless(abs(x) < TINY, x)
