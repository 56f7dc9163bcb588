"""Attribute values and locations of IR, read from tokens.

Both readers take the tokens and an index and give the value and the index after it. What is wrong is a
`Malformed`, which says at which token; the parser makes it a diagnostic.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from math import isfinite
from typing import NoReturn

from dlc.ir.attributes import DIALECT_ATTRIBUTES, Attribute, Symbol, make_dialect_attribute
from dlc.ir.dims import Dim
from dlc.ir.location import FileLocation, FusedLocation, Location, UnknownLocation
from dlc.ir.types import FunctionType, TensorType, Type
from dlc.text.ir.dense import read_dense
from dlc.text.ir.lexer import unquoted
from dlc.text.ir.spelling import WORD, integer_bits
from dlc.text.ir.types import read_shape, read_size, read_type

__all__ = ["Malformed", "Reader"]

MAX_NESTING = 64
"""How deep lists and function types may be nested."""
MAX_CONSTANTS = 256 << 20
"""Bytes that all constants of a text may have together: an equal one is written in a few letters."""
MAX_COUNT = 2**31 - 1
"""The highest line, column or number of results."""

_INTEGER = re.compile(r"-?\d+", re.ASCII)
_COUNT = re.compile(r"\d{1,10}", re.ASCII)
_WIDTH = re.compile(r"i(\d{2,4})", re.ASCII)
_FLOAT = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_BITS = re.compile(r"0x[0-9A-Fa-f]{16}")


@dataclass(slots=True, eq=False)
class Malformed(Exception):
    """The text is malformed at the token `index`."""

    index: int
    message: str
    code: str = "D0151"
    help: str | None = None


class Reader:
    """Reads the parts of operations; equal types are read once."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.types: dict[str, Type] = {}
        self._constants = 0

    def unexpected(self, at: int, expected: str) -> NoReturn:
        """Refuse the token at this index."""
        token = self.tokens[at]
        actual = f"found {token[:40]}" if token else "the text ends"
        raise Malformed(at, f"expected {expected}, {actual}")

    def expect(self, at: int, token: str) -> int:
        """The index after a token that must be there."""
        if self.tokens[at] != token:
            self.unexpected(at, repr(token))
        return at + 1

    def string(self, at: int) -> str:
        """The text of a string literal."""
        token = self.tokens[at]
        if token[:1] != '"':
            self.unexpected(at, "a string")
        try:
            return unquoted(token)
        except ValueError as error:
            raise Malformed(at, str(error), "D0157") from None

    # Types.

    def type(self, at: int, depth: int = 0) -> tuple[Type, int]:
        """A type."""
        token = self.tokens[at]
        cached = self.types.get(token)
        if cached is not None:
            return cached, at + 1
        if token == "(":
            return self.function_type(at, depth)
        if not token or token[0] in '"%@^#[{})]>,:=':
            self.unexpected(at, "a type")
        try:
            type = read_type(token)
        except ValueError as error:
            raise Malformed(at, str(error), "D0156") from None
        self.types[token] = type
        return type, at + 1

    def function_type(self, at: int, depth: int = 0) -> tuple[FunctionType, int]:
        """`(inputs) -> result` or `(inputs) -> (results)`."""
        if depth > MAX_NESTING:
            raise Malformed(at, f"types are nested more than {MAX_NESTING} deep", "D0150")
        inputs, at = self.type_list(at, depth)
        at = self.expect(at, "->")
        if self.tokens[at] == "(":
            results, at = self.type_list(at, depth)
        else:
            result, at = self.type(at, depth + 1)
            results = (result,)
        return FunctionType(inputs, results), at

    def type_list(self, at: int, depth: int = 0) -> tuple[tuple[Type, ...], int]:
        """Types in parentheses."""
        tokens = self.tokens
        at = self.expect(at, "(")
        if tokens[at] == ")":
            return (), at + 1
        types: list[Type] = []
        while True:
            type, at = self.type(at, depth + 1)
            types.append(type)
            if tokens[at] == ")":
                return tuple(types), at + 1
            if tokens[at] != ",":
                self.unexpected(at, "',' or ')'")
            at += 1

    # Attributes.

    def attributes(self, at: int, end: str, into: dict[str, Attribute]) -> int:
        """Entries `name = value` up to `end`, added to those there are."""
        tokens = self.tokens
        while tokens[at] != end:
            start = at
            key, at = self._key(at)
            if key in into:
                raise Malformed(start, f"the attribute {key} is given twice", "D0158")
            if tokens[at] != "=":
                self.unexpected(at, f"'=' and the value of {key}")
            into[key], at = self.attribute(at + 1)
            if tokens[at] == ",":
                at += 1
            elif tokens[at] != end:
                self.unexpected(at, f"',' or '{end}'")
        return at + 1

    def _key(self, at: int) -> tuple[str, int]:
        token = self.tokens[at]
        if token[:1] == '"':
            return self.string(at), at + 1
        if not WORD.fullmatch(token):
            self.unexpected(at, "the name of an attribute")
        return token, at + 1

    def attribute(self, at: int, depth: int = 0) -> tuple[Attribute, int]:
        """The value of an attribute."""
        token = self.tokens[at]
        match token[:1]:
            case '"':
                return self.string(at), at + 1
            case "@":
                return self.symbol(at), at + 1
            case "[":
                return self._list(at, depth)
            case "#":
                return self._dialect_attribute(at), at + 1
            case "-" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                return self._number(at)
            case "t" | "f" if token in ("true", "false"):
                return token == "true", at + 1
            case "a" if token.startswith("array<"):
                return self._array(at), at + 1
            case "d" if token.startswith("dense<"):
                return self._dense(at)
            case _:
                return self.type(at, depth)

    def symbol(self, at: int) -> Symbol:
        """`@name`."""
        name = self.tokens[at][1:]
        if name[:1] != '"':
            return Symbol(name)
        try:
            return Symbol(unquoted(name))
        except ValueError as error:
            raise Malformed(at, str(error), "D0157") from None

    def _list(self, at: int, depth: int) -> tuple[tuple[Attribute, ...], int]:
        if depth > MAX_NESTING:
            raise Malformed(at, f"lists are nested more than {MAX_NESTING} deep", "D0150")
        items: list[Attribute] = []
        at += 1
        while self.tokens[at] != "]":
            item, at = self.attribute(at, depth + 1)
            items.append(item)
            if self.tokens[at] == ",":
                at += 1
            elif self.tokens[at] != "]":
                self.unexpected(at, "',' or ']'")
        return tuple(items), at + 1

    def _dialect_attribute(self, at: int) -> Attribute:
        """`#dlc.dim<"B">`, `#dlc.dims<"B, 64">`, `#kernel.packed<16>`, `#kernel.split_k<"B">`."""
        name, _, body = self.tokens[at].partition("<")
        body = body.removesuffix(">").strip()
        if name[1:] in DIALECT_ATTRIBUTES:
            try:
                quoted = len(body) > 1 and body[0] == body[-1] == '"'
                sizes = read_shape(body[1:-1] if quoted else body)
                return make_dialect_attribute(name[1:], sizes)
            except ValueError as error:
                raise Malformed(at, str(error), "D0157") from None
        if name not in ("#dlc.dim", "#dlc.dims") or body[:1] != '"' or body[-1:] != '"':
            raise Malformed(at, f'{name} is not an attribute; write #dlc.dims<"B, 64">', "D0157")
        try:
            return read_size(body[1:-1]) if name == "#dlc.dim" else read_shape(body[1:-1])
        except ValueError as error:
            raise Malformed(at, str(error), "D0156") from None

    def _number(self, at: int) -> tuple[bool | int | float, int]:
        token = self.tokens[at]
        type = ""
        after = at + 1
        if self.tokens[after] == ":":
            type = self.tokens[after + 1]
            after += 2
        if type == "f64" or (not type and not _INTEGER.fullmatch(token)):
            if _BITS.fullmatch(token):
                (value,) = struct.unpack(">d", bytes.fromhex(token[2:]))
                return float(value), after
            if _FLOAT.fullmatch(token) and isfinite(float(token)):
                return float(token), after
        elif _INTEGER.fullmatch(token):
            width = _WIDTH.fullmatch(type or "i64")
            if width is not None and int(width[1]) % 64 == 0 and len(token) <= int(width[1]):
                value = int(token)
                if integer_bits(value) <= int(width[1]):
                    return value, after
        raise Malformed(
            at,
            f"{token[:40]}{' : ' if type else ''}{type[:40]} is not a number of an attribute",
            "D0157",
            "attributes hold integers that fit i64 and f64 numbers: 3 : i64, 0.5 : f64",
        )

    def _array(self, at: int) -> tuple[int, ...]:
        body = self.tokens[at][6:-1].strip()
        kind, _, items = body.partition(":")
        numbers = [item.strip() for item in items.split(",")] if items else []
        if kind.strip() != "i64" or not all(map(_INTEGER.fullmatch, numbers)):
            raise Malformed(at, "expected integers, such as array<i64: 1, 0>", "D0157")
        if any(len(item) > 20 or integer_bits(int(item)) > 64 for item in numbers):
            raise Malformed(at, "an integer does not fit i64", "D0157")
        return tuple(map(int, numbers))

    def _dense(self, at: int) -> tuple[Attribute, int]:
        after = self.expect(at + 1, ":")
        type, after = self.type(after)
        if not isinstance(type, TensorType) or any(isinstance(size, Dim) for size in type.shape):
            raise Malformed(
                at, f"the type of a constant is a tensor of known size, not {type}", "D0157"
            )
        size = type.size
        assert isinstance(size, int)
        self._constants += size * type.dtype.bytes
        if self._constants > MAX_CONSTANTS:
            raise Malformed(at, f"the constants have more than {MAX_CONSTANTS >> 20} MiB", "D0150")
        try:
            return read_dense(self.tokens[at][6:-1], type), after
        except ValueError as error:
            raise Malformed(at, str(error), "D0157") from None

    # Locations.

    def location(self, at: int) -> tuple[Location, int]:
        """What is in `loc(...)`."""
        token = self.tokens[at]
        if token == "unknown":
            return UnknownLocation(), at + 1
        if token == "fused":
            return self._fused(self.expect(at + 1, "["))
        follows = self.tokens[at + 1]
        if token == "callsite" or follows in {":", "("}:
            return self._file_location(at)
        return UnknownLocation(self.string(at)), at + 1

    def _file_location(self, at: int) -> tuple[FileLocation, int]:
        """A place with what stands there: `"blocks.mlp:silu"("a.dlm":3:4)`, or the place alone."""
        if self.tokens[at] == "callsite" or self.tokens[at + 1] != "(":
            return self._called_place(at)
        name = self.string(at)
        if name[:2] == "..":
            return self._place(at)
        place, after = self._called_place(at + 2)
        path, _, operation = name.rpartition(":")
        return replace(place, path=path, operation=operation), self.expect(after, ")")

    def _called_place(self, at: int) -> tuple[FileLocation, int]:
        """A place, or `callsite("a.dlm":3:4 at "b.dlm":5:6)`."""
        if self.tokens[at] != "callsite":
            return self._place(at)
        place, after = self._place(self.expect(at + 1, "("))
        caller, after = self._place(self.expect(after, "at"))
        return replace(place, caller=caller), self.expect(after, ")")

    def _place(self, at: int) -> tuple[FileLocation, int]:
        """`"a.dlm":3:4`, or `"..9"("a.dlm":3:4)` for one that ends before column 9."""
        text = self.string(at)
        if self.tokens[at + 1 : at + 4 : 2] == ["(", ":"]:
            place, after = self._place(at + 2)
            return replace(place, end=self._limited(at, text[2:])), self.expect(after, ")")
        line = self.count(self.expect(at + 1, ":"))
        column = self.count(self.expect(at + 3, ":"))
        return FileLocation(text, line, column), at + 5

    def _fused(self, at: int) -> tuple[FusedLocation, int]:
        parts: list[FileLocation] = []
        while True:
            part, after = self._file_location(at)
            parts.append(part)
            if self.tokens[after] == "]":
                return FusedLocation(tuple(parts)), after + 1
            at = self.expect(after, ",")

    def count(self, at: int) -> int:
        """A number that is not negative."""
        return self._limited(at, self.tokens[at])

    def _limited(self, at: int, digits: str) -> int:
        if not _COUNT.fullmatch(digits) or int(digits) > MAX_COUNT:
            raise Malformed(at, f"{digits[:40]!r} is not a number up to {MAX_COUNT}", "D0157")
        return int(digits)
