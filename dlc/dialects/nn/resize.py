"""Resizing of tensors by nearest-neighbour or linear interpolation.

The position of output element i of n on an input axis of size s follows one of three conventions:

- `half_pixel`: (i + 1/2) * s / n - 1/2
- `asymmetric`: i * s / n
- `align_corners`: i * (s - 1) / (n - 1)

Positions are fractions of integers, so that rounding never decides which element is the nearest. The scale
is n / s unless it is given, which matters where n was rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype, numbers
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I64, TensorType

__all__ = ["resize_linear", "resize_nearest"]

REPEATING = {
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("asymmetric", "floor"),
}
"""Conventions in which resizing to an integer multiple of the size repeats each element."""


def resize_nearest(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    *,
    scales: Mapping[int, Fraction] = {},
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
) -> Value:
    """The source element nearest to each position; `sizes` has the new size of each axis that changes.

    `scales` has the scale of an axis where it is not the ratio of the sizes. `rounding` is
    round_prefer_floor, round_prefer_ceil, floor or ceil.
    """
    for axis, size in sizes.items():
        old = tensor_type(x).shape[axis]
        factor = size // old
        if (
            (coordinates, rounding) in REPEATING
            and axis not in scales
            and isinstance(factor, int)
            and factor * old == size
        ):
            x = _repeated(emit, x, axis, factor)
        else:
            position = _source_position(emit, old, size, coordinates, scales.get(axis))
            x = _gather_clamped(emit, x, axis, position.rounded(emit, rounding), old)
    return x


def resize_linear(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    *,
    scales: Mapping[int, Fraction] = {},
    coordinates: str = "half_pixel",
) -> Value:
    """Linear interpolation between the two source elements next to each position, axis after axis.

    Positions outside take the outermost element. `scales` is as for `resize_nearest`.
    """
    for axis, size in sizes.items():
        old, scale = tensor_type(x).shape[axis], scales.get(axis)
        if old == size and scale is None:
            continue
        position = _source_position(emit, old, size, coordinates, scale)
        below = emit(array.FloorDivide(position.numerator, position.denominator))
        low = _gather_clamped(emit, x, axis, below, old)
        high = _gather_clamped(emit, x, axis, plus(emit, below, 1), old)
        remainder = emit(array.Remainder(position.numerator, position.denominator))
        dtype = tensor_type(x).dtype
        weight = emit(
            array.Divide(
                in_dtype(emit, remainder, dtype), in_dtype(emit, position.denominator, dtype)
            )
        )
        difference = emit(
            array.Multiply(emit(array.Subtract(high, low)), along(emit, weight, low, (axis,)))
        )
        x = emit(array.Add(low, difference))
    return x


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position of each output element on the source axis, as a fraction of two i64 tensors.

    The denominator is positive.
    """

    numerator: Value
    denominator: Value

    def rounded(self, emit: Builder, rounding: str) -> Value:
        """The positions rounded to indices."""
        over, under = self.numerator, self.denominator
        if rounding == "floor":
            return emit(array.FloorDivide(over, under))
        if rounding == "ceil":
            return _ceil(emit, over, under)
        twice, double = emit(array.Add(over, over)), emit(array.Add(under, under))
        if rounding == "round_prefer_ceil":
            return emit(array.FloorDivide(emit(array.Add(twice, under)), double))
        assert rounding == "round_prefer_floor", rounding
        return _ceil(emit, emit(array.Subtract(twice, under)), double)


def _ceil(emit: Builder, over: Value, under: Value) -> Value:
    return emit(array.Negate(emit(array.FloorDivide(emit(array.Negate(over)), under))))


def _source_position(
    emit: Builder, old: Size, new: Size, coordinates: str, scale: Fraction | None
) -> SourcePosition:
    type = TensorType(I64, (new,))
    i = array.iota(emit, type, 0)
    if scale is not None:
        # Only the ratio of the sizes matters, except for corners, which are positions themselves.
        assert coordinates != "align_corners"
        old, new = scale.denominator, scale.numerator
    if coordinates == "half_pixel":
        odd = plus(emit, emit(array.Add(i, i)), 1)
        scaled = emit(array.Multiply(odd, numbers(emit, old, type)))
        over = emit(array.Subtract(scaled, numbers(emit, new, type)))
        return SourcePosition(over, numbers(emit, 2 * new, type))
    if coordinates == "align_corners":
        # A single element lies at the first corner: any denominator will do.
        one = array.fill(emit, 1, type)
        under = emit(array.Maximum(numbers(emit, new - 1, type), one))
        return SourcePosition(emit(array.Multiply(i, numbers(emit, old - 1, type))), under)
    assert coordinates == "asymmetric", coordinates
    return SourcePosition(
        emit(array.Multiply(i, numbers(emit, old, type))), numbers(emit, new, type)
    )


def _gather_clamped(emit: Builder, x: Value, axis: int, index: Value, size: Size) -> Value:
    """The elements at these indices of an axis, clamped to the axis."""
    type, rank = tensor_type(index), tensor_type(x).rank
    above = emit(array.Maximum(index, array.fill(emit, 0, type)))
    inside = emit(array.Minimum(above, numbers(emit, size - 1, type)))
    gathered = emit(array.Gather(x, (inside,), (axis,)))
    return transpose(emit, gathered, (*range(1, axis + 1), 0, *range(axis + 1, rank)))


def _repeated(emit: Builder, x: Value, axis: int, factor: int) -> Value:
    """Each element `factor` times along the axis."""
    shape = tensor_type(x).shape
    apart = (*shape[: axis + 1], factor, *shape[axis + 1 :])
    kept = tuple([k for k in range(len(apart)) if k != axis + 1])
    wide = emit(array.Broadcast(x, apart, kept))
    return reshape(emit, wide, (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]))
