"""Resizing of tensors by nearest-neighbour or linear interpolation, or by a filter.

The position of output element i of n on an input axis of size s follows one of these conventions, where w
is s times the scale, which is n unless a scale is given and n was rounded:

- `half_pixel`: (i + 1/2) * s / w - 1/2
- `half_pixel_symmetric`: the same moved by s / 2 * (1 - n / w), so that the centres meet
- `pytorch_half_pixel`: as `half_pixel`, but 0 if n is 1
- `asymmetric`: i * s / w
- `align_corners`: i * (s - 1) / (w - 1)
- `tf_crop_and_resize`: (a + i * (b - a) / (w - 1)) * (s - 1) for the region from a to b, of which 0 and 1
  are the ends of the axis; the middle of the region if w is 1

Positions are fractions of integers, so that rounding never decides which element is the nearest. These are
the conventions of ONNX's operator `Resize`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype, numbers
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I64, DType, TensorType

__all__ = [
    "Filter", "Region", "SourcePosition", "cubic_filter", "far_cubic", "gather_clamped",
    "linear_filter", "near_cubic", "ratio", "resize_filtered", "resize_linear", "resize_nearest",
    "source_position",
]  # fmt: skip

Region: TypeAlias = tuple[Fraction, Fraction]
"""The part of an axis that `tf_crop_and_resize` takes: its ends, of which 0 and 1 are those of the axis."""

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
    regions: Mapping[int, Region] = {},
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
) -> Value:
    """The source element nearest to each position; `sizes` has the new size of each axis that changes.

    `scales` has the scale of an axis where it is not the ratio of the sizes, `regions` what
    `tf_crop_and_resize` takes of an axis. `rounding` is round_prefer_floor, round_prefer_ceil, floor or
    ceil.
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
            scale, region = scales.get(axis), regions.get(axis)
            position = source_position(emit, old, size, coordinates, scale, region)
            x = gather_clamped(emit, x, axis, position.rounded(emit, rounding), old)
    return x


def resize_linear(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    *,
    scales: Mapping[int, Fraction] = {},
    regions: Mapping[int, Region] = {},
    coordinates: str = "half_pixel",
) -> Value:
    """Linear interpolation between the two source elements next to each position, axis after axis.

    Positions outside take the outermost element. `scales` and `regions` are as for `resize_nearest`.
    """
    for axis, size in sizes.items():
        old, scale, region = tensor_type(x).shape[axis], scales.get(axis), regions.get(axis)
        if old == size and scale is None and region is None:
            continue
        position = source_position(emit, old, size, coordinates, scale, region)
        below = position.rounded(emit, "floor")
        low = gather_clamped(emit, x, axis, below, old)
        high = gather_clamped(emit, x, axis, plus(emit, below, 1), old)
        weight = position.part(emit, tensor_type(x).dtype)
        difference = emit(
            array.Multiply(emit(array.Subtract(high, low)), along(emit, weight, low, (axis,)))
        )
        x = emit(array.Add(low, difference))
    return x


# Filters ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """The weight of an element by its distance from a position: 0 from `reach` on."""

    weight: Callable[[Builder, Value], Value]
    reach: int


def _linear_weight(emit: Builder, distance: Value) -> Value:
    rest = emit(array.Subtract(array.constant_like(emit, 1, distance), distance))
    return emit(array.Maximum(rest, array.constant_like(emit, 0, rest)))


linear_filter = Filter(_linear_weight, 1)
"""`max(1 - d, 0)`: linear interpolation."""


def near_cubic(emit: Builder, d: Value, a: float) -> Value:
    """The weight of cubic convolution (Keys 1981) at distances up to 1: `((a + 2) d - (a + 3)) d² + 1`."""
    return _polynomial(emit, d, a + 2, -(a + 3), 0, 1)


def far_cubic(emit: Builder, d: Value, a: float) -> Value:
    """The same at distances from 1 to 2: `((a d - 5 a) d + 8 a) d - 4 a`."""
    return _polynomial(emit, d, a, -5 * a, 8 * a, -4 * a)


def _polynomial(emit: Builder, x: Value, *coefficients: float) -> Value:
    """By Horner's rule; the coefficient of the highest power is the first."""
    whole = array.constant_like(emit, coefficients[0], x)
    for number in coefficients[1:]:
        whole = plus(emit, emit(array.Multiply(whole, x)), number)
    return whole


def cubic_filter(a: float) -> Filter:
    """Cubic convolution with the coefficient `a`."""

    def weight(emit: Builder, d: Value) -> Value:
        one, two, zero = (array.constant_like(emit, number, d) for number in (1, 2, 0))
        is_far = emit(array.Compare(d, two, "lt"))
        far = emit(array.Select(is_far, far_cubic(emit, d, a), zero))
        return emit(array.Select(emit(array.Compare(d, one, "le")), near_cubic(emit, d, a), far))

    return Filter(weight, 2)


def resize_filtered(
    emit: Builder,
    x: Value,
    sizes: Mapping[int, Size],
    filter: Filter,
    *,
    scales: Mapping[int, Fraction] = {},
    regions: Mapping[int, Region] = {},
    coordinates: str = "half_pixel",
    antialias: bool = False,
    exclude_outside: bool = False,
) -> Value:
    """The sum of the elements around each position, weighted by a filter, axis after axis.

    `antialias` widens the filter where an axis shrinks, whose scale must be known then: as a number in
    `scales`, or by sizes that are numbers. Positions outside take the outermost element, or with
    `exclude_outside` none: the other weights become larger, so that their sum is 1. The rest is as for
    `resize_nearest`.
    """
    for axis, size in sizes.items():
        old, scale = tensor_type(x).shape[axis], scales.get(axis)
        position = source_position(emit, old, size, coordinates, scale, regions.get(axis))
        narrowing = _narrowing(old, size, scale) if antialias else Fraction(1)
        index, weight = _filter_taps(emit, x, position, filter, narrowing)
        if exclude_outside:
            weight = _inside_only(emit, weight, index, old)
        if exclude_outside or antialias:
            whole = emit(array.ReduceSum(weight, (1,)))
            weight = emit(array.Divide(weight, along(emit, whole, weight, (0,))))
        found = _gathered(emit, x, axis, _clamped(emit, index, old))
        weighted = emit(array.Multiply(found, along(emit, weight, found, (axis, axis + 1))))
        x = emit(array.ReduceSum(weighted, (axis + 1,)))
    return x


def ratio(old: Size, new: Size) -> Fraction | None:
    """`new / old`, if it is the same for all sizes."""
    if isinstance(old, int) and isinstance(new, int):
        return Fraction(new, old) if old else None
    for one, other in ((old, new), (new, old)):
        factor = other // one
        if isinstance(factor, int) and factor and factor * one == other:
            return Fraction(factor) if one is old else Fraction(1, factor)
    return None


def _narrowing(old: Size, new: Size, scale: Fraction | None) -> Fraction:
    """By how much an axis shrinks; 1 if it grows. Raises ValueError where that is not known."""
    scale = ratio(old, new) if scale is None else scale
    if scale is None:
        raise ValueError(f"an axis of {old} becomes one of {new}, by a scale that is not a number")
    return min(scale, Fraction(1))


def _filter_taps(
    emit: Builder, x: Value, position: SourcePosition, filter: Filter, narrowing: Fraction
) -> tuple[Value, Value]:
    """The indices that a filter reaches from each position, `[n, taps]`, and their weights."""
    first = math.floor(-filter.reach / narrowing) + 1
    below = position.rounded(emit, "floor")
    taps = TensorType(I64, (*tensor_type(below).shape, 2 - 2 * first))
    moved = plus(emit, array.iota(emit, taps, 1), first)
    dtype = tensor_type(x).dtype
    part = along(emit, position.part(emit, dtype), moved, (0,))
    apart = emit(array.Abs(emit(array.Subtract(in_dtype(emit, moved, dtype), part))))
    weight = filter.weight(emit, times(emit, apart, float(narrowing)))
    return emit(array.Add(moved, along(emit, below, moved, (0,)))), weight


def _inside_only(emit: Builder, weight: Value, index: Value, size: Size) -> Value:
    """The weights, 0 where the index is none of the axis."""
    kept = emit(array.Compare(index, _clamped(emit, index, size), "eq"))
    return emit(array.Select(kept, weight, array.constant_like(emit, 0, weight)))


# Positions ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position of each output element on the source axis, as a fraction of two i64 tensors.

    The denominator is positive.
    """

    numerator: Value
    denominator: Value

    def rounded(self, emit: Builder, rounding: str) -> Value:
        """The positions rounded to indices: `rounding` as for `resize_nearest`."""
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

    def part(self, emit: Builder, dtype: DType) -> Value:
        """What the positions are above the index below them, from 0 to less than 1."""
        rest = emit(array.Remainder(self.numerator, self.denominator))
        return emit(
            array.Divide(in_dtype(emit, rest, dtype), in_dtype(emit, self.denominator, dtype))
        )

    def is_outside(self, emit: Builder, size: Size) -> Value:
        """Whether the positions are before the first or behind the last element of an axis."""
        zero = array.constant_like(emit, 0, self.numerator)
        last = numbers(emit, size - 1, tensor_type(self.numerator))
        end = emit(array.Multiply(last, self.denominator))
        before = emit(array.Compare(self.numerator, zero, "lt"))
        return emit(array.Or(before, emit(array.Compare(self.numerator, end, "gt"))))


def _ceil(emit: Builder, over: Value, under: Value) -> Value:
    return emit(array.Negate(emit(array.FloorDivide(emit(array.Negate(over)), under))))


def source_position(
    emit: Builder,
    old: Size,
    new: Size,
    coordinates: str,
    scale: Fraction | None = None,
    region: Region | None = None,
) -> SourcePosition:
    """The positions of `new` elements on an axis of `old`, by one of the conventions above."""
    type = TensorType(I64, (new,))
    first, step, under = _line(old, new, coordinates, scale, region or (Fraction(0), Fraction(1)))
    over = emit(array.Multiply(array.iota(emit, type, 0), numbers(emit, step, type)))
    if first != 0:
        over = emit(array.Add(over, numbers(emit, first, type)))
    below = numbers(emit, under, type)
    if coordinates in ("align_corners", "tf_crop_and_resize"):
        # Of a single element, with a numerator of 0: any denominator will do.
        below = emit(array.Maximum(below, array.fill(emit, 1, type)))
    if coordinates == "pytorch_half_pixel":
        several = emit(array.Minimum(numbers(emit, new - 1, type), array.fill(emit, 1, type)))
        over = emit(array.Multiply(over, several))
    return SourcePosition(over, below)


def _line(
    old: Size, new: Size, coordinates: str, scale: Fraction | None, region: Region
) -> tuple[Size, Size, Size]:
    """Numbers of which `(first + i * step) / under` is the position of element i."""
    # The extent w of the new axis is wide / of.
    wide, of = (new, 1) if scale is None else (old * scale.numerator, scale.denominator)
    match coordinates:
        case "half_pixel" | "pytorch_half_pixel":
            # Only the ratio of the sizes matters.
            s, w = (old, new) if scale is None else (scale.denominator, scale.numerator)
            return s - w, 2 * s, 2 * w
        case "half_pixel_symmetric":
            s, w = (old, new) if scale is None else (scale.denominator, scale.numerator)
            return old * w - new * s + s - w, 2 * s, 2 * w
        case "asymmetric":
            s, w = (old, new) if scale is None else (scale.denominator, scale.numerator)
            return 0, s, w
        case "align_corners":
            return 0, (old - 1) * of, wide - of
        case "tf_crop_and_resize":
            unit = math.lcm(*[end.denominator for end in region])
            start, stop = [int(end * unit) for end in region]
            if wide == of:
                return (old - 1) * (start + stop), 0, 2 * unit
            return (
                (old - 1) * start * (wide - of),
                (old - 1) * (stop - start) * of,
                unit * (wide - of),
            )
        case _:
            raise ValueError(f"{coordinates!r} is not a convention of coordinates")


# Taking elements ----------------------------------------------------------------------------------


def gather_clamped(emit: Builder, x: Value, axis: int, index: Value, size: Size) -> Value:
    """The elements at these indices of an axis, clamped to the axis."""
    return _gathered(emit, x, axis, _clamped(emit, index, size))


def _clamped(emit: Builder, index: Value, size: Size) -> Value:
    type = tensor_type(index)
    above = emit(array.Maximum(index, array.fill(emit, 0, type)))
    return emit(array.Minimum(above, numbers(emit, size - 1, type)))


def _gathered(emit: Builder, x: Value, axis: int, index: Value) -> Value:
    """The elements at these indices of an axis, whose axes stand where it stood."""
    front, rank = tensor_type(index).rank, tensor_type(x).rank
    gathered = emit(array.Gather(x, (index,), (axis,)))
    order = (*range(front, front + axis), *range(front), *range(front + axis, front + rank - 1))
    return transpose(emit, gathered, order)


def _repeated(emit: Builder, x: Value, axis: int, factor: int) -> Value:
    """Each element `factor` times along the axis."""
    shape = tensor_type(x).shape
    apart = (*shape[: axis + 1], factor, *shape[axis + 1 :])
    kept = tuple([k for k in range(len(apart)) if k != axis + 1])
    wide = emit(array.Broadcast(x, apart, kept))
    return reshape(emit, wide, (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]))
