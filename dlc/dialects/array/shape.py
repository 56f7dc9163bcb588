"""Rearranging a tensor without arithmetic, and indices along an axis (iota)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.array.elementwise import folded, tensor_type
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape, Size, product
from dlc.ir.equal_sizes import always_equal, never_equal
from dlc.ir.needs import Need
from dlc.ir.types import I32, I64, DType, TensorType
from dlc.ir.value_map import Permuted, Reshaped

__all__ = [
    "Iota", "Reshape", "Reverse", "Transpose", "check_axis", "check_numbered", "inverse", "iota",
    "numbered",
]  # fmt: skip


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `axes`."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@lru_cache(maxsize=1024)
def is_order(axes: tuple[int, ...]) -> bool:
    """Whether the axes are a permutation of 0 to their number."""
    return sorted(axes) == list(range(len(axes)))


@lru_cache(maxsize=1024)
def are_rising(axes: tuple[int, ...]) -> bool:
    """Whether the axes are strictly ascending."""
    return all(first < second for first, second in pairwise(axes))


def check_axes(op: Op, axes: tuple[int, ...], type: TensorType) -> None:
    """Raise D0305 unless the axes are axes of the tensor, each once, in ascending order."""
    if axes and not (axes[0] >= 0 and axes[-1] < len(type.shape) and are_rising(axes)):
        raise op.fail(
            f"{list(axes)} are not axes of {type.text} in rising order, each once; "
            f"it has the axes 0 to {type.rank - 1}",
            code="D0305",
        )


def check_axis(op: Op, axis: int, type: TensorType) -> None:
    """Raise D0305 unless the axis is one of the tensor's."""
    if not 0 <= axis < type.rank:
        raise op.fail(f"{type.text} has no axis {axis}", code="D0305")


LARGEST_I32 = (1 << 31) - 1
"""The largest size of an axis whose indices or length are an i32."""


def check_numbered(op: Op, axis: int, type: TensorType) -> None:
    """Raise D0308 for an axis that is known to be too long for an i32."""
    extent = type.shape[axis]
    if isinstance(extent, int) and extent > LARGEST_I32:
        raise op.fail(
            _not_numbered(axis, type), code="D0308", help="make two axes of it with reshape"
        )


def numbered(axis: int, type: TensorType) -> Need:
    """The condition of a call that an axis is not too long for an i32."""
    return Need(LARGEST_I32 - type.shape[axis], _not_numbered(axis, type))


def _not_numbered(axis: int, type: TensorType) -> str:
    return (
        f"axis {axis} of {type.text} is too long: its places are i32, which ends at {LARGEST_I32}"
    )


@lru_cache(maxsize=4096)
def elements(shape: Shape) -> Size:
    """The number of elements of a tensor; cached, since many operations of a model share it."""
    return product(shape)


def _differing(before: Shape, after: Shape) -> tuple[Size, Size]:
    """How many elements two shapes have in the axes between those that both begin and end with."""
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    return (
        elements(before[first : len(before) - last]),
        elements(after[first : len(after) - last]),
    )


@op("array.reshape")
class Reshape(Op):
    """The same elements in row-major order in another shape of the same size.

    Where only the sizes of a call tell whether the sizes are the same, the call is checked.
    """

    source: Value = operand()
    shape: Shape = attribute()

    def infer(self) -> TensorType:
        type, shape = tensor_type(self.source), self.shape
        before, after = elements(type.shape), elements(shape)
        if before != after and never_equal(*_differing(type.shape, shape)):
            raise self.fail(
                f"cannot reshape {type.text} of {before} elements to "
                f"{type.with_shape(shape).text} of {after}",
                code="D0303",
            )
        return type.with_shape(shape)

    def needs(self) -> Iterator[Need]:
        type = tensor_type(self.source)
        before, after = _differing(type.shape, self.shape)
        if not always_equal(before, after):
            told = f"{type.text} is reshaped to {type.with_shape(self.shape).text}"
            yield Need(before, f"{told}: {before} is {{n}} and {after} is {{m}}", equals=after)

    def fold(self) -> Value | Dense | None:
        if self.source.type is self.result.type:
            return self.source
        match self.source.op:
            case Reshape(source=origin) if origin.type is self.result.type:
                return origin
            case _:
                return folded(self)

    def relation(self) -> Reshaped:
        return Reshaped(self.shape)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].reshape(at.shape(self.shape))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Reshape(cotangents[0], tensor_type(self.source).shape)),)


@op("array.transpose")
class Transpose(Op):
    """The axes permuted: axis k of the result is axis `axes[k]` of the source."""

    source: Value = operand()
    axes: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        axes, shape = self.axes, type.shape
        if len(axes) != len(shape) or not is_order(axes):
            raise self.fail(
                f"{list(axes)} is not an order of the {type.rank} axes of {type.text}", code="D0305"
            )
        return type.with_shape(tuple([shape[axis] for axis in axes]))

    def fold(self) -> Value | Dense | None:
        if self.axes == tuple(range(len(self.axes))):
            return self.source
        match self.source.op:
            case Transpose(source=origin, axes=inner) if self.axes == inverse(inner):
                return origin
            case _:
                return folded(self)

    def relation(self) -> Permuted:
        return Permuted(inverse(self.axes))

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].transpose(self.axes)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Transpose(cotangents[0], inverse(self.axes))),)


def reshape(emit: Builder, value: Value, shape: Shape) -> Value:
    """The value in another shape; itself if it has that shape."""
    return value if tensor_type(value).shape == shape else emit(Reshape(value, shape))


def without_reshapes(value: Value) -> Value:
    """The value of which this one is a reshape, perhaps of a reshape; itself if it is none."""
    while isinstance(value.op, Reshape):
        value = value.op.source
    return value


def transpose(emit: Builder, value: Value, axes: tuple[int, ...]) -> Value:
    """The value with its axes permuted; itself if the permutation is the identity."""
    return value if axes == tuple(range(len(axes))) else emit(Transpose(value, axes))


@op("array.reverse")
class Reverse(Op):
    """The elements in reverse order along the axes: `y[.., i, ..] = x[.., n - 1 - i, ..]`."""

    source: Value = operand()
    axes: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        check_axes(self, self.axes, type)
        return type

    def fold(self) -> Value | Dense | None:
        if not self.axes:
            return self.source
        match self.source.op:
            case Reverse(source=origin, axes=axes) if axes == self.axes:
                return origin
            case _:
                return folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.flip(inputs[0], self.axes)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Reverse(cotangents[0], self.axes)),)


@op("array.iota")
class Iota(Op):
    """The index along one axis, `y[.., i, ..] = i`, as a number of the dtype; integers wrap.

    An i32, the dtype of indices, never wraps: an axis that is too long for it is refused.
    """

    shape: Shape = attribute()
    axis: int = attribute()
    dtype: DType = attribute()

    def infer(self) -> TensorType:
        type = TensorType(self.dtype, self.shape)
        check_axis(self, self.axis, type)
        if self.dtype.kind not in scalar.NUMBER:
            raise self.fail("array.iota has no meaning for bool", code="D0302")
        if self.dtype is I32:
            check_numbered(self, self.axis, type)
        return type

    def needs(self) -> Iterator[Need]:
        if self.dtype is I32:
            yield numbered(self.axis, tensor_type(self.result))

    def fold(self) -> Dense | None:
        return folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        shape = at.shape(self.shape)
        along = [size if axis == self.axis else 1 for axis, size in enumerate(shape)]
        indices = np.arange(shape[self.axis], dtype=np.int64).reshape(along)
        return np.broadcast_to(numeric.convert(indices, I64, self.dtype), shape)


def iota(emit: Builder, type: TensorType, axis: int, dtype: DType = I64) -> Value:
    """The index along an axis, in the shape of `type`."""
    return emit(Iota(type.shape, axis, dtype))
