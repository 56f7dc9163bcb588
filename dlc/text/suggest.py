"""Which known word a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

__all__ = ["suggest"]

MAX_CANDIDATES = 5_000
"""As many are compared: a comparison takes some microseconds, and nearer names come first."""
MAX_LENGTH = 200
"""Longer words are like no other."""


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, if any is like enough to be worth a question.

    >>> suggest("sofmax", ["softmax", "max", "tanh"])
    'softmax'
    >>> suggest("Linaer", ["linear", "Linear"])
    'Linear'
    >>> suggest("w", ["bias"]) is None
    True
    """
    if len(word) > MAX_LENGTH:
        return None
    known = [name for name in islice(dict.fromkeys(candidates), MAX_CANDIDATES) if name != word]
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = word.casefold()
    return next((candidate for candidate in known if candidate.casefold() == folded), None)
