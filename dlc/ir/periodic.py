"""Sizes of one dim that are decided by a few of its values.

A size whose quotients have numbers as denominators is periodic but for a constant growth:
`f(x + P) = f(x) + c`. If f has the period P, then `f // d` has the period `P*d`.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple

from dlc.ir.dims import Quotient, Size, evaluate, names

MAX_PERIOD = 1 << 12
"""The most values of a dim that are tried."""


class Period(NamedTuple):
    """The values of a size in one period of its only dim, and by how much it is more in the next."""

    values: tuple[int, ...]
    growth: int

    @property
    def length(self) -> int:
        """P."""
        return len(self.values)


def one_period(size: Size, first: int) -> Period | None:
    """The period that begins where the only dim is `first`; None for other sizes, and for long periods.

    >>> from dlc.ir.dims import symbol
    >>> one_period(symbol("H") // 2 - 2 * (symbol("H") // 4), 0)
    Period(values=(0, 0, 1, 1), growth=0)
    """
    length = _length(size)
    if len(names(size)) != 1 or length is None:
        return None
    (name,) = names(size)
    values = [evaluate(size, {name: first + k}) for k in range(length + 1)]
    return Period(tuple(values[:-1]), values[-1] - values[0])


def _length(size: Size) -> int | None:
    """A period of the size; None if there is none that is short."""
    if isinstance(size, int):
        return 1
    length = 1
    for monomial, _ in size.terms:
        match monomial:
            case () | ((str(), 1),):
                pass
            case ((Quotient(numerator, int(denominator)), 1),) if denominator > 0:
                inner = _length(numerator)
                if inner is None:
                    return None
                length = lcm(length, inner * denominator)
            case _:
                return None
        if length > MAX_PERIOD:
            return None
    return length
