"""Scopes: the names of a function, then of its module, then of its file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from dlc.frontend.elaboration.values import Datum, Marker
from dlc.ir.types import TensorType
from dlc.text.source import Source, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MISSING", "Home", "Scope"]

MISSING: Final = Marker("nothing")
"""The result of looking up an unknown name."""


class Home(ABC):
    """The surroundings of a function: an instance of a module, or a file."""

    source: Source

    @property
    def trains(self) -> bool:
        """Whether `training` may be true in its functions: not in parts that are in eval mode."""
        return True

    @abstractmethod
    def find(self, name: str) -> Datum:
        """The value of the name there, or MISSING."""

    @abstractmethod
    def is_dim(self, name: str) -> bool:
        """Whether the name is at most a `dim`, so that a signature may bind it."""

    @abstractmethod
    def known(self) -> Iterator[str]:
        """Every name that means something there, for suggestions."""

    def declared_at(self, name: str) -> Span | None:
        """Where a submodule or a function of that name is declared."""
        return None

    def weights(self) -> Iterator[tuple[str, TensorType]]:
        """The weights there whose types are known, without making operations."""
        return iter(())


class Scope:
    """The names of a block and of the blocks around it, up to the function's home."""

    __slots__ = ("home", "names", "parent")

    def __init__(self, home: Home, parent: Scope | None = None) -> None:
        self.home = home
        self.parent = parent
        self.names: dict[str, Datum] = {}

    def inner(self) -> Scope:
        """The scope of a block in this one."""
        return Scope(self.home, self)

    def find(self, name: str) -> Datum:
        """The value of a name here, or MISSING."""
        found = self.local(name)
        return self.home.find(name) if found is MISSING else found

    def local(self, name: str) -> Datum:
        """The value of a name of these blocks, or MISSING."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name, MISSING)
            if found is not MISSING:
                return found
            scope = scope.parent
        return MISSING

    def known(self) -> Iterator[str]:
        """Every name that means something here, nearest first."""
        scope: Scope | None = self
        while scope is not None:
            yield from reversed(scope.names)
            scope = scope.parent
        yield from self.home.known()
