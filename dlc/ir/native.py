"""Optional compilation of the planner's search functions to machine code.

The functions are Python on integers and run uncompiled, too. Their compiler is in a higher layer than the
passes and reaches them through their `Context`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Record = TypeVar("Record")
Code = Callable[[Record, int, int], int]
"""A function of a record of integer arrays and two integers."""


class Compiler(Protocol):
    """Compiles functions to machine code that computes the same numbers as Python does."""

    def __call__(self, function: Code[Record], record: type[Record], /) -> Code[Record]: ...


def interpreted(function: Code[Record], record: type[Record]) -> Code[Record]:
    """The function itself, uncompiled."""
    return function
