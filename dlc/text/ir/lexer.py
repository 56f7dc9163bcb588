"""The tokens of IR text.

A token is its text; the first character says what it is. Types and literals that contain no other
parts (`tensor<2x3xf32>`, `array<i64: 1, 0>`, `dense<...>`, `!mem.view<...>`) are one token each: they
are most of a text, and equal ones are then read once. No token crosses the end of a line, so that line
numbers come for free, and columns are found by reading one line again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from dlc.errors import Diagnostic, ModelError, SourceLocation
from dlc.ir.location import FileLocation

__all__ = ["MAX_LENGTH", "MAX_LINE", "Tokens", "read_tokens", "unquoted"]

MAX_LENGTH = 64 << 20
"""The longest IR text that is read, in characters."""
MAX_LINE = 8 << 20
"""The longest line in it."""
AHEAD = 8
"""Empty tokens after the last one: more than any reader looks ahead without checking."""

# Repetition is possessive (`*+`) where a missing end could make a search run over the text again.
_TOKEN = re.compile(
    r"""
      //.*                                            # comment
    | "[^"\\]*+(?:\\.[^"\\]*+)*+"?                    # string, perhaps not closed
    | %[\w$.\-]+(?:\#\d+)?                            # value
    | (?:tensor|vector|array|dense) < (?:[^<>"\#]++|"[^"]*"|\#[\w.]+<"[^"]*">)*+ >
    | (?:b?f\d+|[iu]\d+|bool|index)\[[^\[\]"=%]*\]    # array type, short: f32[B, 4]
    | <[^<>"{}]*>                                     # symbolic size, short: <3*B + 1>
    | [\#!][\w$.]+ (?:<(?:[^<>"]++|"[^"]*")*+>)?      # attribute or type of a dialect
    | @(?:[\w$.]+|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)       # symbol
    | \^\w+                                           # label of a block
    | -?0x[0-9A-Fa-f]+ | -?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?
    | [A-Za-z_][\w$.]*                                # word
    | -> | <\{ | \}> | \S
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"\\": b"\\", b'"': b'"'}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text, then a few empty ones, and the index of the first token of each line."""

    file: str
    lines: list[str]
    texts: list[str]
    starts: list[int]

    def line(self, index: int) -> int:
        """The line that a token is on, counting from 1."""
        return bisect_right(self.starts, index)

    def place(self, index: int) -> SourceLocation:
        """Where a token is. The end of the text is after the last line."""
        number = self.line(index)
        line = self.lines[number - 1]
        skip = index - self.starts[number - 1]
        for match in _TOKEN.finditer(line):
            if match[0][:2] == "//":
                break
            if skip == 0:
                return SourceLocation(self.file, number, match.start() + 1, match.end() + 1)
            skip -= 1
        return SourceLocation(self.file, number, len(line.rstrip()) + 1)

    def location(self, index: int) -> FileLocation:
        """The same as a location, quick where the token's text is on its line once."""
        number = self.line(index)
        line, text = self.lines[number - 1], self.texts[index]
        if line.count(text) > 1:
            place = self.place(index)
            return FileLocation(place.file, place.line, place.column, place.end)
        column = line.find(text) + 1
        return FileLocation(self.file, number, column, column + len(text))


def read_tokens(text: str, file: str) -> Tokens:
    """Split IR text into tokens. Raises ModelError where it is longer than can be read."""
    if len(text) > MAX_LENGTH:
        raise ModelError(
            f"{file} has {len(text)} characters, more than the {MAX_LENGTH} an IR text may have",
            code="D0150",
        )
    lines = text.split("\n")
    texts: list[str] = []
    starts: list[int] = []
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            message = f"the line has {len(line)} characters, more than {MAX_LINE}"
            raise ModelError([Diagnostic("D0150", message, SourceLocation(file, number, 1))])
        starts.append(len(texts))
        tokens = _TOKEN.findall(line)
        if "//" in line and tokens and tokens[-1][:2] == "//":
            tokens.pop()
        texts += tokens
    texts += [""] * AHEAD
    return Tokens(file, lines, texts, starts)


def unquoted(token: str) -> str:
    """The text that a string literal stands for. Raises ValueError that says what is wrong."""
    if len(token) < 2 or token[-1] != '"':
        raise ValueError("the string is not closed on this line")
    if "\\" not in token:
        return token[1:-1]
    data = token[1:-1].encode("utf-8", "surrogatepass")
    if _ESCAPE.sub(b"", data).endswith(b"\\"):
        raise ValueError("the string is not closed on this line")
    try:
        return _ESCAPE.sub(_unescaped, data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError("the escapes in the string are not UTF-8") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes.fromhex(match[1].decode("ascii"))
    if match[2] not in _LETTERS:
        raise ValueError(f"\\{match[2].decode('utf-8', 'replace')} is not an escape")
    return _LETTERS[match[2]]
