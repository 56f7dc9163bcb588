"""The values of numbers, sizes and strings, and the spelling of a string."""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["MAX_STRING", "UNITS", "LiteralError", "number", "quote", "size", "string"]

MAX_STRING: Final = 1 << 16
"""The longest string literal, in characters."""

MAX_DIGITS: Final = 1000
MAX_INTEGER: Final = (1 << 64) - 1

UNITS: Final = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
"""The units of sizes, in bytes."""

HEX: Final = re.compile(r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")
INTEGER: Final = re.compile(r"[0-9]+(?:_[0-9]+)*")
FLOAT: Final = re.compile(r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?(?:[eE][+-]?[0-9]+)?")
SIZE: Final = re.compile(r"([0-9_]+(?:\.[0-9]+)?)([A-Za-z]+)")
ESCAPE: Final = re.compile(r"\\(u\{[^}\"]*\}?|.)", re.DOTALL)

ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\"}
SPELLINGS: Final = {value: f"\\{letter}" for letter, value in ESCAPES.items()}


class LiteralError(Exception):
    """A literal that has no value; `span` has the offsets of the fault, if it is only a part of it."""

    def __init__(
        self, code: str, message: str, help: str, span: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.help = help
        self.span = span


def number(text: str) -> int | float:
    """The value of `28`, `1_000`, `0xff`, `0.1` or `1e-5`; raises LiteralError.

    >>> number("1_000"), number("0xff"), number("1e-5")
    (1000, 255, 1e-05)
    """
    if len(text) > MAX_DIGITS:
        message = f"a number of {len(text):,} characters"
        raise LiteralError("D0106", message, f"at most {MAX_DIGITS} are read")
    if INTEGER.fullmatch(text):
        return _integer(int(text), text)
    if HEX.fullmatch(text):
        return _integer(int(text, 16), text)
    if FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise LiteralError("D0103", f"`{text}` is larger than any f64", "infinity is `inf`")
        if not value and text.lower().partition("e")[0].strip("0._"):
            message = f"`{text}` is smaller than any f64 but 0"
            raise LiteralError("D0103", message, "write 0.0 for zero")
        return value
    raise _not_a_number(text)


def _integer(value: int, text: str) -> int:
    if value > MAX_INTEGER:
        help = "the largest is 18446744073709551615 (u64); a float is written with `.0` or `e`"
        raise LiteralError("D0103", f"`{_short(text)}` is larger than any integer type", help)
    if text[0] == "0" and len(text) > 1 and text.isdigit() and value:
        help = f"write {value}; hexadecimal is 0x{value:x}"
        raise LiteralError("D0103", f"`{_short(text)}` begins with a needless zero", help)
    return value


def _not_a_number(text: str) -> LiteralError:
    shown = _short(text)
    match = SIZE.fullmatch(text)
    if match and match.group(2) in UNITS:
        help = "sizes in bytes belong to `limit`: limit memory = 512MiB"
        return LiteralError("D0103", f"the size `{shown}` is not a number", help)
    if text[:2].lower() in ("0x", "0b", "0o"):
        help = "hexadecimal integers are written 0x1f, all others in decimal"
        return LiteralError("D0103", f"`{shown}` is not a number", help)
    if "_" in text and FLOAT.fullmatch(text.replace("_", "")):
        help = "put each `_` between two digits, as in 1_000_000"
        return LiteralError("D0103", f"`{shown}` has a `_` that is not between two digits", help)
    body = FLOAT.match(text)
    assert body is not None
    rest = text[body.end() :]
    if rest[0] in "eE" and not rest[1:].strip("0123456789_"):
        help = "write the exponent after `e`: 1e-5"
        return LiteralError("D0103", f"`{shown}` has no exponent after `{rest[0]}`", help)
    help = (
        f"a product is written {_short(body.group())} * {_short(rest)}; a name begins with a letter"
    )
    return LiteralError("D0103", f"`{shown}` is neither a number nor a name", help)


def size(text: str) -> int:
    """The bytes in `512MiB`; raises LiteralError."""
    match = SIZE.fullmatch(text)
    if match is None or match.group(2) not in UNITS or len(text) > MAX_DIGITS:
        message = f"`{_short(text)}` is not a size in bytes"
        raise LiteralError("D0103", message, f"write a number with a unit: {', '.join(UNITS)}")
    count, unit = number(match.group(1)), UNITS[match.group(2)]
    return round(count * unit)


def string(text: str) -> str:
    """The value of a string literal, quotes included in `text`; raises LiteralError.

    >>> string(r'"a\\tb"')
    'a\\tb'
    """
    if len(text) < 2 or text[-1] != '"' or _ends_escaped(text):
        raise LiteralError("D0104", "a string without a closing quote", 'put `"` after it')
    if len(text) > MAX_STRING:
        message = f"a string of {len(text):,} characters"
        raise LiteralError("D0106", message, f"at most {MAX_STRING:,} are read")
    body = text[1:-1]
    return ESCAPE.sub(_escape, body) if "\\" in body else body


def _ends_escaped(text: str) -> bool:
    """Whether the last quote belongs to an escape: the lexer took it for text."""
    body = text[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _escape(match: re.Match[str]) -> str:
    letter = match.group(1)
    if letter in ESCAPES:
        return ESCAPES[letter]
    if letter.startswith("u{") and letter.endswith("}") and len(letter) <= 9:
        try:
            value = int(letter[2:-1], 16)
        except ValueError:
            value = -1
        if 0 <= value < 0xD800 or 0xE000 <= value <= 0x10FFFF:
            return chr(value)
    help = 'the escapes are \\n \\t \\r \\0 \\" \\\\ and \\u{3b1}'
    span = (match.start() + 1, match.end() + 1)  # in the text with its quote
    raise LiteralError("D0104", f"`\\{letter}` is not an escape", help, span)


def quote(value: str) -> str:
    """A string literal with that value, printable characters as they are.

    >>> quote('a "b"')
    '"a \\\\"b\\\\""'
    """
    return f'"{"".join(_spell(character) for character in value)}"'


def _spell(character: str) -> str:
    if character in SPELLINGS:
        return SPELLINGS[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:36]}..."
