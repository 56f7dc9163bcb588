"""Places of a text as the protocol counts them: lines from 0, columns in units of the client's encoding."""

from __future__ import annotations

from typing import Literal, TypeAlias

from lsprotocol import types as lsp

from dlc.errors import SourceLocation
from dlc.text.source import Source, Span

__all__ = ["Encoding", "location_range", "offset_of", "position_of", "range_of"]

Encoding: TypeAlias = Literal["utf-8", "utf-16", "utf-32"]


def position_of(source: Source, offset: int, encoding: Encoding) -> lsp.Position:
    """The place of a character."""
    line, column = source.line_and_column(offset)
    before = source.text[offset - column + 1 : offset]
    return lsp.Position(line - 1, _units(before, encoding))


def range_of(source: Source, span: Span, encoding: Encoding) -> lsp.Range:
    """A span of the text."""
    return lsp.Range(
        position_of(source, span.start, encoding), position_of(source, span.end, encoding)
    )


def location_range(source: Source, place: SourceLocation, encoding: Encoding) -> lsp.Range:
    """The place of a diagnostic: at least one character wide, so that an editor shows it."""
    start = min(source.offset(place), len(source.text))
    return range_of(source, Span(start, min(start + place.width, len(source.text))), encoding)


def offset_of(source: Source, position: lsp.Position, encoding: Encoding) -> int:
    """The character at a place; what lies beyond the end of a line or of the text is its end."""
    lines = source.text.split("\n")
    if position.line >= len(lines):
        return len(source.text)
    line = lines[position.line]
    start = sum(map(len, lines[: position.line])) + position.line
    if encoding == "utf-32" or line.isascii():
        return start + min(position.character, len(line))
    units = 0
    for index, character in enumerate(line):
        if units >= position.character:
            return start + index
        units += _units(character, encoding)
    return start + len(line)


def _units(text: str, encoding: Encoding) -> int:
    if encoding == "utf-32" or text.isascii():
        return len(text)
    return len(text.encode("utf-8")) if encoding == "utf-8" else len(text.encode("utf-16-le")) // 2
