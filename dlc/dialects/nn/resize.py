"""Tensors in another size: the nearest element, or the straight line between two.

Where output element i of n falls on an input axis of size s is a matter of convention:

- `half_pixel`: (i + 1/2) * s / n - 1/2
- `asymmetric`: i * s / n
- `align_corners`: i * (s - 1) / (n - 1)

Places are fractions of integers, so that no rounding decides which element is the nearest. n / s is the
scale, which may be given where n is a rounded size.
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
"""With these a whole multiple of the size repeats each element."""


def resize_nearest(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    *,
    scales: Mapping[int, Fraction] = {},
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
) -> Value:
    """The element nearest to each place; `sizes` has the new size of each axis that changes.

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
            place = _place(emit, old, size, coordinates, scales.get(axis))
            x = _taken(emit, x, axis, place.rounded(emit, rounding), old)
    return x


def resize_linear(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    *,
    scales: Mapping[int, Fraction] = {},
    coordinates: str = "half_pixel",
) -> Value:
    """A value on the line between the two elements next to each place, along one axis after another.

    Outside the outermost elements it is theirs. `scales` as for `resize_nearest`.
    """
    for axis, size in sizes.items():
        old, scale = tensor_type(x).shape[axis], scales.get(axis)
        if old == size and scale is None:
            continue
        place = _place(emit, old, size, coordinates, scale)
        before = emit(array.FloorDivide(place.numerator, place.denominator))
        low = _taken(emit, x, axis, before, old)
        high = _taken(emit, x, axis, plus(emit, before, 1), old)
        rest = emit(array.Remainder(place.numerator, place.denominator))
        dtype = tensor_type(x).dtype
        share = emit(
            array.Divide(in_dtype(emit, rest, dtype), in_dtype(emit, place.denominator, dtype))
        )
        step = emit(
            array.Multiply(emit(array.Subtract(high, low)), along(emit, share, low, (axis,)))
        )
        x = emit(array.Add(low, step))
    return x


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where each output element falls, as a fraction: two i64 tensors, the denominator positive."""

    numerator: Value
    denominator: Value

    def rounded(self, emit: Builder, rounding: str) -> Value:
        """The whole numbers next to the places."""
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


def _place(
    emit: Builder, old: Size, new: Size, coordinates: str, scale: Fraction | None
) -> SourcePosition:
    type = TensorType(I64, (new,))
    i = array.iota(emit, type, 0)
    if scale is not None:
        # Only the ratio of the sizes counts, but for corners, which are places themselves.
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


def _taken(emit: Builder, x: Value, axis: int, index: Value, size: Size) -> Value:
    """The elements at these places of an axis; places outside are those at the end."""
    type, rank = tensor_type(index), tensor_type(x).rank
    above = emit(array.Maximum(index, array.fill(emit, 0, type)))
    inside = emit(array.Minimum(above, numbers(emit, size - 1, type)))
    found = emit(array.Gather(x, (inside,), (axis,)))
    return transpose(emit, found, (*range(1, axis + 1), 0, *range(axis + 1, rank)))


def _repeated(emit: Builder, x: Value, axis: int, factor: int) -> Value:
    """Each element `factor` times along the axis."""
    shape = tensor_type(x).shape
    apart = (*shape[: axis + 1], factor, *shape[axis + 1 :])
    kept = tuple([k for k in range(len(apart)) if k != axis + 1])
    wide = emit(array.Broadcast(x, apart, kept))
    return reshape(emit, wide, (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]))
