"""Delta debugging: fewer items for which a test still holds.

A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def minimal(items: Sequence[Item], test: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Items of which none can be left out alone, for which the test still holds; it holds for all of them.

    >>> minimal(range(8), lambda kept: 3 in kept and 6 in kept)
    [3, 6]
    """
    kept, parts = list(items), 2
    while kept:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if test(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                return kept
            parts = min(len(kept), 2 * parts)
    return kept
