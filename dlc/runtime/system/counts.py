"""Whole numbers in texts: reading one, and saying how many things there are."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,20}")
"""As many as 2**64 has."""


def whole_number(text: str) -> int | None:
    """The number that a text spells with at most 20 ASCII digits; None for any other text.

    `int` would read the digits of every script, and raises ValueError for thousands of them.

    >>> whole_number("64"), whole_number("-1"), whole_number("٣"), whole_number("9" * 5000)
    (64, None, None, None)
    """
    return int(text) if _DIGITS.fullmatch(text) else None


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "weight"), counted(61706, "parameter")
    ('1 weight', '61,706 parameters')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
