"""Machine code for the searches, where whoever runs the passes can make it.

The searches are Python that runs as it is. What knows how to compile functions about integers is above
this package, and registers itself in `COMPILERS`, as passes and lowerings do in their tables.
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


COMPILERS: list[Compiler] = []
"""The last of them is used."""


def compiled(function: Code[Record], record: type[Record]) -> Code[Record]:
    """The function as machine code, or itself where nothing compiles it."""
    return COMPILERS[-1](function, record) if COMPILERS else function
