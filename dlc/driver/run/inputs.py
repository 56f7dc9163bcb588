"""Inputs as they are written on a command line: files, numbers, `zeros`, `text:'...'`, random ones."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlc.driver.run.numbers import read_numbers
from dlc.driver.run.pictures import PICTURES, read_picture
from dlc.errors import CallError, UsageError
from dlc.runtime.arrays.dtypes import DTYPES, byte_count, dtype_of
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Input, Output
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.calling.arguments import as_array
from dlc.runtime.system.available_memory import check_fits
from dlc.runtime.weights.files import open_weights
from dlc.runtime.weights.keys import typed

Value = NDArray[np.generic] | Tensor

ZEROS = "zeros"
TEXT = "text:"
ARRAYS = (".npy", ".npz", ".safetensors")

_NUMBERS = re.compile(r"[\s\[\],+\-0-9.eE]|inf|nan|true|false")

ANY = 10
"""What random integers are below where nothing is known of them."""
PIECE = 1 << 20
"""The random numbers drawn at once."""


def read_value(text: str, item: Input, *, resize: bool = False) -> Value:
    """The value of an input, from what the user wrote for it.

    A file of arrays (`.npy`, `.npz`, `.safetensors`), a picture, `text:'...'` (the quotes may be left
    out), or numbers such as `3.5` and
    `[[1, 2], [3, 4]]`. Raises UsageError (D0907) where it is none of these, CallError where the numbers
    do not fit the input, and what reading a file raises.
    """
    if text.startswith(TEXT):
        found = np.frombuffer(_unquoted(text.removeprefix(TEXT)).encode(), np.uint8)
        value = found[None] if len(item.shape) == 2 else found  # a batch of one
        return _of_dtype(value, item, "a text is bytes: write numbers, or name a file of them")
    suffix = Path(text).suffix.lower()
    if suffix in ARRAYS:
        way_out = f"convert it to {item.dtype} where {text} is made"
        return _of_dtype(_from_file(text, item), item, way_out)
    if suffix in PICTURES:
        return read_picture(text, item, resize=resize)
    if not text.strip() or _NUMBERS.sub("", text):
        raise UsageError(
            f"{text!r} is not a value for {item.name}: {describe(item)}",
            code="D0907",
            help="give a file (.npy, .npz, .safetensors, a picture), numbers such as '[[1, 2]]', "
            "zeros, or text:...",
        )
    return _from_numbers(text, item)


def _from_file(path: str, item: Input) -> Value:
    """The array called like the input, or the only one."""
    file = open_weights(path)
    names = list(file)
    found = file[names[0] if len(names) == 1 else item.name]
    return found if found.dtype == "bf16" else found.bits


def _of_dtype(value: Value, item: Input, way_out: str) -> Value:
    """The value; one of another dtype is refused here, where it is known how the user wrote it."""
    found = value.dtype if isinstance(value, Tensor) else str(dtype_of(value) or value.dtype)
    if found == item.dtype:
        return value
    have = typed(found, value.shape)
    raise CallError(
        f"{item.name} is {have}, where {describe(item)} is expected", code="D0802", help=way_out
    )


def _unquoted(text: str) -> str:
    """A text without the quotes around it, where it has them."""
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _from_numbers(text: str, item: Input) -> Value:
    try:
        values = read_numbers(text)
    except ValueError as error:
        raise _unreadable(text, item, str(error)) from None
    array = as_array(values, item, "--input")
    return Tensor.from_bits(array, "bf16") if item.dtype == "bf16" else array


def _unreadable(text: str, item: Input, why: str) -> UsageError:
    shown = text if len(text) < 60 else f"{text[:57]}..."
    return UsageError(
        f"{shown} for {item.name} cannot be read: {why}",
        code="D0907",
        help="numbers are written 3.5, lists [[1, 2], [3, 4]]",
    )


def zeros(item: Input, sizes: Mapping[str, int]) -> Value:
    """Zeros of the input's type, at these sizes."""
    bits = np.zeros(shape_of(item, sizes), DTYPES[item.dtype].numpy)
    return _as_value(bits, item)


def random_value(item: Input, sizes: Mapping[str, int], seed: int, limit: str = "") -> Value:
    """Numbers that depend on the seed and the input's name only.

    Floats are normally distributed, bools are even chances. Integers are below `limit`, the size of what
    they index, where that is known; else 0 to 9 (small, because they are often indices).
    """
    below = _below(limit, sizes)
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"{seed} is not a seed", code="D0901", help="use 0 to 2**64 - 1")
    stream = np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(item.name.encode())]))
    shape = shape_of(item, sizes)
    bits = np.empty(math.prod(shape), DTYPES[item.dtype].numpy)
    # Piece by piece: NumPy draws numbers of 64 bits, which are larger than those of most inputs.
    for start in range(0, bits.size, PIECE):
        piece = bits[start : start + PIECE]
        piece[...] = Tensor(_drawn(stream, piece.size, item, below), item.dtype).bits
    return _as_value(bits.reshape(shape), item)


def _below(limit: str, sizes: Mapping[str, int]) -> int:
    """What random integers are below: a limit, as far as its dtype goes, or 10."""
    try:
        return max(1, size_expressions.evaluate(limit, sizes, ())) if limit else ANY
    except size_expressions.BadExpression:
        return ANY  # a size that the call measures


def _drawn(stream: np.random.Generator, count: int, item: Input, below: int) -> NDArray[np.generic]:
    """The next numbers for an input."""
    match DTYPES[item.dtype].kind:
        case "f":
            return stream.standard_normal(count)
        case "b":
            return stream.integers(0, 2, count).astype(np.bool_)
        case _:
            kind, bits = DTYPES[item.dtype].kind, 8 * DTYPES[item.dtype].numpy.itemsize
            values = 1 << (bits if kind == "u" else bits - 1)
            return stream.integers(0, min(below, values), count)


def _as_value(bits: NDArray[np.generic], item: Input) -> Value:
    return Tensor.from_bits(bits, "bf16") if item.dtype == "bf16" else bits


def bytes_of(tensor: Input | Output, sizes: Mapping[str, int]) -> int:
    """The bytes of an input or output at these sizes; 0 for sizes that have no meaning."""
    try:
        shape = tuple(size_expressions.evaluate_all(tensor.shape, sizes))
    except size_expressions.BadExpression:
        return 0
    return byte_count(shape, DTYPES[tensor.dtype]) or 0


def shape_of(item: Input, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input at these sizes.

    Raises CallError for a size that is not known or that no machine has room for, Unsupported where the
    input alone is larger than this machine's memory.
    """
    try:
        shape = tuple(size_expressions.evaluate_all(item.shape, sizes))
    except size_expressions.BadExpression as error:
        raise CallError(
            f"{item.name}: {describe(item)} has a size that is not known: {error}",
            code="D0801",
            help="give the size, such as --dim B=8",
        ) from None
    length = byte_count(shape, DTYPES[item.dtype])
    if length is None:
        wrong = "which is below 0" if min(shape) < 0 else "larger than memory"
        raise CallError(f"{item.name} would be {list(shape)}, {wrong}", code="D0804")
    check_fits(f"{item.name}: {item.dtype}{list(shape)}", length)
    return shape
