"""The spelling of small parts of IR: strings, names, attributes and locations.

Each spelling is one that MLIR reads, and says of which Python type the value is, so that reading gives
back an equal value:

    True, 3, 0.5, "a"          true, 3 : i64, 0.5 : f64, "a"
    (1, 2), (), (True, "a")    array<i64: 1, 2>, [], [true, "a"]
    B + 1, (B, 2)              #dlc.dim<"B + 1">, #dlc.dims<"B, 2">
    Symbol("w"), F32           @w, f32
    Packed(16), SplitK(B + 1)  #kernel.packed<16>, #kernel.split_k<"B + 1">
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import cast

from dlc.ir.attributes import Attribute, Dense, DialectAttribute, Symbol
from dlc.ir.dims import Dim, Shape
from dlc.ir.location import FileLocation, FusedLocation, Location, UnknownLocation
from dlc.ir.types import Type, dims_text
from dlc.text.ir.dense import dense_text, float_text

__all__ = [
    "WORD",
    "attribute_text",
    "integer_bits",
    "key_text",
    "location_text",
    "quoted",
    "value_name",
]

_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f\ud800-\udfff]')
WORD = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_VALUE_NAME = re.compile(r"[A-Za-z_$][\w$.\-]*", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^\w$.\-]", re.ASCII)


def quoted(text: str) -> str:
    """A string literal; what MLIR does not take as it is becomes `\\XX`, byte by byte."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] in '"\\':
        return "\\" + match[0]
    return "".join(f"\\{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _symbol_text(value: Symbol) -> str:
    return f"@{key_text(value.name)}"


@lru_cache(maxsize=4096)
def key_text(name: str) -> str:
    """The name of an attribute, or of a symbol: `axes`, `"blocks[0].w"`."""
    return name if WORD.fullmatch(name) else quoted(name)


def value_name(name: str) -> str:
    """A value's name with what MLIR does not allow in it replaced."""
    if _VALUE_NAME.fullmatch(name):
        return name
    allowed = _NOT_IN_NAMES.sub("_", name)
    return allowed if _VALUE_NAME.fullmatch(allowed) else f"_{allowed}"


def attribute_text(value: Attribute) -> str:
    """An attribute's value. Asserts that it is of a kind an attribute may have."""
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, DialectAttribute):
        return _dialect_attribute_text(value)
    assert isinstance(value, Type), f"{value!r} ({type(value).__name__}) is not an attribute"
    return str(value)


def _dialect_attribute_text(value: DialectAttribute) -> str:
    sizes = ", ".join(map(str, value.sizes))
    inside = quoted(sizes) if any(isinstance(size, Dim) for size in value.sizes) else sizes
    return f"#{value.name}<{inside}>" if sizes else f"#{value.name}"


def _int_text(value: int) -> str:
    return f"{value} : i{integer_bits(value)}"


def integer_bits(value: int) -> int:
    """The width of the type an integer is written with: 64, or the multiple of it that is needed."""
    return 64 * ((value if value >= 0 else ~value).bit_length() // 64 + 1)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return f"{float_text(repr(value))} : f64"
    return f"0x{struct.pack('>d', value).hex().upper()} : f64"


_SIZES = frozenset({int, Dim})


def _tuple_text(value: tuple[Attribute, ...]) -> str:
    kinds = set(map(type, value))
    if kinds and kinds <= _SIZES:
        sizes = cast("Shape", value)
        if all(type(size) is Dim or integer_bits(cast(int, size)) == 64 for size in sizes):
            return dims_text(sizes) if Dim in kinds else f"array<i64: {', '.join(map(str, sizes))}>"
    return f"[{', '.join(map(attribute_text, value))}]"


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _dim_text(value: Dim) -> str:
    return f'#dlc.dim<"{value}">'


_WRITERS: dict[type, Callable[..., str]] = {
    bool: _bool_text,
    int: _int_text,
    float: _float_text,
    str: quoted,
    tuple: _tuple_text,
    Dim: _dim_text,
    Symbol: _symbol_text,
    Dense: dense_text,
}


def location_text(location: Location) -> str:
    """What is in `loc(...)`, by MLIR's grammar of locations.

    Where a place ends is in a name that wraps it: `"..9"("a.dlm":3:4)`. So are the path of the module and
    the operation, with a colon between them: `"blocks.mlp:silu"("a.dlm":3:4)`.
    """
    match location:
        case FileLocation(file, line, column, end, path, operation, caller):
            text = f"{quoted(file)}:{line}:{column}"
            text = f'"..{end}"({text})' if end else text
            text = f"callsite({text} at {location_text(caller)})" if caller else text
            return f"{quoted(f'{path}:{operation}')}({text})" if path or operation else text
        case FusedLocation(parts):
            return f"fused[{', '.join(map(location_text, parts))}]"
        case UnknownLocation(reason):
            return quoted(reason) if reason else "unknown"
