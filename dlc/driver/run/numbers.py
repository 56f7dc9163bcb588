"""Numbers as they are written on a command line: `3.5`, `[[1, 2], [3, 4]]`, `[-inf, nan]`, `true`."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

__all__ = ["read_numbers"]

Nested: TypeAlias = "bool | int | float | list[Nested]"

MAX_NESTING = 64
MAX_DIGITS = 400
"""No dtype has a number of as many; Python refuses to read one of ten times as many."""

_TOKEN = re.compile(
    r"(?P<bracket>[\[\],])"
    r"|(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[+-]?(?:inf|nan)|true|false)"
    r"|(?P<other>\S)"
)


def read_numbers(text: str) -> Nested:
    """The number, or the nested lists of numbers, that a text spells.

    Raises ValueError that says what is wrong, and where.

    >>> read_numbers("[[1, .5], [-inf, 1e3]]")
    [[1, 0.5], [-inf, 1000.0]]
    >>> read_numbers("[1 2]")
    Traceback (most recent call last):
        ...
    ValueError: a comma is missing before '2', character 4
    """
    whole: list[Nested] = []
    lists = [whole]
    is_complete = False  # a value has just ended: a comma or a bracket follows
    for match in _TOKEN.finditer(text):
        token, at = match[0], match.start() + 1
        inner = lists[-1]
        if token in ("]", ",") and len(lists) == 1:
            raise ValueError(f"{token!r} is more than a number or a list, character {at}")
        if token == "]":
            lists.pop()
            is_complete = True
        elif token == "," and is_complete:
            is_complete = False
        elif is_complete:
            missing = "a comma is missing before" if len(lists) > 1 else "a list holds numbers, not"
            raise ValueError(f"{missing} {token!r}, character {at}")
        elif token == "[":
            if len(lists) > MAX_NESTING:
                raise ValueError("too many brackets")
            inner.append(lists_new := [])
            lists.append(lists_new)
        else:
            inner.append(_value(match, at))
            is_complete = True
    if len(lists) > 1:
        raise ValueError("a ] is missing at its end")
    if not whole:
        raise ValueError("there is nothing")
    return whole[0]


def _value(match: re.Match[str], at: int) -> bool | int | float:
    token = match[0]
    if match["word"] is not None:
        return token == "true" if token in ("true", "false") else float(token)
    if match["number"] is None:
        raise ValueError(f"a number is expected in place of {token!r}, character {at}")
    if len(token) > MAX_DIGITS:
        raise ValueError(f"a number of {len(token)} digits, character {at}")
    if re.fullmatch(r"[+-]?[0-9]+", token):
        return int(token)
    number = float(token)
    if math.isinf(number):
        raise ValueError(f"{token} is beyond all numbers of f64, character {at}")
    return number
