"""Machine code for the searches of the planner, where whoever runs the passes can make it.

The searches are Python that runs as it is. What compiles functions about integers is above the passes; it
is handed down in their `Context`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Record = TypeVar("Record")
Code = Callable[[Record, int, int], int]
"""A function of a record of integer arrays and two integers."""


class Compiler(Protocol):
    """Makes machine code of functions that give the same numbers as in Python."""

    def __call__(self, function: Code[Record], record: type[Record], /) -> Code[Record]: ...


def interpreted(function: Code[Record], record: type[Record]) -> Code[Record]:
    """The function itself, where nothing compiles it."""
    return function
