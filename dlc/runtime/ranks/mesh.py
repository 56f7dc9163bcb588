"""A mesh of ranks: named axes, and the coordinates of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True)
class Mesh:
    """The names and sizes of the axes, the last one varying fastest from rank to rank."""

    axes: Mapping[str, int]

    @cached_property
    def size(self) -> int:
        """The number of ranks."""
        return prod(self.axes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """The coordinate of a rank along each axis."""
        found: dict[str, int] = {}
        for name, size in reversed(list(self.axes.items())):
            rank, found[name] = divmod(rank, size)
        return found

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank with these coordinates."""
        number = 0
        for name, size in self.axes.items():
            number = number * size + coordinates[name]
        return number

    def along(self, rank: int, axis: str) -> list[int]:
        """The ranks that a collective of this rank along an axis joins, by coordinate."""
        own = self.coordinates(rank)
        return [self.rank({**own, axis: place}) for place in range(self.axes[axis])]
