"""Rounding to integers on processors without an instruction for it (x86-64 before SSE4.1).

A number below `2 ** fraction_bits` in size plus that power has no room for a fraction: the processor rounds
it to nearest, ties to even, and subtracting the power leaves the integer. Larger numbers are integers.
"""

from __future__ import annotations

from dlc.lowering.math.term import Term


def nearest(x: Term) -> Term:
    """To the nearest integer, ties to even; NaN and infinities stay, and so does the sign of zero."""
    size = abs(x)
    limit = 2.0**x.format.fraction_bits
    rounded = ((size + limit) - limit).with_sign_of(x)
    return rounded.where(size < limit, x)


def trunc(x: Term) -> Term:
    """The integer toward zero."""
    size = abs(x)
    rounded = abs(nearest(x))
    return (rounded - 1).where(rounded > size, rounded).with_sign_of(x).where(size < INFINITY, x)


def floor(x: Term) -> Term:
    """The largest integer that is not above x."""
    rounded = nearest(x)
    return (rounded - 1).where(rounded > x, rounded)


def ceil(x: Term) -> Term:
    """The smallest integer that is not below x; of numbers above -1 the zero has their sign."""
    return -floor(-x)


INFINITY = float("inf")
