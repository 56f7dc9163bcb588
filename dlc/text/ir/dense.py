"""Constants in the text of IR: `dense<[1.0, 2.5]> : tensor<2xf32>`.

Few elements are literals, many are the hexadecimal bytes of the array, equal ones are written once.
So are infinities and NaNs: what MLIR writes for them, xDSL takes for numbers. Every form gives back the
same bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.ir.attributes import Dense, decode, encode
from dlc.ir.types import BOOL, DType, TensorType

__all__ = ["dense_text", "float_text", "read_dense"]

MAX_LITERALS = 16
"""Constants of more elements are written as bytes, unless they are bools: there MLIR packs bits."""


# Writing ----------------------------------------------------------------------------------------


def dense_text(value: Dense) -> str:
    """A constant with its type."""
    return f"dense<{_body(value)}> : {value.type}"


def _body(value: Dense) -> str:
    dtype = value.type.dtype
    if not value.data:
        return ""
    one = value.is_splat
    flat = value.array.reshape(-1)[: 1 if one else None]
    if dtype is not BOOL and (flat.size > MAX_LITERALS or not _is_finite(flat, dtype)):
        return f'"0x{flat.tobytes().hex().upper()}"'
    sizes = [] if one else [size for size in value.type.shape if isinstance(size, int)]
    return _nested(_literals(flat, dtype), sizes)


def _is_finite(array: NDArray[np.generic], dtype: DType) -> bool:
    return not dtype.is_float or bool(np.isfinite(decode(array, dtype)).all())


def _nested(items: Sequence[str], sizes: Sequence[int]) -> str:
    """Row-major literals in brackets, the innermost axis first."""
    for size in reversed(sizes):
        items = [
            f"[{', '.join(items[start : start + size])}]" for start in range(0, len(items), size)
        ]
    return items[0]


def _literals(array: NDArray[np.generic], dtype: DType) -> list[str]:
    if dtype.is_float:
        return _float_literals(array, dtype)
    if dtype is BOOL:
        return ["true" if item else "false" for item in array]
    return [str(int(item)) for item in array.tolist()]


def _float_literals(array: NDArray[np.generic], dtype: DType) -> list[str]:
    """The shortest decimals that, read as f64 and rounded to `dtype`, are the same bits."""
    bits = f"uint{dtype.bits}"
    values = decode(array, dtype)
    short = [float_text(str(value)) for value in values]
    read = encode(np.array([float(text) for text in short]), dtype)
    exact = values.astype(np.float64).tolist()
    return [
        text if same else float_text(repr(value))
        for text, same, value in zip(short, read.view(bits) == array.view(bits), exact, strict=True)
    ]


def float_text(text: str) -> str:
    """Python's spelling of a finite float with the decimal point that MLIR asks for."""
    if "." in text or not text[-1].isdecimal():
        return text
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0{e}{exponent}"


# Reading ----------------------------------------------------------------------------------------

_ITEM = re.compile(r"[\[\],]|[^\s\[\],]+")
_BYTES = re.compile(r'"0x([0-9A-Fa-f]{2})+"')
_BITS = re.compile(r"0x[0-9A-Fa-f]+")
_DECIMAL = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)


def read_dense(body: str, type: TensorType) -> Dense:
    """The constant with what stands between `dense<` and `>`. Raises ValueError that says what is wrong."""
    body = body.strip()
    shape = tuple([int(size) for size in type.shape if isinstance(size, int)])
    count = int(np.prod(shape, dtype=object))
    if not body:
        if count:
            raise ValueError(f"there are no elements for {type}")
        return Dense(type, b"")
    if body[0] == '"':
        data = _bytes_of(body, type.dtype)
    else:
        data = _elements(_split(body, shape, count), type.dtype)
    if len(data) == type.dtype.bytes:
        return Dense(type, data * count)
    if len(data) != count * type.dtype.bytes:
        raise ValueError(f"{len(data)} bytes do not fill {type}")
    return Dense(type, data)


def _bytes_of(body: str, dtype: DType) -> bytes:
    if dtype is BOOL:
        raise ValueError("the elements of a tensor of i1 are written as true and false")
    if not _BYTES.fullmatch(body):
        raise ValueError('expected hexadecimal bytes, such as "0x0000803F"')
    data = bytes.fromhex(body[3:-1])
    if len(data) % dtype.bytes:
        raise ValueError(f"the bytes, {len(data)}, are not a whole number of elements of {dtype}")
    return data


def _split(body: str, shape: Sequence[int], count: int) -> list[str]:
    """The literals of nested brackets, or one for all elements."""
    tokens: list[str] = _ITEM.findall(body)
    literals = [token for token in tokens if token not in "[],"]
    if len(tokens) == 1 and literals:
        return literals
    if len(literals) == count:
        skeleton = "".join(token if token in "[]," else "_" for token in tokens)
        if skeleton == _nested(["_"] * count, shape).replace(" ", ""):
            return literals
    raise ValueError(f"the elements are not {count} literals nested as {list(shape)}")


def _elements(literals: Sequence[str], dtype: DType) -> bytes:
    if dtype.is_float:
        return _float_elements(literals, dtype)
    if dtype is BOOL:
        if wrong := next((item for item in literals if item not in ("true", "false")), None):
            raise ValueError(f"{wrong!r} is neither true nor false")
        return bytes([item == "true" for item in literals])
    signed = dtype.kind != "uint"
    low, high = (-(1 << dtype.bits - 1), 1 << dtype.bits - 1) if signed else (0, 1 << dtype.bits)
    for item in literals:
        if not _INTEGER.fullmatch(item) or not low <= int(item) < high:
            raise ValueError(f"{item[:40]!r} is no {dtype}")
    return np.array([int(item) for item in literals], dtype.numpy).tobytes()


def _float_elements(literals: Sequence[str], dtype: DType) -> bytes:
    """Decimals, and bits in hexadecimal, as MLIR writes infinities and NaNs."""
    bits = {index: item for index, item in enumerate(literals) if item[:2] == "0x"}
    numbers = ["0" if index in bits else item for index, item in enumerate(literals)]
    if wrong := next((item for item in numbers if not _DECIMAL.fullmatch(item)), None):
        raise ValueError(f"{wrong[:40]!r} is not a number")
    with np.errstate(over="ignore"):
        encoded = encode(np.array([float(item) for item in numbers]), dtype)
    patterns = encoded.view(f"uint{dtype.bits}")
    for index, item in bits.items():
        if not _BITS.fullmatch(item) or len(item) != 2 + dtype.bits // 4:
            raise ValueError(f"{item[:40]!r} is not {dtype.bits} bits")
        patterns[index] = int(item, 16)
    return encoded.tobytes()
