"""asin, acos, atan and atan2."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.ir.types import F32, F64, DType
from dlc.lowering.math import coefficients
from dlc.lowering.math.coefficients import PI
from dlc.lowering.math.pairs import fast_two_sum, remainder
from dlc.lowering.math.term import SINGLE, Term


@dataclass(frozen=True, slots=True)
class ArcFormat:
    """What these functions need to know of a dtype; `high + low` is half of pi."""

    asin: tuple[float, ...]
    atan: tuple[float, ...]
    high: float
    low: float


def _right_angle(high: float) -> tuple[float, float]:
    return high, (PI[0] / 2 - high) + PI[1] / 2


ARC: dict[DType, ArcFormat] = {
    F32: ArcFormat(
        coefficients.ASIN_F32, coefficients.ATAN_F32, *_right_angle(SINGLE.round(PI[0] / 2))
    ),
    F64: ArcFormat(coefficients.ASIN_F64, coefficients.ATAN_F64, *_right_angle(PI[0] / 2)),
}
ENDLESS = 2.0**60
"""From here on atan is pi / 2 in f32 and f64."""


def _arc_sine(x: Term) -> tuple[Term, Term, Term]:
    """Whether |x| is more than a half; then asin of the root of `(1 - |x|) / 2`, else asin of |x|.

    The arc is in two parts, the first much larger.
    """
    size = abs(x)
    large = size > 0.5
    square = ((1 - size) * 0.5).where(large, x * x)
    root = square.sqrt().where(large, size)
    tail = root * square * square.polynomial(ARC[x.dtype].asin)
    return large, root, tail


def asin(x: Term) -> Term:
    """The inverse of sin, from -pi / 2 to pi / 2; NaN outside -1 and 1."""
    right_angle = ARC[x.dtype]
    large, root, tail = _arc_sine(x)
    # asin(x) = pi / 2 - 2 * asin(sqrt((1 - x) / 2))
    most, lost = fast_two_sum(x.constant(right_angle.high), root * -2)
    beyond = most + (tail.times_plus(-2, right_angle.low) + lost)
    return beyond.where(large, root + tail).with_sign_of(x)


def acos(x: Term) -> Term:
    """The inverse of cos, from 0 to pi; NaN outside -1 and 1."""
    right_angle = ARC[x.dtype]
    large, root, tail = _arc_sine(x)
    negative = x < 0
    # From 0 where x is large, else down from pi / 2; the mirror image where x is negative.
    below = (2 * right_angle.high - root * 2) + (2 * right_angle.low - tail * 2)
    beyond = ((root + tail) * 2).unless(negative, below)
    root, tail = root.where(negative, -root), tail.where(negative, -tail)
    return beyond.where(large, root + (tail + right_angle.low) + right_angle.high)


def atan(x: Term) -> Term:
    """The inverse of tan, from -pi / 2 to pi / 2."""
    size = abs(x).at_most(ENDLESS)
    steep = size > 1
    divisor = size.where(steep, 1)
    ratio = size.constant(-1).where(steep, size) / divisor
    # What rounding the reciprocal left out, over the divisor; it is nothing where that is 1.
    lost = remainder(size.constant(-1).where(steep, size), ratio, divisor) * abs(ratio)
    return _angle(size.constant(1).where(steep, 0), ratio, lost).with_sign_of(x)


def atan2(y: Term, x: Term) -> Term:
    """The angle of the point (x, y), from -pi to pi; at 0 what its signs say it approaches."""
    if x.dtype is F32:
        return atan2(y.cast(F64), x.cast(F64)).cast(F32)
    height, width = abs(y), abs(x)
    steep, left = height > width, x.sign_bit().differs(0)
    small, large = width.where(steep, height), height.where(steep, width)
    # Two infinities are as good as two ones, and two zeros as a zero and a one.
    infinite = small.equals(math.inf) & large.equals(math.inf)
    small, large = small.unless(infinite, 1), large.unless(infinite | large.equals(0), 1)
    small = (-small).where(steep ^ left, small)
    ratio = small / large
    lost = (remainder(small, ratio, large) / large).unless(large.equals(math.inf), 0)
    turns = small.constant(1).where(steep, 0)
    return _angle((2 - turns).where(left, turns), ratio, lost).with_sign_of(y)


def _angle(turns: Term, ratio: Term, lost: Term) -> Term:
    """`turns * pi / 2 + atan(ratio + lost)` for 0, 1 or 2 turns and a ratio from -1 to 1."""
    right_angle, square = ARC[ratio.dtype], ratio * ratio
    low = turns.times_plus(right_angle.low, lost.times_plus(square * -0.5, lost))
    tail = (ratio * square).times_plus(square.polynomial(right_angle.atan), low)
    most, rest = fast_two_sum(turns * right_angle.high, ratio)
    return most + (rest + tail)
