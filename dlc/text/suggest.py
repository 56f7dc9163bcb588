"""Which known word a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["suggest"]


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, if any is like enough to be worth a question.

    >>> suggest("sofmax", ["softmax", "max", "tanh"])
    'softmax'
    >>> suggest("Linaer", ["linear", "Linear"])
    'Linear'
    >>> suggest("w", ["bias"]) is None
    True
    """
    known = [candidate for candidate in dict.fromkeys(candidates) if candidate != word]
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = word.casefold()
    return next((candidate for candidate in known if candidate.casefold() == folded), None)
