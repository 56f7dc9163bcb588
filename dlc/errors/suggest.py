"""Suggestions for misspelt words: the question "did you mean ...?" of every error."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["did_you_mean", "suggest", "suggestions"]

MAX_CANDIDATES = 5_000
"""As many are compared: a comparison takes some microseconds, and nearer names come first."""
MAX_LENGTH = 200
"""Longer words are like no other."""
CUTOFF = 0.6
"""The least similarity of two words: twice the letters that they share, over the letters of both."""


def suggestions(word: str, candidates: Iterable[str], most: int = 3) -> list[str]:
    """The candidates most like `word`, the nearest first, if any is like enough to be worth a question.

    >>> suggestions("Linaer", ["linear", "Linear", "tanh"])
    ['Linear', 'linear']
    """
    from difflib import get_close_matches  # 2 ms that only a mistake has to pay

    if len(word) > MAX_LENGTH:
        return []
    names = [name for name in islice(dict.fromkeys(candidates), MAX_CANDIDATES) if name != word]
    folded = word.casefold()
    return (
        get_close_matches(word, names, most, CUTOFF)
        or [name for name in names if name.casefold() == folded][:most]
    )


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, if any is like enough.

    >>> suggest("sofmax", ["softmax", "max", "tanh"])
    'softmax'
    >>> suggest("w", ["bias"]) is None
    True
    """
    return next(iter(suggestions(word, candidates, most=1)), None)


def did_you_mean(word: str, candidates: Iterable[str], most: int = 1) -> str | None:
    """The question whether one of the candidates was meant; None where none is like enough.

    >>> did_you_mean("wieght", ["bias", "weight"]), did_you_mean("w", ["bias"])
    ('did you mean weight?', None)
    """
    names = suggestions(word, candidates, most)
    return f"did you mean {' or '.join(names)}?" if names else None
