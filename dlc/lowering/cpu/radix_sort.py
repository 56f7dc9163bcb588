"""Least significant digit radix sort of words, in the thread's scratch.

A pass moves every word behind those with smaller digits, and keeps the order of equal digits: after a pass
for each digit, from the lowest on, the words are in order. (D. E. Knuth, "The Art of Computer
Programming", volume 3, section 5.2.5.) All digits are counted in one pass before. A digit that all words
share needs none.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.expr import Expr, Pointer, broadcast, constant
from dlc.ir.dims import Size, ceil_divide
from dlc.ir.types import INDEX, U32, U64
from dlc.lowering.cpu.sort_words import Words, chosen
from dlc.lowering.kernel_code.words import for_each, iterate, when

__all__ = ["Digits", "radix_sort"]

LANES = 8
"""Counters that are set to 0 at once."""


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits of a key that begins at bit `start` of its word: `count` of them, of `bits` bits each."""

    start: int
    count: int
    bits: int

    @staticmethod
    def of(bits: int, start: int, length: Size) -> Digits:
        """The digits of keys of `bits` bits, in rows of `length` elements.

        Counting 2^11 values pays for long rows; more would not fit into the first-level cache.
        """
        most = 11 if isinstance(length, int) and length >= 1 << 13 and bits <= 32 else 8
        count = ceil_divide(bits, most)
        assert isinstance(count, int)
        return Digits(start, count, -(-bits // count))

    @property
    def values(self) -> int:
        return 1 << self.bits

    @property
    def counters(self) -> int:
        """How many counters a sort needs."""
        return self.count * self.values

    def slot(self, key: Expr, digit: int | Expr) -> Expr:
        """The counter of a word's digit, from the first counter of that digit on."""
        if isinstance(digit, int):
            shifted = key >> self.start + digit * self.bits
        else:
            shifted = key >> (digit * self.bits + self.start).cast(U64)
        return (shifted & self.values - 1).cast(INDEX)


def radix_sort(
    length: Expr, source: Words, target: Words, counters: Pointer, digits: Digits
) -> Words:
    """Sort `length` words, at least one; returns which of the two arrays then has them in order."""
    emit = length.emit
    _count_all(length, source, counters, digits)

    def one_pass(digit: Expr, carried: list[Expr]) -> list[Expr]:
        half = len(carried) // 2
        now, other = source.carried(carried[:half]), source.carried(carried[half:])
        first = counters + digit * digits.values
        differs = first[digits.slot(now.keys[0], digit)].cast(INDEX).differs(length)
        with when(differs):
            _add_up(first, digits)
            _move_all(length, now, other, first, digits, digit)
        after, before = chosen(differs, other, now), chosen(differs, now, other)
        return [*after.pointers(), *before.pointers()]

    initial = [*source.pointers(), *target.pointers()]
    last = iterate(emit, 0, digits.count, initial, one_pass)
    return source.carried(last[: len(last) // 2])


def _count_all(length: Expr, source: Words, counters: Pointer, digits: Digits) -> None:
    """Count how often each digit has each value."""
    emit = length.emit
    with for_each(emit, 0, digits.counters, LANES) as k:
        counters.store(k, broadcast(constant(emit, 0, U32), LANES))
    with for_each(emit, 0, length) as k:
        key = source.keys[k]
        for digit in range(digits.count):
            slot = digits.slot(key, digit) + digit * digits.values
            counters[slot] = counters[slot] + 1


def _add_up(counters: Pointer, digits: Digits) -> None:
    """Replace each counter by the sum of those before it: where the words of its value begin."""
    emit = counters.emit

    def add(k: Expr, carried: list[Expr]) -> list[Expr]:
        count = counters[k]
        counters[k] = carried[0]
        return [carried[0] + count]

    iterate(emit, 0, digits.values, [constant(emit, 0, U32)], add)


def _move_all(
    length: Expr, source: Words, target: Words, counters: Pointer, digits: Digits, digit: Expr
) -> None:
    """Move each word to the place that the counter of its digit says."""
    with for_each(length.emit, 0, length) as k:
        slot = digits.slot(source.keys[k], digit)
        place = counters[slot]
        counters[slot] = place + 1
        target.copy(source, k, place.cast(INDEX))
