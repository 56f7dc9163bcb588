"""Proofs that sizes are never negative, from the bounds of their dims."""

from __future__ import annotations

from dlc.ir.dims import Bounds, Dim, Extreme, Size, maximum, minimum, names
from dlc.ir.intervals import interval
from dlc.ir.periodic import one_period

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
    if _is_never_negative_in_a_period(size, bounds):
        return True
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


def _is_never_negative_in_a_period(size: Dim, bounds: Bounds) -> bool:
    """Whether a size of one dim is not below 0 in the first period from the lowest value on, nor later."""
    if len(names(size)) != 1:
        return False
    (name,) = names(size)
    found = one_period(size, bounds.get(name, (0, None))[0])
    return found is not None and found.growth >= 0 and min(found.values) >= 0


def larger(one: Size, other: Size, bounds: Bounds) -> Size:
    """The larger of two sizes; symbolic where there is no proof which one it is.

    >>> from dlc.ir.dims import symbol
    >>> h = symbol("H")
    >>> larger(h // 2 - 2 * (h // 4), 0, {"H": (1, None)})
    <Dim H//2 - 2*(H//4)>
    """
    if never_negative(one - other, bounds):
        return one
    return other if never_negative(other - one, bounds) else maximum(one, other)


def smaller(one: Size, other: Size, bounds: Bounds) -> Size:
    """The smaller of two sizes; symbolic where there is no proof which one it is."""
    if never_negative(one - other, bounds):
        return other
    return one if never_negative(other - one, bounds) else minimum(one, other)
