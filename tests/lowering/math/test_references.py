"""What the functions' errors and coefficients are measured and derived with, against mpmath."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

from benchmarks import derive_math
from benchmarks.math_accuracy import FUNCTIONS, Function, samples
from dlc.ir.types import F64

pytestmark = pytest.mark.long


def sigmoid(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


def rsqrt(x: mpf) -> mpf:
    return 1 / mp.sqrt(x)


def remainder(x: mpf, y: mpf) -> mpf:
    with mp.workprec(3000):  # the largest quotient of f64 has 2,100 binary digits
        return x - y * mp.floor(x / y)


OWN: dict[str, Callable[..., mpf]] = {"sigmoid": sigmoid, "rsqrt": rsqrt, "remainder": remainder}
ROUNDED = [f for f in FUNCTIONS.values() if f.name != "truncated_remainder"]
"""That remainder is exact in any format; the one with the sign of its divisor is rounded."""


def exactly(x: np.longdouble) -> mpf:
    """A long double, which has 64 digits, as a number of mpmath."""
    mantissa, exponent = np.frexp(x)
    return mpf(int(np.ldexp(mantissa, 64))) * mpf(2) ** (int(exponent) - 64)


@pytest.mark.parametrize("function", ROUNDED, ids=lambda function: function.name)
def test_long_double_results_are_right_to_a_hundredth_of_an_ulp(function: Function) -> None:
    mp.prec = 300
    truth: Callable[..., mpf] = OWN.get(function.name) or getattr(mp, function.name)
    for operands in samples(function, F64, 400, seed=3):
        with np.errstate(all="ignore"):
            results = function.reference(*[x.astype(np.longdouble) for x in operands])
        for result, *row in zip(results, *operands, strict=True):
            if all(np.isfinite(number) and number != 0 for number in (result, *row)):
                exact = truth(*[mpf(float(x)) for x in row])
                assert abs(exactly(result) - exact) <= abs(exact) * mpf(2) ** -60, row


def test_the_coefficients_are_those_that_the_script_derives() -> None:
    assert derive_math.TARGET.read_text() == derive_math.text()
