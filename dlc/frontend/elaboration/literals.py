"""Numbers of a text as elements of a dtype: it holds them, or the text is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from dlc.errors import Label, SourceLocation
from dlc.frontend.elaboration.trace import Trace
from dlc.ir.types import BF16, BOOL, F16, F32, F64, LANGUAGE_DTYPES, DType

__all__ = ["literal"]

_PRECISION = {F64: (53, 1024), F32: (24, 128), F16: (11, 16), BF16: (8, 128)}
"""Of each float dtype: the bits of a significand, and the exponent that is too large."""
_BEYOND = {
    dtype: (2 ** (bits + 1) - 1) << (exponent - bits - 1)
    for dtype, (bits, exponent) in _PRECISION.items()
}
"""Halfway between the largest number and what would be next: from there on rounding gives infinity."""

_LEAST = {dtype: 2.0 ** (3 - exponent - bits) for dtype, (bits, exponent) in _PRECISION.items()}
"""The smallest positive number of each float dtype; half of it and less is rounded to 0."""


def literal(
    at: Trace,
    value: float,
    dtype: DType,
    *,
    beside: bool = False,
    place: SourceLocation | None = None,
    labels: Sequence[Label] = (),
) -> bool | int | float:
    """A number as an element of `dtype`; raises D0323 where it is none.

    The dtype is that of a tensor which the number stands `beside`, or else was declared. The message is
    about `place`, or the place reached.
    """
    if dtype is BOOL:
        if isinstance(value, bool):
            return value
        message, help = f"{value} is not a bool", "write true or false, or compare"
    elif isinstance(value, bool):
        text = "true" if value else "false"
        message, help = (
            f"{text} is not of dtype {dtype.name}",
            f"convert the bools: {dtype.name}(...)",
        )
    elif isinstance(value, float) and not dtype.is_float:
        message = f"{value} is not of dtype {dtype.name}"
        help = "write a whole number, or take a float dtype such as f32"
        if beside:
            help = "convert the tensor to a float dtype first, such as f32(x)"
    elif dtype.is_float and _vanishes(dtype, value):
        message = (
            f"{value} would be 0 in {dtype.name}, whose smallest number is {_LEAST[dtype]:.1g}"
        )
        help = _way_out(dtype, value, beside)
    elif not _holds(dtype, value):
        message = f"{value} does not fit {dtype.name}, which holds {_range_text(dtype)}"
        help = _way_out(dtype, value, beside)
    else:
        return float(value) if dtype.is_float else value
    raise at.fail("D0323", message, place=place, help=help, labels=labels)


def _holds(dtype: DType, value: float) -> bool:
    """Whether a number is in the range of a dtype; infinities and NaN are in that of every float."""
    if dtype.is_float:
        return not isfinite(value) or (abs(value) < _BEYOND[dtype] and not _vanishes(dtype, value))
    low, high = _limits(dtype)
    return low <= value <= high


def _vanishes(dtype: DType, value: float) -> bool:
    """Whether a number that is not 0 would be rounded to it."""
    return 0 < abs(value) <= _LEAST[dtype] / 2


def _limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest whole number of an integer dtype."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _range_text(dtype: DType) -> str:
    if dtype.is_float:
        bits, exponent = _PRECISION[dtype]
        largest = float((2**bits - 1) << (exponent - bits))
        return f"{-largest:.8g} to {largest:.8g}"
    low, high = _limits(dtype)
    return f"{low} to {high}"


def _way_out(dtype: DType, value: float, beside: bool) -> str:
    """The narrowest dtype of the same kind that holds the number, and what a tensor of this one holds."""
    held = (value, *_limits(dtype)) if beside and not dtype.is_float else (value,)
    fitting = [
        other
        for other in LANGUAGE_DTYPES
        if other.is_float == dtype.is_float and other not in (BOOL, BF16)
        if all(_holds(other, number) for number in held)
    ]
    wider = min(fitting, key=lambda other: (other.bits, other.kind != dtype.kind), default=F64)
    held_by = f"{wider.name} holds it"
    if beside:
        held_by = f"convert the tensor to a wider dtype first: {wider.name}(x)"
    too_large = dtype.is_float and abs(value) > 1
    return f"{held_by}; infinity is written `inf`" if too_large else held_by
