"""Names of other tools as identifiers of dlc: the same when a file is run and when it becomes text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dlc.frontend.builtins import BUILTINS, CONSTANTS
from dlc.ir.types import LANGUAGE_DTYPES
from dlc.text.model.words import NEVER_NAMES

MEANT: Final = (
    frozenset((*BUILTINS, *CONSTANTS, "training"))
    | NEVER_NAMES
    | {dtype.name for dtype in LANGUAGE_DTYPES}
)
"""Words that mean something in every expression."""

LONGEST: Final = 200


class Identifiers:
    """Gives each name once, none of those `taken`; one of the words `never` gets a `_` behind it.

    >>> names = Identifiers("x")
    >>> [names.of(name) for name in ("input_ids", "input.1", "input 1", "if", "537", "538")]
    ['input_ids', 'input_1', 'input_1_2', 'if_', 'x', 'x2']
    """

    def __init__(
        self, nameless: str, never: frozenset[str] = MEANT, taken: Iterable[str] = ()
    ) -> None:
        self._nameless = nameless
        self._never = never
        self._taken = {*taken}
        self._numbers: dict[str, int] = {}
        """By name the number that another one like it gets first."""

    def of(self, name: str) -> str:
        """The name itself where it can be one; `nameless` and a number where it has no letters."""
        text = re.sub(r"\W", "_", name, flags=re.ASCII)[:LONGEST]
        if not re.search(r"[A-Za-z]", text):
            text = self._nameless
        elif text[0].isdigit():
            text = f"{self._nameless}{text}"
        wanted = f"{text}_" if text in self._never else text
        mark = "_" if wanted[-1].isdigit() else ""
        found, number = wanted, self._numbers.get(wanted, 2)
        while found in self._taken:
            found, number = f"{wanted}{mark}{number}", number + 1
        self._numbers[wanted] = number
        self._taken.add(found)
        return found
