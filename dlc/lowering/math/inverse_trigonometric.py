"""asin, acos, atan and atan2."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.ir.types import F32, F64, DType
from dlc.lowering.math import coefficients
from dlc.lowering.math.coefficients import PI
from dlc.lowering.math.pairs import fast_two_sum, two_product
from dlc.lowering.math.term import Term


@dataclass(frozen=True, slots=True)
class ArcFormat:
    """What these functions need to know of a dtype; `high + low` is a quarter of pi."""

    asin: tuple[float, ...]
    atan: tuple[float, ...]
    high: float
    low: float


def _single(value: float) -> float:
    return SINGLE.round(value)


ARC: dict[DType, ArcFormat] = {
    F32: ArcFormat(coefficients.ASIN_F32, coefficients.ATAN_F32, 0.78539818525314331, PI[0] / 4 - 0.78539818525314331),
    F64: ArcFormat(coefficients.ASIN_F64, coefficients.ATAN_F64, PI[0] / 4, PI[1] / 4),
}

TANGENT = math.sqrt(2) - 1
"""Of an eighth of pi."""


def _arc_sine(x: Term) -> tuple[Term, Term, Term, Term]:
    """`asin(|x|)` up to a half as `root + tail`; beyond, what that is for `sqrt((1 - |x|) / 2)`."""
    size = abs(x)
    large = size > 0.5
    square = ((1 - size) * 0.5).where(large, x * x)
    root = square.sqrt().where(large, size)
    tail = root * square * square.polynomial(ARC[x.dtype].asin)
    return large, root, tail


def asin(x: Term) -> Term:
    """The inverse of sin, from -pi / 2 to pi / 2; NaN outside -1 and 1."""
    facts = ARC[x.dtype]
    large, root, tail = _arc_sine(x)
    # asin(x) = pi / 2 - 2 * asin(sqrt((1 - x) / 2))
    beyond = (facts.high * 2 - root * 2) + (facts.low * 2 - tail * 2)
    return beyond.where(large, root + tail).with_sign_of(x)


def acos(x: Term) -> Term:
    """The inverse of cos, from 0 to pi; NaN outside -1 and 1."""
    facts = ARC[x.dtype]
    large, root, tail = _arc_sine(x)
    negative = x < 0
    beyond = (root + tail) * 2
    beyond = beyond.unless(negative, (facts.high * 4 - root * 2) + (facts.low * 4 - tail * 2))
    root, tail = (-root).unless(negative, root), (-tail).unless(negative, tail)
    inside = facts.high * 2 + (root + (tail + facts.low * 2))
    return beyond.where(large, inside)


def atan(x: Term) -> Term:
    """The inverse of tan, from -pi / 2 to pi / 2."""
    eighths, ratio = _octant(abs(x), x.constant(1))
    return _angle(eighths, ratio).with_sign_of(x)
