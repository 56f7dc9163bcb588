"""Slopes of a function by central differences, and where it has kinks.

Along a direction v, (s(x + h v) - s(x - h v)) / 2h is the slope of s at x with an error of order h². The
same for h / 2 takes most of that error away (Richardson's extrapolation) and says how large it was. Where
the slopes before x and behind it do not meet as h shrinks, or the estimates do not agree, something in
between is not smooth; a smaller h may leave it outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]

STEPS = (2e-4, 1e-5, 1e-6)
"""h, tried in turn, for numbers around 1: the error of rounding is 1e-16 / h, kinks are closer than h."""


def slope(
    function: Callable[[Numbers], float],
    at: Numbers,
    here: float,
    direction: Numbers,
    tolerance: float,
) -> float | None:
    """The derivative of a function along a direction, or None where it has a kink.

    `here` is the function at `at`. The error is below `tolerance` as far as the differences tell.

    >>> x, one = np.array(2.0), np.array(1.0)
    >>> round(slope(lambda x: float(x**3), x, 8.0, one, 1e-6), 9)
    12.0
    >>> slope(lambda x: float(abs(x - 2)), x, 0.0, one, 1e-6) is None
    True
    """
    for h in STEPS:
        coarse, jump = _slopes(function, at, here, direction, h)
        fine, nearer_jump = _slopes(function, at, here, direction, h / 2)
        # Of a smooth function the jump is its curvature times h, so that nothing is left here.
        kink = abs(2 * nearer_jump - jump)
        if abs(fine - coarse) <= tolerance and kink <= tolerance:
            return (4 * fine - coarse) / 3
    return None


def _slopes(
    function: Callable[[Numbers], float],
    at: Numbers,
    here: float,
    direction: Numbers,
    h: float,
) -> tuple[float, float]:
    """The central slope, and how much larger the slope behind is than the one before."""
    before = (here - function(at - h * direction)) / h
    behind = (function(at + h * direction) - here) / h
    return (before + behind) / 2, behind - before
