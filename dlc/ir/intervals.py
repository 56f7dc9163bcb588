"""Interval arithmetic: the values that a size can take, from the bounds of its dims."""

from __future__ import annotations

from typing import TypeAlias

from dlc.ir.dims import Atom, Bounds, Dim, Extreme, Quotient, Size

Interval: TypeAlias = tuple[int | None, int | None]
"""The least and the greatest value; `None` is minus or plus infinity."""


def interval(size: Size, bounds: Bounds) -> Interval:
    """An enclosure of the values a size can take; `None` is minus or plus infinity.

    >>> from dlc.ir.dims import symbol
    >>> t = symbol("T")
    >>> interval(3 * t - 1, {"T": (1, 8)}), interval(t * t, {"T": (2, None)})
    ((2, 23), (4, None))
    """
    return _interval(size, bounds, {})


def _interval(size: Size, bounds: Bounds, known: dict[Size, Interval]) -> Interval:
    """The same, with the intervals that are known: quotients of quotients have one size very often."""
    if isinstance(size, int):
        return size, size
    found = known.get(size)
    if found is None:
        found = known[size] = _sum_of_terms(size, bounds, known)
    return found


def _sum_of_terms(size: Dim, bounds: Bounds, known: dict[Size, Interval]) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in size.terms:
        term: Interval = (factor, factor)
        for atom, power in monomial:
            for _ in range(power):
                term = _interval_product(term, _atom_interval(atom, bounds, known))
        low = None if low is None or term[0] is None else low + term[0]
        high = None if high is None or term[1] is None else high + term[1]
    return low, high


def _interval_product(one: Interval, two: Interval) -> Interval:
    if one == (0, 0) or two == (0, 0):
        return 0, 0
    inf = float("inf")
    ends_one = (-inf if one[0] is None else one[0], inf if one[1] is None else one[1])
    ends_two = (-inf if two[0] is None else two[0], inf if two[1] is None else two[1])
    corners = [0 if 0 in (x, y) else x * y for x in ends_one for y in ends_two]
    low, high = min(corners), max(corners)
    return (
        low if isinstance(low, int) else None,
        high if isinstance(high, int) else None,
    )


def _atom_interval(atom: Atom, bounds: Bounds, known: dict[Size, Interval]) -> Interval:
    match atom:
        case str():
            return bounds.get(atom, (0, None))
        case Quotient(numerator, denominator):
            top, bottom = [_interval(each, bounds, known) for each in (numerator, denominator)]
            if bottom[0] is None or bottom[0] < 1:
                return None, None
            divisors = (bottom[0], bottom[1])
            lows = [top[0] // d for d in divisors if top[0] is not None and d is not None]
            highs = [top[1] // d for d in divisors if top[1] is not None and d is not None]
            if bottom[1] is None:  # the quotient also comes near 0
                lows.append(0)
                highs.append(0)
            return None if top[0] is None else min(lows), None if top[1] is None else max(highs)
        case Extreme(which, (one, other)):
            first, second = _interval(one, bounds, known), _interval(other, bounds, known)
            pick = max if which == "max" else min
            ends: list[int | None] = []
            for x, y, infinite_wins in (
                (first[0], second[0], which == "min"),
                (first[1], second[1], which == "max"),
            ):
                if x is None or y is None:
                    ends.append(None if infinite_wins else x if y is None else y)
                else:
                    ends.append(pick(x, y))
            return ends[0], ends[1]
