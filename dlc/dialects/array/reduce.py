"""Broadcast and sum, which are each other's derivatives; logical reductions; the base of reductions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.array.elementwise import folded, show, tensor_type
from dlc.dialects.array.shape import are_rising, check_axes, inverse, reshape, transpose
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape, product
from dlc.ir.types import DType, TensorType

__all__ = ["Broadcast", "ReduceAnd", "ReduceOr", "ReduceSum", "Reduction"]


@op("array.broadcast")
class Broadcast(Op):
    """The source repeated along new axes: its axis k is axis `axes[k]` of the result.

    An axis of size 1 is not repeated: a reshape removes it first.
    """

    source: Value = operand()
    shape: Shape = attribute()
    axes: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        axes, shape = self.axes, self.shape
        kept = tuple([shape[axis] for axis in axes if 0 <= axis < len(shape)])
        if kept != type.shape or not are_rising(axes):
            raise self.fail(
                f"cannot broadcast {show(self.source)} to {type.with_shape(shape).text} "
                f"with its axes at {list(axes)}",
                code="D0304",
            )
        return type.with_shape(shape)

    def fold(self) -> Value | Dense | None:
        return self.source if self.source.type is self.result.type else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        shape = at.shape(self.shape)
        ones = [shape[axis] if axis in self.axes else 1 for axis in range(len(shape))]
        return np.broadcast_to(inputs[0].reshape(ones), shape)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        new = tuple([axis for axis in range(len(self.shape)) if axis not in self.axes])
        return (emit(ReduceSum(cotangents[0], new)),)


def merge_axes(emit: Builder, source: Value, axes: tuple[int, ...]) -> Value:
    """These axes as one at the end, row-major; the other axes stay in order."""
    shape = tensor_type(source).shape
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    last = transpose(emit, source, (*kept, *axes))
    merged = product(shape[axis] for axis in axes)
    return reshape(emit, last, (*[shape[axis] for axis in kept], merged))


def split_axes(emit: Builder, merged: Value, shape: Shape, axes: tuple[int, ...]) -> Value:
    """The inverse of `merge_axes`: a tensor of the given shape."""
    order = (*[axis for axis in range(len(shape)) if axis not in axes], *axes)
    split = reshape(emit, merged, tuple([shape[axis] for axis in order]))
    return transpose(emit, split, inverse(order))


def adds_floats(combine: type[scalar.Binary], dtype: DType) -> bool:
    """Whether the bits of the result depend on the order in which elements are combined."""
    return dtype.is_float and combine in (scalar.Add, scalar.Multiply)


class Reduction(Op):
    """The elements along `axes` combined by the function `scalar`; the result lacks these axes.

    f16 and bf16 accumulate in f32 and round once at the end.
    """

    source: Value = operand()
    axes: tuple[int, ...] = attribute()

    scalar: ClassVar[type[scalar.Binary]]

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        axes = self.axes
        check_axes(self, axes, type)
        if type.dtype.kind not in self.scalar.kinds:
            raise self.fail(f"{self.name} has no meaning for {type.dtype.name}", code="D0302")
        return type.with_shape(
            tuple([size for axis, size in enumerate(type.shape) if axis not in axes])
        )

    def fold(self) -> Value | Dense | None:
        if not self.axes:
            return self.source
        return None if adds_floats(self.scalar, tensor_type(self.source).dtype) else folded(self)

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the source that the result has."""
        rank = tensor_type(self.source).rank
        return tuple([axis for axis in range(rank) if axis not in self.axes])

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The reduction in NumPy, in the array's dtype."""
        raise NotImplementedError

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        def reduced(array: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(self.reduce(array, self.axes))

        return numeric.in_single(reduced, tensor_type(self.source).dtype, inputs[0])


@op("array.reduce_sum")
class ReduceSum(Reduction):
    """The sum along the axes; integers wrap. The order of additions is unspecified."""

    scalar = scalar.Add

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.sum(array, axis=axes, dtype=array.dtype))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Broadcast(cotangents[0], tensor_type(self.source).shape, self.kept)),)


@op("array.reduce_and")
class ReduceAnd(Reduction):
    """Whether all bools along the axes are true; for integers the bitwise and."""

    scalar = scalar.And
    not_differentiable = "its operand is a bool or an integer"

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.bitwise_and.reduce(array, axis=axes)


@op("array.reduce_or")
class ReduceOr(Reduction):
    """Whether any bool along the axes is true; for integers the bitwise or."""

    scalar = scalar.Or
    not_differentiable = "its operand is a bool or an integer"

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.bitwise_or.reduce(array, axis=axes)
