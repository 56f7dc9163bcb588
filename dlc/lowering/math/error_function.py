"""erf, `2 / sqrt(pi)` times the integral of `exp(-t * t)` from 0 on."""

from __future__ import annotations

from dlc.ir.types import F32
from dlc.lowering.math.coefficients import (
    ERF_F32,
    ERF_F64,
    ERF_LARGE_F32,
    ERF_MIDDLE,
    ERFC_F64,
)
from dlc.lowering.math.exponential import exp
from dlc.lowering.math.term import Term


def erf(x: Term) -> Term:
    """The error function."""
    return _erf_single(x) if x.dtype is F32 else _erf_double(x)


def _erf_single(x: Term) -> Term:
    """By two polynomials."""
    square = x * x
    small = x.times_plus(square.polynomial(ERF_F32), x)
    limited = abs(x).at_most(3.92)  # where erf rounds to 1
    large = (limited - ERF_MIDDLE).polynomial_by_second_order(ERF_LARGE_F32).with_sign_of(x)
    return small.where(abs(x) < 1, large)


def _erf_double(x: Term) -> Term:
    """By a polynomial up to 1, then as `1 - erfc(x)` with `erfc(x) * exp(x * x)` a polynomial."""
    square = x * x
    small = x.times_plus(square.polynomial(ERF_F64), x)
    limited = abs(x).at_most(6)  # where erf rounds to 1
    scaled = ((limited - 2.5) / (limited + 2.5)).polynomial(ERFC_F64)
    large = (1 - scaled * exp(-(limited * limited))).with_sign_of(x)
    return small.where(abs(x) < 1, large)
