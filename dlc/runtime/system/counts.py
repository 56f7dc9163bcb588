"""Whole numbers in texts: parsing them, and printing counts."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,20}")
"""At most as many digits as 2**64 has."""


def whole_number(text: str) -> int | None:
    """The value of a text of at most 20 ASCII digits; None for any other text.

    `int` would accept the digits of every script, and raises ValueError for thousands of them.

    >>> whole_number("64"), whole_number("-1"), whole_number("٣"), whole_number("9" * 5000)
    (64, None, None, None)
    """
    return int(text) if _DIGITS.fullmatch(text) else None


def counted(count: int, what: str) -> str:
    """A count with its noun in the singular or plural.
    >>> counted(1, "weight"), counted(61706, "parameter")
    ('1 weight', '61,706 parameters')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
