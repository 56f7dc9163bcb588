"""Numbers as literals of the language: the shortest text that reads back as the same number."""

from __future__ import annotations

from typing import cast

import numpy as np

from dlc.runtime.arrays.dtypes import BF16, DTYPES, DType, bf16_bits
from dlc.runtime.arrays.tensor import Tensor


def literal(value: Tensor) -> str:
    """A number, or nested lists of numbers.

    >>> literal(Tensor([[0.8, 1.0], [1e-7, 3.0]], "f32")), literal(Tensor([True, False], "bool"))
    ('[[0.8, 1.0], [1e-07, 3.0]]', '[true, false]')
    >>> literal(Tensor(0.2, "bf16"))
    '0.2'
    """
    return _nested(value.tolist(), DTYPES[value.dtype])


def _nested(value: object, dtype: DType) -> str:
    match value:
        case list():
            items = cast("list[object]", value)
            return f"[{', '.join([_nested(item, dtype) for item in items])}]"
        case bool():
            return "true" if value else "false"
        case float():
            return _shortest(value, dtype)
        case _:
            return str(value)


def _shortest(value: float, dtype: DType) -> str:
    if not np.isfinite(value):
        return str(value)
    bits = _bits(value, dtype)
    texts = (repr(float(f"{value:.{digits}g}")) for digits in range(1, 18))
    return next(text for text in texts if _bits(float(text), dtype) == bits)


def _bits(value: float, dtype: DType) -> bytes:
    number = np.float64(value)
    with np.errstate(over="ignore"):
        stored = bf16_bits(np.asarray(number)) if dtype is BF16 else number.astype(dtype.numpy)
    return stored.tobytes()
