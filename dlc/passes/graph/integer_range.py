"""The range of the integers that a value can hold, by interval arithmetic from what computes it."""

from __future__ import annotations

from typing import TypeAlias

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Op, Value
from dlc.ir.types import DType

__all__ = ["integer_range"]

Range: TypeAlias = tuple[int, int]
"""The least and the largest number, both possible."""

FARTHEST = 16
"""The most operations that are followed from a value to what it is computed from."""


def integer_range(value: Value) -> Range:
    """The range of a tensor of integers or bools, at most that of its dtype."""
    return _range(value, FARTHEST, {})


def _range(value: Value, far: int, known: dict[Value, Range]) -> Range:
    if value not in known:
        whole = _limits(tensor_type(value).dtype)
        found = None if value.op is None or far == 0 else _computed(value.op, far - 1, known)
        # What leaves the range of the dtype wraps.
        known[value] = whole if found is None or not _is_inside(found, whole) else found
    return known[value]


def _limits(dtype: DType) -> Range:
    if dtype.kind == "bool":
        return 0, 1
    signed = dtype.kind == "int"
    return (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
        if signed
        else (0, (1 << dtype.bits) - 1)
    )


def _is_inside(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _computed(op: Op, far: int, known: dict[Value, Range]) -> Range | None:
    """The range of an operation's result before it wraps; None where it is not known."""

    def of(value: Value) -> Range:
        return _range(value, far, known)

    match op:
        case array.Constant(value=dense):
            return (int(dense.array.min()), int(dense.array.max())) if dense.array.size else (0, 0)
        case array.Fill(value=number):
            return int(number), int(number)
        case array.Iota(shape=shape, axis=axis) if isinstance(shape[axis], int):
            extent = shape[axis]
            assert isinstance(extent, int)
            return 0, max(extent - 1, 0)
        case array.FloorDivide(lhs=lhs, rhs=rhs) if of(rhs)[0] > 0:
            (a, b), (c, d) = of(lhs), of(rhs)
            return min(a // c, a // d), max(b // c, b // d)
        case array.Cast(source=source):
            return None if tensor_type(source).dtype.is_float else of(source)
        case array.Add(lhs=lhs, rhs=rhs):
            (a, b), (c, d) = of(lhs), of(rhs)
            return a + c, b + d
        case array.Subtract(lhs=lhs, rhs=rhs):
            (a, b), (c, d) = of(lhs), of(rhs)
            return a - d, b - c
        case array.Maximum(lhs=lhs, rhs=rhs):
            (a, b), (c, d) = of(lhs), of(rhs)
            return max(a, c), max(b, d)
        case array.Minimum(lhs=lhs, rhs=rhs):
            (a, b), (c, d) = of(lhs), of(rhs)
            return min(a, c), min(b, d)
        case array.Select(yes=yes, no=no):
            return _union(of(yes), of(no))
        case array.Concatenate(sources=sources):
            return _union(*map(of, sources))
        case array.Pad(source=source, value=value):
            return _union(of(source), of(value))
        case (
            array.Reshape(source=source)
            | array.Transpose(source=source)
            | array.Broadcast(source=source)
            | array.Slice(source=source)
            | array.Reverse(source=source)
            | array.Gather(source=source)
        ):
            return of(source)
        case _:
            return None


def _union(*ranges: Range) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)
