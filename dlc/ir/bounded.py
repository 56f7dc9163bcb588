"""Proofs that sizes are never negative, from the bounds of their dims."""

from __future__ import annotations

from dlc.ir.dims import Bounds, Extreme, Size, interval, maximum, minimum

MOST_CASES = 6
"""The most minima and maxima of a size that are expanded; each of them doubles the work."""


def never_negative(size: Size, bounds: Bounds, cases: int = MOST_CASES) -> bool:
    """Whether a size is provably at least 0 for all dims inside their bounds.

    >>> from dlc.ir.dims import symbol
    >>> t = symbol("T")
    >>> never_negative(t - 2, {"T": (2, 8)}), never_negative(t - 3, {"T": (2, 8)})
    (True, False)
    >>> never_negative(t - minimum(t, 5), {})
    True
    """
    least = interval(size, bounds)[0]
    if least is not None and least >= 0:
        return True
    if isinstance(size, int) or not cases:
        return False
    for monomial, factor in size.terms:
        match monomial:
            case ((Extreme(which, (one, other)), 1),):
                extreme = minimum(one, other) if which == "min" else maximum(one, other)
                rest = size - factor * extreme
                # c - min(a, b) is not below c - a, nor below c - b; c + min(a, b) is one of these.
                enough = any if (which == "min") == (factor < 0) else all
                either = (rest + factor * one, rest + factor * other)
                return enough(never_negative(each, bounds, cases - 1) for each in either)
            case _:
                pass
    return False
