"""Source locations of operations. Rewrites keep them, and fusion fuses them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.errors import SourceLocation


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A place in a text, and what stands there: line and column count from 1.

    `end` is the column after it, or 0. `path` is the path of the module that the operation belongs to, such
    as `blocks.attn`, and `operation` what the text or the imported graph asks for there, such as `silu`,
    whatever it is lowered to later. In a text of the library, `caller` is the call in the user's own text
    that led there.
    """

    file: str
    line: int
    column: int
    end: int = 0
    path: str = ""
    operation: str = ""
    caller: FileLocation | None = None

    @property
    def place(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column, self.end)

    @property
    def own(self) -> FileLocation:
        """The place in the user's own text: the call, if the operation is in the library.

        A call that fails is told with it.
        """
        return self.caller or self


@dataclass(frozen=True, slots=True)
class FusedLocation:
    """The locations of several operations that were fused into one, the main one first."""

    parts: tuple[FileLocation, ...]

    @property
    def place(self) -> SourceLocation:
        return self.parts[0].place

    @property
    def own(self) -> FileLocation:
        """The place of the main operation in the user's own text."""
        return self.parts[0].own


@dataclass(frozen=True, slots=True)
class UnknownLocation:
    """No place in a text, for an operation that a test or a tool created; `reason` says why."""

    reason: str = ""

    @property
    def place(self) -> SourceLocation | None:
        return None

    @property
    def own(self) -> UnknownLocation:
        return self


Location: TypeAlias = FileLocation | FusedLocation | UnknownLocation

GRADIENT = "gradient of "
"""What the operations of a derivative begin with."""

MAX_FUSED = 16
"""The most places that a fused location keeps."""


def parts_of(location: Location) -> tuple[FileLocation, ...]:
    """The places in texts that a location consists of, the main one first; none for an unknown one."""
    match location:
        case FileLocation():
            return (location,)
        case FusedLocation(parts):
            return parts
        case UnknownLocation():
            return ()


def gradient_location(location: Location) -> Location:
    """The location of the operations that compute the derivative of the one at `location`."""
    parts = [
        replace(part, operation=GRADIENT + part.operation)
        if part.operation and not part.operation.startswith(GRADIENT)
        else part
        for part in parts_of(location)
    ]
    return fuse(parts) if parts else location


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
