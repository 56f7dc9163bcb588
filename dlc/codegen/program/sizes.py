"""The list of sizes of a program: every number that its steps use, as text over the dims.

>>> from dlc.ir.dims import symbol
>>> sizes = Sizes()
>>> sizes.maximum([sizes.number(64), sizes.sum(sizes.number(4 * symbol("B")), sizes.number(64))])
Entry(index=3)
>>> sizes.texts
['64', '4*B', '$1 + $0', 'max($0, $2)']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.ir.dims import Atom, Dim, Extreme, Quotient, Size, product, symbol

LONG = 120
"""The longest text of a size that is not divided into entries."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The number of a size in the list."""

    index: int

    def __str__(self) -> str:
        return f"${self.index}"


class Sizes:
    """Texts in order, each once; later ones refer to earlier ones as `$k`."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._entries: dict[str, Entry] = {}

    def number(self, size: Size) -> Entry:
        """The entry for a size. A long one is made of entries for its quotients and extremes.

        >>> from dlc.ir.dims import floor_divide, symbol
        >>> sizes, size = Sizes(), symbol("H")
        >>> for _ in range(60):
        ...     size = floor_divide(3 * size + 1, 2)
        >>> len(str(size)) > LONG > max(map(len, [*sizes.texts, str(sizes.number(size + 1))]))
        True
        """
        text = str(size)
        return self._add(text if isinstance(size, int) or len(text) <= LONG else self._short(size))

    def text(self, size: Size) -> str:
        """A size as it is written elsewhere: itself, or its entry if that is shorter."""
        text = str(size)
        return text if len(text) <= LONG else str(self.number(size))

    def sum(self, one: Entry, other: Entry) -> Entry:
        """The entry for the sum of two entries."""
        return self._fold("{} + {}", one, other, int.__add__)

    def difference(self, one: Entry, other: Entry) -> Entry:
        """The entry for one entry less another."""
        return self._fold("{} - {}", one, other, int.__sub__)

    def product(self, one: Entry, other: Entry) -> Entry:
        """The entry for the product of two entries."""
        return self._fold("{} * {}", one, other, int.__mul__)

    def constant(self, entry: Entry) -> int | None:
        """The number that an entry is; None if it depends on a dim."""
        text = self.texts[entry.index]
        return int(text) if text.isdecimal() else None

    def maximum(self, entries: Sequence[Entry]) -> Entry:
        """The entry for the largest of several; 0 for none."""
        if not entries:
            return self.number(0)
        largest, *rest = dict.fromkeys(entries)
        for entry in rest:
            largest = self._fold("max({}, {})", largest, entry, max)
        return largest

    def minimum(self, entries: Sequence[Entry]) -> Entry:
        """The entry for the smallest of several, one at least."""
        smallest, *rest = dict.fromkeys(entries)
        for entry in rest:
            smallest = self._fold("min({}, {})", smallest, entry, min)
        return smallest

    def aligned(self, size: Size, to: int) -> Entry:
        """The entry for the next multiple of `to`."""
        return self.number((size + (to - 1)) // to * to)

    def _short(self, size: Dim) -> str:
        """A polynomial with entries in place of its quotients and extremes."""
        total: Size = 0
        for monomial, factor in size.terms:
            names = [self._name(atom) for atom, power in monomial for _ in range(power)]
            total = total + factor * product([symbol(name) for name in names])
        return str(total)

    def _name(self, atom: Atom) -> str:
        match atom:
            case str():
                return atom
            case Quotient(top, bottom):
                return str(self._add(f"{self.number(top)}//{self.number(bottom)}"))
            case Extreme(which, (one, other)):
                return str(self._add(f"{which}({self.number(one)}, {self.number(other)})"))

    def _add(self, text: str) -> Entry:
        if text not in self._entries:
            self._entries[text] = Entry(len(self.texts))
            self.texts.append(text)
        return self._entries[text]

    def _fold(
        self, form: str, one: Entry, other: Entry, compute: Callable[[int, int], int]
    ) -> Entry:
        texts = self.texts[one.index], self.texts[other.index]
        if all(text.lstrip("-").isdecimal() for text in texts):
            return self._add(str(compute(int(texts[0]), int(texts[1]))))
        return self._add(form.format(one, other))
