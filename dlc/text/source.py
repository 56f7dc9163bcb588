"""Model text, and spans of it, to which every node of the AST refers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from dlc.errors import Diagnostic, ModelError, SourceLocation

__all__ = ["MAX_BYTES", "Source", "Span", "in_library"]

MAX_BYTES = 8 << 20
"""The longest model text that is read; weights and data belong in files of their own."""


class Span(NamedTuple):
    """A range of a text by character offsets; `end` is exclusive."""

    start: int
    end: int


def in_library(place: SourceLocation) -> bool:
    """Whether a place is in one of the library's texts."""
    return place.file.startswith("<")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One text with the name that diagnostics call it by; equal only to itself."""

    name: str
    text: str = field(repr=False)
    _line_starts: list[int] = field(default_factory=list[int], init=False, repr=False)
    _places: dict[Span, SourceLocation] = field(
        default_factory=dict[Span, SourceLocation], init=False, repr=False
    )

    def place(self, span: Span) -> SourceLocation:
        """The line and columns of `span`; of several lines, the part on the first."""
        place = self._places.get(span)
        if place is None:  # those of a module's text are asked for by each of its instances
            place = self._places[span] = self._place(span)
        return place

    def _place(self, span: Span) -> SourceLocation:
        line, column = self.line_and_column(span.start)
        line_end = self.text.find("\n", span.start, span.end)
        stop = span.end if line_end < 0 else line_end
        return SourceLocation(self.name, line, column, column + stop - span.start)

    @property
    def is_library(self) -> bool:
        """Whether it is one of the library's texts."""
        return self.name.startswith("<")

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Both count from 1; a tab, like any character, is one column wide."""
        starts = self._starts()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def offset(self, place: SourceLocation) -> int:
        """Where a place of this text begins."""
        return self._starts()[place.line - 1] + place.column - 1

    def line_of(self, offset: int) -> int:
        """The line that `offset` is in, counting from 1."""
        return bisect_right(self._starts(), offset)

    def _starts(self) -> list[int]:
        """Where each line begins, found at the first question: most texts have no errors."""
        if not self._line_starts:
            lengths = [len(line) + 1 for line in self.text.split("\n")]
            self._line_starts.extend(accumulate(lengths[:-1], initial=0))
        return self._line_starts

    @classmethod
    def read(cls, path: str | Path, name: str | None = None, limit: int = MAX_BYTES) -> Source:
        """The text in the file at `path`, called `name` (default: the path).

        Raises ModelError when the file cannot be read, is longer than `limit` bytes, or is not UTF-8.
        """
        called = readable(str(path) if name is None else name)
        try:
            with Path(path).open("rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ModelError(f"cannot read {called}: {reason}", code="D0100") from None
        return cls.from_bytes(called, data, limit)

    @classmethod
    def from_bytes(cls, name: str, data: bytes, limit: int = MAX_BYTES) -> Source:
        """Decode UTF-8; raises ModelError that names the line of the first bad byte."""
        if len(data) > limit:
            raise ModelError([too_long(name, limit)])
        try:
            return cls(name, data.decode("utf-8"))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            bad = f"byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
            raise ModelError(
                f"{name} is not a model text: {bad} is not UTF-8",
                code="D0102",
                help="save the file as UTF-8",
            ) from None


def readable(name: str) -> str:
    """The name of a file as text, whatever its bytes are.

    >>> readable("m\\udcf6del.dlm")
    'm\ufffddel.dlm'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def too_long(name: str, limit: int = MAX_BYTES) -> Diagnostic:
    """The error for a text over `limit` bytes."""
    return Diagnostic(
        "D0106",
        f"{name} is longer than {limit >> 20} MiB, the most a model text may be",
        help="keep numbers in a weight file and read them with file(...) or npz(...)",
    )
