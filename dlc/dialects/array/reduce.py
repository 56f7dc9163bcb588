"""Repeating along axes and summing along axes: each is the other's derivative; other reductions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects import scalar
from dlc.dialects.array.elementwise import show, tensor_type
from dlc.ir.attributes import decode, encode
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import BF16, F16, TensorType

__all__ = ["Broadcast", "ReduceSum", "Reduction"]


@op("array.broadcast")
class Broadcast(Op):
    """The source repeated along new axes: its axis k is axis `axes[k]` of the result.

    Sizes are never stretched here: an axis of size 1 is first taken away by a reshape.
    """

    source: Value = operand()
    shape: Shape = attribute()
    axes: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        kept = tuple([self.shape[axis] for axis in self.axes if axis < len(self.shape)])
        if kept != type.shape or list(self.axes) != sorted(set(self.axes)):
            raise self.fail(
                f"cannot broadcast {show(self.source)} to {type.with_shape(self.shape).text} "
                f"with its axes at {list(self.axes)}",
                code="D0304",
            )
        return type.with_shape(self.shape)

    def fold(self) -> Value | None:
        return self.source if self.source.type is self.result.type else None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        shape = at.shape(self.shape)
        ones = [shape[axis] if axis in self.axes else 1 for axis in range(len(shape))]
        return np.broadcast_to(inputs[0].reshape(ones), shape)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        new = tuple([axis for axis in range(len(self.shape)) if axis not in self.axes])
        return (emit(ReduceSum(cotangents[0], new)),)


class Reduction(Op):
    """The elements along `axes` combined by the function `scalar`; the axes vanish from the result.

    f16 and bf16 accumulate in f32 and round once at the end.
    """

    source: Value = operand()
    axes: tuple[int, ...] = attribute()

    scalar: ClassVar[type[scalar.Binary]]

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        if list(self.axes) != sorted(set(self.axes)) or any(
            not 0 <= axis < type.rank for axis in self.axes
        ):
            raise self.fail(f"{list(self.axes)} are no axes of {type.text} in rising order")
        if type.dtype.kind not in self.scalar.kinds:
            raise self.fail(f"{self.name} has no meaning for {type.dtype.name}", code="D0302")
        kept = [size for axis, size in enumerate(type.shape) if axis not in self.axes]
        return type.with_shape(tuple(kept))

    def fold(self) -> Value | None:
        return None if self.axes else self.source

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the source that the result has."""
        rank = tensor_type(self.source).rank
        return tuple([axis for axis in range(rank) if axis not in self.axes])

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The reduction in NumPy, in the array's dtype."""
        raise NotImplementedError

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.source).dtype
        array = inputs[0]
        with np.errstate(all="ignore"):
            if dtype in (F16, BF16):
                wide = decode(array, dtype).astype(np.float32)
                return encode(self.reduce(wide, self.axes), dtype)
            return self.reduce(array, self.axes)


@op("array.reduce_sum")
class ReduceSum(Reduction):
    """The sum along the axes; integers wrap. The order of additions is not stated."""

    scalar = scalar.Add

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.sum(array, axis=axes, dtype=array.dtype))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Broadcast(cotangents[0], tensor_type(self.source).shape, self.kept)),)
