"""Where an operation comes from. Every operation has a location; rewrites carry it, fusion fuses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.errors import Place


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A place in a text: line and column count from 1; `end` is the column after it, or 0."""

    file: str
    line: int
    column: int
    end: int = 0

    @property
    def place(self) -> Place:
        return Place(self.file, self.line, self.column, self.end)


@dataclass(frozen=True, slots=True)
class FusedLocation:
    """Several places that one operation does the work of, the main one first."""

    parts: tuple[FileLocation, ...]

    @property
    def place(self) -> Place:
        return self.parts[0].place


@dataclass(frozen=True, slots=True)
class UnknownLocation:
    """Nothing in a text: an operation made by a test or a tool. Say why in `reason`."""

    reason: str = ""

    @property
    def place(self) -> Place | None:
        return None


Location: TypeAlias = FileLocation | FusedLocation | UnknownLocation

MAX_FUSED = 16
"""A fused operation names at most this many places; a thousand would help nobody."""


def fuse(locations: Iterable[Location]) -> Location:
    """One location for work that comes from all of these places, without repeats."""
    parts: dict[FileLocation, None] = {}
    unknown: Location = UnknownLocation()
    for location in locations:
        match location:
            case FileLocation():
                parts[location] = None
            case FusedLocation(inner):
                parts.update(dict.fromkeys(inner))
            case UnknownLocation():
                unknown = location
    if not parts:
        return unknown
    if len(parts) == 1:
        return next(iter(parts))
    return FusedLocation(tuple(parts)[:MAX_FUSED])
