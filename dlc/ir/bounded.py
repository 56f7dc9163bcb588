"""What is sure about a size from the bounds of its dims."""

from __future__ import annotations

from dlc.ir.dims import Bounds, Extreme, Size, interval, maximum, minimum

MOST_CASES = 6
"""So many minima and maxima of a size are taken apart; more are rare, and each doubles the work."""


def never_negative(size: Size, bounds: Bounds, cases: int = MOST_CASES) -> bool:
    """Whether a size is 0 or more wherever the dims are inside their bounds, as far as can be seen.

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
