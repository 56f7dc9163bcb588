"""Maxima and minima: reductions over axes, the indices of the extremes, and prefix scans.

A maximum or minimum is NaN if any element is, and its index is then that of the first NaN. The derivative
goes to one element: of equal elements, the first in row-major order of the axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.array.cumulative import Cumulative
from dlc.dialects.array.elementwise import (
    Compare,
    Select,
    constant_like,
    folded,
    tensor_type,
)
from dlc.dialects.array.index import put_along
from dlc.dialects.array.reduce import Broadcast, Reduction, merge_axes, split_axes
from dlc.dialects.array.shape import (
    LARGEST_I32,
    check_axis,
    check_numbered,
    iota,
    numbered,
)
from dlc.ir.attributes import Dense, decode
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.needs import Need
from dlc.ir.types import I32, I64, DType, TensorType
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

__all__ = [
    "ArgMax", "ArgMin", "CumulativeMax", "CumulativeMin", "ReduceMax", "ReduceMin",
]  # fmt: skip


class ArgExtreme(Op):
    """The index of the extreme along the axis; of equal elements, the first."""

    source: Value = operand()
    axis: int = attribute()
    dtype: DType = attribute(default=I32, doc="i32, or i64 for an axis of any length")
    optional: bool = attribute(
        default=False, doc="whether nothing of an empty axis is chosen: the largest of the dtype"
    )

    not_differentiable = "its result is an index"

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        check_axis(self, self.axis, type)
        shape = type.shape
        if shape[self.axis] == 0 and not self.optional:
            raise self.fail(
                f"nothing to choose from: axis {self.axis} of {type.text} is empty", code="D0310"
            )
        if self.dtype not in (I32, I64):
            raise self.fail(f"a place is an i32 or an i64, not {self.dtype.name}", code="D0302")
        if self.dtype is I32:
            check_numbered(self, self.axis, type)
        return TensorType(self.dtype, shape[: self.axis] + shape[self.axis + 1 :])

    def needs(self) -> Iterator[Need]:
        type = tensor_type(self.source)
        told = f"nothing to choose from: axis {self.axis} of {type.text} is empty"
        if not self.optional:
            yield Need(type.shape[self.axis] - 1, told, "D0807")
        if self.dtype is I32:
            yield numbered(self.axis, type)

    def fold(self) -> Dense | None:
        return folded(self)

    def choose(self, array: Array) -> Array:
        """The indices in NumPy."""
        raise NotImplementedError

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        array = decode(inputs[0], tensor_type(self.source).dtype)
        if array.shape[self.axis] == 0:
            if self.optional:
                shape = at.shape(tensor_type(self.result).shape)
                return np.full(shape, numeric.highest(self.dtype), self.dtype.numpy)
            raise failure(Status.INDEX, -1, 0, self.location.own.place)
        return self.choose(array).astype(self.dtype.numpy)


@op("array.argmax")
class ArgMax(ArgExtreme):
    """The index of the largest element along the axis; of the first NaN, if there is one."""

    def choose(self, array: Array) -> Array:
        return np.asarray(np.argmax(array, self.axis))


@op("array.argmin")
class ArgMin(ArgExtreme):
    """The index of the smallest element along the axis; of the first NaN, if there is one."""

    def choose(self, array: Array) -> Array:
        return np.asarray(np.argmin(array, self.axis))


class ReduceExtreme(Reduction):
    """The maximum or minimum of axes."""

    place: ClassVar[type[ArgExtreme]]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        mask = self._chosen(emit)
        type = tensor_type(self.source)
        dy = emit(Broadcast(cotangents[0], type.shape, self.kept))
        return (emit(Select(mask, dy, constant_like(emit, 0, dy))),)

    def _chosen(self, emit: Builder) -> Value:
        """A mask of the elements of the source that are the results."""
        if len(self.axes) == 1:
            return _is_at(emit, self.place, self.source, self.axes[0])
        merged = merge_axes(emit, self.source, self.axes)
        last = tensor_type(merged).rank - 1
        mask = _is_at(emit, self.place, merged, last)
        return split_axes(emit, mask, tensor_type(self.source).shape, self.axes)


def _is_at(emit: Builder, place: type[ArgExtreme], source: Value, axis: int) -> Value:
    """A mask of the extremes along an axis."""
    type = tensor_type(source)
    extent = type.shape[axis]
    dtype = I32 if isinstance(extent, int) and extent <= LARGEST_I32 else I64
    others = tuple([other for other in range(type.rank) if other != axis])
    wanted = emit(Broadcast(emit(place(source, axis, dtype, optional=True)), type.shape, others))
    return emit(Compare(iota(emit, type, axis, dtype), wanted, "eq"))


@op("array.reduce_max")
class ReduceMax(ReduceExtreme):
    """The largest element along the axes; of none, the lowest value of the dtype."""

    scalar = scalar.Maximum
    place = ArgMax

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        lowest = numeric.lowest(tensor_type(self.source).dtype)
        return np.asarray(np.maximum.reduce(array, axis=axes, initial=lowest))


@op("array.reduce_min")
class ReduceMin(ReduceExtreme):
    """The smallest element along the axes; of none, the highest value of the dtype."""

    scalar = scalar.Minimum
    place = ArgMin

    def reduce(self, array: Array, axes: tuple[int, ...]) -> Array:
        highest = numeric.highest(tensor_type(self.source).dtype)
        return np.asarray(np.minimum.reduce(array, axis=axes, initial=highest))


class CumulativeExtreme(Cumulative):
    """The prefix maximum or minimum."""

    better: ClassVar[str]
    """The predicate by which an element replaces the extreme of those before it."""

    def inclusive_gradient(self, emit: Builder, source: Value, dy: Value) -> Value:
        before = emit(type(self)(source, self.axis, False, True))
        indices = iota(emit, tensor_type(source), self.axis)
        new = emit(Compare(source, before, self.better))
        changes = emit(Select(new, indices, constant_like(emit, 0, indices)))
        place = emit(CumulativeMax(changes, self.axis))
        zero = constant_like(emit, 0, source)
        return put_along(emit, zero, dy, place, self.axis, "add", unique=False)


@op("array.cumulative_max")
class CumulativeMax(CumulativeExtreme):
    """`y[i] = max over j <= i of x[j]` along the axis; NaN from the first NaN on."""

    scalar = scalar.Maximum
    better = "gt"

    @classmethod
    def identity(cls, dtype: DType) -> float | int | bool:
        return numeric.lowest(dtype)

    @classmethod
    def accumulate(cls, array: Array, axis: int) -> Array:
        return np.maximum.accumulate(array, axis)


@op("array.cumulative_min")
class CumulativeMin(CumulativeExtreme):
    """`y[i] = min over j <= i of x[j]` along the axis; NaN from the first NaN on."""

    scalar = scalar.Minimum
    better = "lt"

    @classmethod
    def identity(cls, dtype: DType) -> float | int | bool:
        return numeric.highest(dtype)

    @classmethod
    def accumulate(cls, array: Array, axis: int) -> Array:
        return np.minimum.accumulate(array, axis)
