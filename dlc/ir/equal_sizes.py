"""Equality of two sizes: for all values of their dims, for none, or for some, and then for which."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from math import gcd

from dlc.ir.dims import (
    Bounds,
    Dim,
    Extreme,
    Size,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    names,
    symbol,
)
from dlc.ir.intervals import interval
from dlc.ir.periodic import one_period


def never_equal(one: Size, other: Size, bounds: Bounds | None = None) -> bool:
    """Whether two sizes surely differ; without bounds each dim is any number from 1 on.

    >>> b, t = symbol("B"), symbol("T")
    >>> never_equal(2 * t, 2 * t + 1), never_equal(3 * b, 4 * b), never_equal(b, t)
    (True, True, False)
    """
    difference = one - other
    least = dict.fromkeys(names(difference), (1, None)) if bounds is None else bounds
    low, high = interval(difference, least)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return True
    if not isinstance(difference, Dim):
        return False
    found = _equal_residues(difference)
    return _leaves_remainder(difference) or (found is not None and not found[1])


def always_equal(one: Size, other: Size) -> bool:
    """Whether two sizes are equal for all values of their dims.

    >>> h = symbol("H")
    >>> always_equal((h + 15) // 16 - (h - 1) // 16, 1), always_equal(2 * (h // 2), h)
    (True, False)
    """
    difference = one - other
    if not isinstance(difference, Dim):
        return difference == 0
    found = _equal_residues(difference)
    return found is not None and len(found[1]) == found[0]


def solution(one: Size, other: Size) -> tuple[str, Size] | None:
    """A dim and what it must be for two sizes to be equal; None where that is not a single size.

    >>> h, n = symbol("H"), symbol("N")
    >>> solution(2 * (h // 2), h), solution(n + 1, 81), solution(h, n)
    (('H', <Dim 2*H>), ('N', 80), ('H', <Dim N>))
    >>> solution(h, n - minimum(symbol("P"), n)), solution(32 * h * n, 512 * n)
    (('H', <Dim N - P>), ('H', 16))
    """
    difference = _without_common_factors(one - other)
    if not isinstance(difference, Dim):
        return None
    chosen = _only_branch(difference)
    if chosen is not None:
        return solution(chosen, 0)
    return _multiple(difference) or _only_value(difference)


def _without_common_factors(difference: Size) -> Size:
    """The difference over the dims that all of its terms have, none of which is 0."""
    for name in sorted(names(difference)):
        terms = difference.terms if isinstance(difference, Dim) else ()
        if all((name, 1) in monomial for monomial, _ in terms):
            difference = floor_divide(difference, symbol(name))
    return difference


def _only_branch(difference: Dim) -> Size | None:
    """The difference with one size of an extreme in its place, where it is never 0 with the other one.

    `S` is `T - min(P, T)` only where that is `T - P`, as S is 1 or more.
    """
    for monomial, factor in difference.terms:
        match monomial:
            case ((Extreme(which, sizes), 1),):
                rest = difference - factor * _extreme(which, sizes)
                for kept, other in (sizes, sizes[::-1]):
                    if never_equal(rest + factor * other, 0):
                        return rest + factor * kept
            case _:
                pass
    return None


def not_negative(one: Size, other: Size) -> Size | None:
    """The size that is 0 or more just where two sizes are equal, one of them an extreme of the other.

    Or one of them is what is left of a slice in an axis, and the other its length.

    >>> t = symbol("T")
    >>> not_negative(t, minimum(t, 16)), not_negative(t, 16)
    (<Dim -T + 16>, None)
    >>> not_negative(minimum(t, 16) - minimum(t - 3, 16), 3)
    <Dim -T + 16>
    """
    difference = one - other
    if not isinstance(difference, Dim):
        return None
    for monomial, factor in difference.terms:
        match monomial:
            case ((Extreme(which, sizes), 1),):
                for own, foreign in (sizes, sizes[::-1]):
                    if difference == factor * (_extreme(which, sizes) - own):
                        return foreign - own if which == "min" else own - foreign
            case _:
                pass
    room = _room(difference)
    return _room(-difference) if room is None else room


def _room(difference: Size) -> Size | None:
    """`c - b`, where a difference is `min(b, c) - min(a, c) - (b - a)`, with b the larger: 0 just there.

    That is how far an axis of size c goes beyond a slice from a to b.
    """
    pairs = {1: list[tuple[Size, Size]](), -1: list[tuple[Size, Size]]()}
    for monomial, factor in difference.terms if isinstance(difference, Dim) else ():
        match monomial:
            case ((Extreme("min", (a, b)), 1),) if factor in pairs:
                pairs[factor] += [(a, b), (b, a)]
            case _:
                pass
    for (end, size), (start, same) in product(pairs[1], pairs[-1]):
        length = end - start
        cut = minimum(end, size) - minimum(start, size)
        if same == size and isinstance(length, int) and length > 0 and difference == cut - length:
            return size - end
    return None


def highest_value(size: Size) -> int | None:
    """The highest value of the only dim of a size `c - k*N` at which that is 0 or more.

    >>> highest_value(17 - 2 * symbol("T")), highest_value(symbol("T") - 3)
    (8, None)
    """
    linear = size - _constant(size) if isinstance(size, Dim) else 0
    match linear.terms if isinstance(linear, Dim) else ():
        case ((((str(), 1),), factor),) if factor < 0 and isinstance(size, Dim):
            return _constant(size) // -factor
        case _:
            return None


def least_value(size: Size, name: str, low: int, high: int | None) -> int | None:
    """The lowest value of the only dim of a size, from `low` on, at which the size is 0 or more.

    None where it is below 0 at the highest value. The size must not fall where the dim grows.
    """
    most = low + 2**20 if high is None else high
    if evaluate(size, {name: most}) < 0:
        return None
    found = bisect_left(range(low, most), 0, key=lambda value: evaluate(size, {name: value}))
    return low + found


def extreme_as(size: Size, part: Size) -> Size:
    """A product with one of its factors, an extreme of `part`, replaced by that; else the size as it is.

    >>> t = symbol("T")
    >>> extreme_as(8 * minimum(t, 16), t), extreme_as(8 * minimum(t, 16), t + 1)
    (<Dim 8*T>, <Dim 8*min(16, T)>)
    """
    match size.terms if isinstance(size, Dim) else ():
        case ((monomial, _),):
            for atom, power in monomial:
                match atom, power:
                    case Extreme(which, sizes), 1 if part in sizes:
                        return floor_divide(size, _extreme(which, sizes)) * part
                    case _:
                        pass
        case _:
            pass
    return size


def _extreme(which: str, sizes: tuple[Size, Size]) -> Size:
    return minimum(*sizes) if which == "min" else maximum(*sizes)


def _only_value(difference: Dim) -> tuple[str, Size] | None:
    """The value of a dim that occurs once, with a factor that divides all other terms."""
    for monomial, factor in difference.terms:
        match monomial:
            case ((str(name), 1),):
                rest = difference - factor * symbol(name)
                value = floor_divide(rest, -factor)
                if name not in names(rest) and value * -factor == rest:
                    return name, value
            case _:
                pass
    return None


def _multiple(difference: Dim) -> tuple[str, Size] | None:
    """The only dim as a multiple of a number, where the difference is 0 for the multiples and no others."""
    found = _equal_residues(difference)
    if found is None:
        return None
    period, residues = found
    step = gcd(period, *residues)
    if residues != frozenset(range(0, period, step)) or step == 1:
        return None
    (name,) = names(difference)
    return name, step * symbol(name)


def _equal_residues(difference: Dim) -> tuple[int, frozenset[int]] | None:
    """The period of a size, and the remainders of its only dim by it at which the size is 0.

    None for a size that has no period, or grows with the dim.
    """
    found = one_period(difference, 0)
    if found is None or found.growth != 0:
        return None
    return found.length, frozenset(k for k, value in enumerate(found.values) if value == 0)


def _constant(size: Dim) -> int:
    return sum(factor for monomial, factor in size.terms if not monomial)


def _leaves_remainder(size: Dim) -> bool:
    """Whether a size leaves a remainder when it is divided by what all its other terms are multiples of.

    >>> _leaves_remainder(2 * symbol("T") - 1), _leaves_remainder(2 * symbol("T") - 2)
    (True, False)
    """
    constant = _constant(size)
    step = gcd(*[factor for monomial, factor in size.terms if monomial])
    return constant % step != 0
