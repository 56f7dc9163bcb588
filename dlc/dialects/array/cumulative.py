"""Prefix sums and products along an axis, and the product of axes, whose derivative needs them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.array.arithmetic import Multiply
from dlc.dialects.array.elementwise import (
    Compare,
    Select,
    constant_like,
    fill,
    folded,
    tensor_type,
)
from dlc.dialects.array.pieces import Pad, slice_axis
from dlc.dialects.array.reduce import (
    Broadcast,
    ReduceSum,
    Reduction,
    adds_floats,
    merge_axes,
    split_axes,
)
from dlc.dialects.array.shape import Reverse, check_axis, iota
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import DType, TensorType

__all__ = ["Cumulative", "CumulativeProduct", "CumulativeSum", "ReduceProduct"]


class Cumulative(Op):
    """A prefix scan: for each element, the function `scalar` over all elements up to it along the axis.

    `reverse` begins at the last element; `exclusive` leaves the element itself out, so that the first
    result is the identity. f16 and bf16 accumulate in f32 and round each result once.
    """

    source: Value = operand()
    axis: int = attribute()
    reverse: bool = attribute(default=False)
    exclusive: bool = attribute(default=False)

    scalar: ClassVar[type[scalar.Binary]]

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        check_axis(self, self.axis, type)
        if type.dtype.kind not in self.scalar.kinds:
            raise self.fail(f"{self.name} has no meaning for {type.dtype.name}", code="D0302")
        return type

    def fold(self) -> Value | Dense | None:
        return None if adds_floats(self.scalar, tensor_type(self.source).dtype) else folded(self)

    @classmethod
    def identity(cls, dtype: DType) -> float | int | bool:
        """The identity of the function."""
        raise NotImplementedError

    @classmethod
    def accumulate(cls, array: Array, axis: int) -> Array:
        """The inclusive forward scan in NumPy."""
        raise NotImplementedError

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.source).dtype

        def accumulated(array: Array) -> Array:
            turned = np.flip(array, self.axis) if self.reverse else array
            with np.errstate(all="ignore"):
                result = self.accumulate(turned, self.axis)
            if self.exclusive:
                result = shifted(result, self.axis, self.identity(dtype))
            return np.flip(result, self.axis) if self.reverse else result

        return numeric.in_single(accumulated, dtype, inputs[0])

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        """Reverse and shift to an inclusive forward scan, differentiate that, and reverse back."""
        source, dy = self.source, cotangents[0]
        if self.reverse:
            source, dy = (emit(Reverse(value, (self.axis,))) for value in (source, dy))
        if self.exclusive:
            dy = self._one_earlier(emit, dy)
        dx = self.inclusive_gradient(emit, source, dy)
        return (emit(Reverse(dx, (self.axis,))) if self.reverse else dx,)

    def _one_earlier(self, emit: Builder, dy: Value) -> Value:
        """Shift cotangents: each exclusive result is the inclusive result before it."""
        type = tensor_type(dy)
        high = tuple([int(axis == self.axis) for axis in range(type.rank)])
        zero = fill(emit, 0, type.with_shape(()))
        none = (0,) * type.rank
        # Pad before slicing: an empty axis has no element to leave out.
        longer = emit(Pad(dy, zero, none, high, none))
        return slice_axis(emit, longer, self.axis, 1, type.shape[self.axis] + 1)

    def inclusive_gradient(self, emit: Builder, source: Value, dy: Value) -> Value:
        """The derivative of the inclusive forward scan."""
        raise NotImplementedError


def shifted(array: Array, axis: int, first: float) -> Array:
    """The elements shifted by one along the axis: `first` in front, the last one left out."""
    result = np.full_like(array, first)
    moved = np.moveaxis(result, axis, 0)
    moved[1:] = np.moveaxis(array, axis, 0)[:-1]
    return result


@op("array.cumulative_sum")
class CumulativeSum(Cumulative):
    """`y[i] = sum over j <= i of x[j]` along the axis; integers wrap."""

    scalar = scalar.Add

    @classmethod
    def identity(cls, dtype: DType) -> int:
        return 0

    @classmethod
    def accumulate(cls, array: Array, axis: int) -> Array:
        return np.add.accumulate(array, axis, dtype=array.dtype)

    def inclusive_gradient(self, emit: Builder, source: Value, dy: Value) -> Value:
        return emit(CumulativeSum(dy, self.axis, True))


@op("array.cumulative_product")
class CumulativeProduct(Cumulative):
    """`y[i] = product over j <= i of x[j]` along the axis; integers wrap.

    The derivative has no division, so it is right where x is 0; it computes an n by n matrix for an axis
    of size n.
    """

    scalar = scalar.Multiply

    @classmethod
    def identity(cls, dtype: DType) -> int:
        return 1

    @classmethod
    def accumulate(cls, array: Array, axis: int) -> Array:
        return np.multiply.accumulate(array, axis, dtype=array.dtype)

    def inclusive_gradient(self, emit: Builder, source: Value, dy: Value) -> Value:
        # dx[k] = product of x before k * sum over i >= k of (product of x after k up to i) * dy[i].
        axis, type = self.axis, tensor_type(source)
        shape = (*type.shape[:axis], type.shape[axis], *type.shape[axis:])
        square = type.with_shape(shape)
        others = tuple([other for other in range(len(shape)) if other != axis])
        k, i = iota(emit, square, axis), iota(emit, square, axis + 1)
        spread = emit(Broadcast(source, shape, others))
        one, zero = constant_like(emit, 1, spread), constant_like(emit, 0, spread)
        after = emit(Select(emit(Compare(i, k, "gt")), spread, one))
        between = emit(CumulativeProduct(after, axis + 1))
        terms = emit(Multiply(between, emit(Broadcast(dy, shape, others))))
        kept = emit(Select(emit(Compare(i, k, "ge")), terms, zero))
        before = emit(CumulativeProduct(source, axis, False, True))
        return emit(Multiply(before, emit(ReduceSum(kept, (axis + 1,)))))


@op("array.reduce_product")
class ReduceProduct(Reduction):
    """The product along the axes; integers wrap. The order of multiplications is unspecified."""

    scalar = scalar.Multiply

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.multiply.reduce(array, axis=axes, dtype=array.dtype))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        # The product of the other elements without a division: those before times those after.
        merged = merge_axes(emit, self.source, self.axes)
        type = tensor_type(merged)
        last = type.rank - 1
        before = emit(CumulativeProduct(merged, last, False, True))
        after = emit(CumulativeProduct(merged, last, True, True))
        dy = emit(Broadcast(cotangents[0], type.shape, tuple(range(last))))
        dx = emit(Multiply(dy, emit(Multiply(before, after))))
        return (split_axes(emit, dx, tensor_type(self.source).shape, self.axes),)
