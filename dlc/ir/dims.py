"""Symbolic sizes: integer polynomials over named dims, with floor division, in one canonical form.

A size is an `int` or a `Dim`. Arithmetic keeps the canonical form and gives back an `int` as soon as
nothing symbolic is left, so two sizes are known to be equal exactly when `==` says so.

>>> b, t = symbol("B"), symbol("T")
>>> str(2 * (t + 1) - b), (b * t + t) // t, (6 * t + 7) // 3, t - t
('2*T - B + 2', <Dim B + 1>, <Dim 2*T + 2>, 0)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import gcd, prod
from typing import ClassVar, TypeAlias

from dlc.errors import ModelError

Bounds: TypeAlias = Mapping[str, tuple[int, int | None]]
"""Lowest and highest value of each named dim; a highest of `None` means unbounded."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """`numerator // denominator`, where it does not come out even."""

    numerator: Size
    denominator: Size

    def __str__(self) -> str:
        return f"{_wrap(self.numerator)}//{_wrap(self.denominator)}"


@dataclass(frozen=True, slots=True)
class Extreme:
    """The larger (`max`) or smaller (`min`) of two sizes that cannot be compared."""

    which: str
    sizes: tuple[Size, Size]

    def __str__(self) -> str:
        return f"{self.which}({self.sizes[0]}, {self.sizes[1]})"


Atom: TypeAlias = str | Quotient | Extreme
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted; the empty monomial is 1."""


MAX_FACTOR = 1 << 62
"""The greatest number in a size: that of artifacts."""
MAX_LENGTH = 1 << 16
MAX_NESTING = 100
"""A size is refused when its names alone are longer, or when it divides and compares deeper.

Sizes share their parts, so a few calculations make one that could neither be written nor walked.
"""
MAX_STEPS = 200
"""The most terms of an exact quotient that are looked for."""
MAX_PRODUCTS = 1 << 14
"""The most products of terms that are computed for the product of two sizes."""


class Dim:
    """A canonical polynomial: sorted monomials, each with a coefficient that is not 0. Interned.

    Raises ModelError (D0329) for a coefficient beyond 2**62, and for a size that is too long or nested
    too deep.
    """

    __slots__ = ("_text", "length", "nesting", "terms")
    _interned: ClassVar[dict[tuple[tuple[Monomial, int], ...], Dim]] = {}

    terms: tuple[tuple[Monomial, int], ...]
    length: int
    """Of all its names as they are written, one after another."""
    nesting: int
    """How deep quotients and extremes are nested in one another."""
    _text: str

    def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Dim:
        dim = cls._interned.get(terms)
        if dim is None:
            for _, factor in terms:
                check_number(factor)
            length, nesting = _extent(terms)
            dim = object.__new__(cls)
            dim.terms, dim.length, dim.nesting = terms, length, nesting
            dim._text = ""
            dim = cls._interned.setdefault(terms, dim)
        return dim

    def __add__(self, other: Size) -> Size:
        return _sum(self, other)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return floor_divide(other, self)

    def __mod__(self, other: Size) -> Size:
        return self - other * floor_divide(self, other)

    def __rmod__(self, other: int) -> Size:
        return other - self * floor_divide(other, self)

    def __str__(self) -> str:
        if not self._text:
            text = ""
            for monomial, factor in self.terms:
                sign = "-" if factor < 0 else "+"
                body = _monomial_text(monomial, abs(factor))
                text += (
                    f" {sign} {body}" if text else body if factor > 0 else _negated(body, monomial)
                )
            self._text = text  # sizes of sizes are written again and again
        return self._text

    def __repr__(self) -> str:
        return f"<Dim {self}>"


# Real types, not strings: what an operation declares is read at run time.
Size: TypeAlias = int | Dim
"""The extent of one axis: a number, or a symbolic size."""
Shape: TypeAlias = tuple[Size, ...]


def check_number(size: Size) -> None:
    """Raises ModelError (D0329) for a number that artifacts do not hold; what is not a number has some."""
    if isinstance(size, int) and abs(size) > MAX_FACTOR:
        raise ModelError("a number in a size is beyond 2**62", code="D0329")


def _extent(terms: Iterable[tuple[Monomial, int]]) -> tuple[int, int]:
    """Length and nesting of a polynomial. Raises ModelError (D0329) where they are too great."""
    length, nesting = 0, 0
    for monomial, _ in terms:
        for atom, power in monomial:
            one, deep = _atom_extent(atom)
            length += one * power
            nesting = max(nesting, deep)
    if length > MAX_LENGTH:
        raise ModelError(f"a size has more than {MAX_LENGTH} letters", code="D0329")
    if nesting > MAX_NESTING:
        raise ModelError(f"a size divides more than {MAX_NESTING} times in turn", code="D0329")
    return length, nesting


def _atom_extent(atom: Atom) -> tuple[int, int]:
    match atom:
        case str():
            return len(atom), 0
        case Quotient(one, other) | Extreme(_, (one, other)):
            parts = [size for size in (one, other) if isinstance(size, Dim)]
            return sum(part.length for part in parts), 1 + max(part.nesting for part in parts)


def check_shape(shape: Shape) -> None:
    """Raises ModelError (D0329) for a size that is negative or beyond 2**62."""
    for size in shape:
        if isinstance(size, int):
            if size < 0:
                raise ModelError(f"a size cannot be {size}", code="D0329")
            if size > MAX_FACTOR:
                raise ModelError(f"the size {size} is beyond 2**62", code="D0329")


def symbol(name: str) -> Dim:
    """The dim of that name."""
    return Dim(((((name, 1),), 1),))


def _terms(size: Size) -> Iterable[tuple[Monomial, int]]:
    if isinstance(size, Dim):
        return size.terms
    return (((), size),) if size else ()


# Sizes are interned, and the same ones meet again and again.
@lru_cache(maxsize=1 << 16)
def _sum(one: Size, other: Size) -> Size:
    return _from_terms([*_terms(one), *_terms(other)])


@lru_cache(maxsize=1 << 16)
def _product(one: Size, other: Size) -> Size:
    if isinstance(one, Dim) and isinstance(other, Dim):
        count = len(one.terms) * len(other.terms)
        if count > MAX_PRODUCTS:
            raise ModelError(f"the product of two sizes has {count} terms", code="D0329")
    return _from_terms(
        (_joined(first, second), factor * by)
        for first, factor in _terms(one)
        for second, by in _terms(other)
    )


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for monomial, factor in terms:
        total[monomial] = total.get(monomial, 0) + factor
    kept = [(monomial, factor) for monomial, factor in total.items() if factor]
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    kept.sort(key=_term_order)
    return Dim(tuple(kept))


def _term_order(term: tuple[Monomial, int]) -> tuple[int, bool, str]:
    """High degree first, positive terms before negative ones, then by name."""
    monomial, factor = term
    return (-sum(power for _, power in monomial), factor < 0, str(monomial))


def _joined(one: Monomial, two: Monomial) -> Monomial:
    powers = dict(one)
    for atom, power in two:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _monomial_text(monomial: Monomial, factor: int) -> str:
    parts: list[str] = [] if factor == 1 and monomial else [str(factor)]
    for atom, power in monomial:
        text = str(atom)
        if isinstance(atom, Quotient) and (parts or len(monomial) > 1 or power > 1):
            text = f"({text})"
        parts += [text] * power
    return "*".join(parts)


def _negated(body: str, monomial: Monomial) -> str:
    """The text of a monomial under a minus: where `//` binds less than that, in parentheses."""
    ((atom, _), *_) = monomial
    return f"-({body})" if isinstance(atom, Quotient) and body == str(atom) else f"-{body}"


def _wrap(size: Size) -> str:
    text = str(size)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def ceil_divide(numerator: Size, denominator: Size) -> Size:
    """`ceil(numerator / denominator)`, for a denominator above 0."""
    return floor_divide(numerator + (denominator - 1), denominator)


def known_multiple(size: Size) -> int:
    """What a size is a multiple of, whatever its dims are; 0 for 0."""
    return gcd(*[factor for _, factor in size.terms]) if isinstance(size, Dim) else abs(size)


def divides(number: int, size: Size) -> bool:
    """Whether a size is a multiple of a number, whatever its dims are."""
    return known_multiple(size) % number == 0


def floor_divide(numerator: Size, denominator: Size) -> Size:
    """`numerator // denominator`; terms that the denominator divides are taken out.

    A denominator of several terms is divided by as a whole where that comes out even, and a quotient
    divided by a number is one quotient: `(x//a + b)//c` is `(x + a*b)//(a*c)`.

    Raises ZeroDivisionError where the denominator is the number 0.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if denominator == 0:
        raise ZeroDivisionError("a size is divided by 0")
    if denominator == 1 or numerator == 0:
        return numerator
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    divisor = list(_terms(denominator))
    for term in _terms(numerator):
        quotient = _exact(term, divisor[0]) if len(divisor) == 1 else None
        if quotient is None:
            rest.append(term)
        else:
            whole.append(quotient)
    if len(divisor) > 1 and isinstance(numerator, Dim) and isinstance(denominator, Dim):
        even = _divided_evenly(numerator, denominator)
        if even is not None:
            return even
    left = _from_terms(rest)
    if left == 0:
        return _from_terms(whole)
    if isinstance(left, int) and isinstance(denominator, int):
        return _from_terms([*whole, ((), left // denominator)])
    left, denominator = _reduced(left, denominator)
    joined = _joined_quotients(left, denominator)
    if joined is not None:
        return _from_terms(whole) + joined
    check_number(denominator)
    return _from_terms([*whole, (((Quotient(left, denominator), 1),), 1)])


def _divided_evenly(numerator: Dim, denominator: Dim) -> Size | None:
    """The polynomial that gives the numerator when it is multiplied by the denominator, if there is one."""
    atoms = sorted(
        {atom for size in (numerator, denominator) for m, _ in size.terms for atom, _ in m}, key=str
    )

    def rank(term: tuple[Monomial, int]) -> tuple[int, ...]:
        powers = dict(term[0])
        return sum(powers.values()), *[powers.get(atom, 0) for atom in atoms]

    lead = max(denominator.terms, key=rank)
    remainder: Size = numerator
    quotient: Size = 0
    for _ in range(MAX_STEPS):  # the greatest term of what is left becomes smaller each time
        if not isinstance(remainder, Dim):
            break
        term = _exact(max(remainder.terms, key=rank), lead)
        if term is None:
            return None
        quotient = quotient + _from_terms([term])
        remainder = remainder - _from_terms([term]) * denominator
    return quotient if remainder == 0 else None


def _joined_quotients(numerator: Size, denominator: Size) -> Size | None:
    """`(x//a + b)//c` as one quotient, `(x + a*b)//(a*c)`, for numbers a and c; None for another size."""
    if not (isinstance(numerator, Dim) and isinstance(denominator, int) and denominator > 0):
        return None
    quotients = [term for term in numerator.terms if _has_quotient(term[0])]
    match quotients:
        case [(((Quotient(inner, int(by)), 1),), 1)] if 0 < by * denominator < 1 << 31:
            more = numerator - _from_terms(quotients)
            return floor_divide(inner + more * by, by * denominator)
        case _:
            return None


def _has_quotient(monomial: Monomial) -> bool:
    return any(isinstance(atom, Quotient) for atom, _ in monomial)


def _reduced(numerator: Size, denominator: Size) -> tuple[Size, Size]:
    """Both divided by the greatest common divisor of all their coefficients."""
    common = gcd(*(factor for size in (numerator, denominator) for _, factor in _terms(size)))
    if common == 1:
        return numerator, denominator

    def divided(size: Size) -> Size:
        return _from_terms((monomial, factor // common) for monomial, factor in _terms(size))

    return divided(numerator), divided(denominator)


def _exact(term: tuple[Monomial, int], by: tuple[Monomial, int]) -> tuple[Monomial, int] | None:
    if term[1] % by[1]:
        return None
    powers = dict(term[0])
    for atom, power in by[0]:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    kept = tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda item: str(item[0])))
    return kept, term[1] // by[1]


def maximum(one: Size, other: Size) -> Size:
    """The larger size; symbolic where that depends on the dims (`bounded.larger` knows their bounds)."""
    return _extreme("max", one, other)


def minimum(one: Size, other: Size) -> Size:
    """The smaller size; symbolic where that depends on the dims (`bounded.smaller` knows their bounds)."""
    return _extreme("min", one, other)


def _extreme(which: str, one: Size, other: Size) -> Size:
    difference = one - other
    if isinstance(difference, int):
        return one if (difference >= 0) == (which == "max") else other
    first, second = sorted((one, other), key=str)
    check_number(first)
    check_number(second)
    return Dim(((((Extreme(which, (first, second)), 1),), 1),))


def product(sizes: Iterable[Size]) -> Size:
    """All sizes multiplied; 1 for none."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes; 0 of none."""
    result: Size = 0
    for size in sizes:
        result = result + size
    return result


def evaluate(size: Size, dims: Mapping[str, int]) -> int:
    """The number that a size is at these dims. Raises KeyError for a dim that is missing."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        for atom, power in monomial:
            factor *= _atom_value(atom, dims) ** power
        total += factor
    return total


def count(shape: Iterable[Size], dims: Mapping[str, int]) -> int:
    """How many elements an array of this shape has at these dims. Raises KeyError as `evaluate` does."""
    return prod(evaluate(size, dims) for size in shape)


def _atom_value(atom: Atom, dims: Mapping[str, int]) -> int:
    match atom:
        case str():
            return dims[atom]
        case Quotient(numerator, denominator):
            return evaluate(numerator, dims) // evaluate(denominator, dims)
        case Extreme(which, (one, other)):
            values = evaluate(one, dims), evaluate(other, dims)
            return max(values) if which == "max" else min(values)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """The size with each named dim replaced by another size."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, factor in size.terms:
        term: Size = factor
        for atom, power in monomial:
            term = term * product([_atom_substituted(atom, values)] * power)
        total = total + term
    return total


def _atom_substituted(atom: Atom, values: Mapping[str, Size]) -> Size:
    match atom:
        case str():
            return values.get(atom, symbol(atom))
        case Quotient(numerator, denominator):
            return floor_divide(substitute(numerator, values), substitute(denominator, values))
        case Extreme(which, (one, other)):
            return _extreme(which, substitute(one, values), substitute(other, values))


def names(size: Size) -> frozenset[str]:
    """The dims that a size depends on."""
    return frozenset() if isinstance(size, int) else _names(size)


@cache
def _names(size: Dim) -> frozenset[str]:
    atoms = [atom for monomial, _ in size.terms for atom, _ in monomial]
    return frozenset[str]().union(*map(_atom_names, atoms))


def _atom_names(atom: Atom) -> frozenset[str]:
    match atom:
        case str():
            return frozenset((atom,))
        case Quotient(numerator, denominator):
            return names(numerator) | names(denominator)
        case Extreme(_, (one, other)):
            return names(one) | names(other)
