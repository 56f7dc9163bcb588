"""Source locations of operations. Rewrites keep them, and fusion fuses them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.errors import SourceLocation


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A place in a text: line and column count from 1; `end` is the column after it, or 0."""

    file: str
    line: int
    column: int
    end: int = 0

    @property
    def place(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column, self.end)


@dataclass(frozen=True, slots=True)
class FusedLocation:
    """The locations of several operations that were fused into one, the main one first."""

    parts: tuple[FileLocation, ...]

    @property
    def place(self) -> SourceLocation:
        return self.parts[0].place


@dataclass(frozen=True, slots=True)
class UnknownLocation:
    """No place in a text, for an operation that a test or a tool created; `reason` says why."""

    reason: str = ""

    @property
    def place(self) -> SourceLocation | None:
        return None


Location: TypeAlias = FileLocation | FusedLocation | UnknownLocation

MAX_FUSED = 16
"""The most places that a fused location keeps."""


def fuse(locations: Iterable[Location]) -> Location:
    """The fusion of several locations, without duplicates."""
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
