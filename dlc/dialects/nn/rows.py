"""Steps that operations on rows of a tensor share.

f16 and bf16 are converted to f32 at the beginning of a formula and back at its end, so it rounds once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.types import DType, TensorType, wide


def widened(emit: Builder, x: Value) -> Value:
    """The value in the dtype to compute in."""
    return in_dtype(emit, x, wide(tensor_type(x).dtype))


def in_dtype(emit: Builder, x: Value, dtype: DType) -> Value:
    """The value converted to this dtype; itself if it has the dtype."""
    return x if tensor_type(x).dtype is dtype else emit(array.Cast(x, dtype))


def spread(emit: Builder, reduced: Value, like: Value, axes: Sequence[int]) -> Value:
    """The result of a reduction of `like` over `axes`, repeated along these axes."""
    type = tensor_type(like)
    kept = tuple([axis for axis in range(type.rank) if axis not in axes])
    return emit(array.Broadcast(reduced, type.shape, kept))


def along(emit: Builder, part: Value, like: Value, axes: Sequence[int]) -> Value:
    """A tensor whose axes are these axes of `like`, repeated along the others."""
    return emit(array.Broadcast(part, tensor_type(like).shape, tuple(axes)))


def total(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The sum over the axes."""
    return emit(array.ReduceSum(x, tuple(axes)))


def mean(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The sum over the axes divided by the number of elements."""
    summed = total(emit, x, axes)
    shape = tensor_type(x).shape
    size = product(shape[axis] for axis in axes)
    return emit(array.Divide(summed, numbers(emit, size, tensor_type(summed))))


def numbers(emit: Builder, size: Size, type: TensorType) -> Value:
    """A tensor with a size, which may be symbolic, as the value of every element."""
    if isinstance(size, int):
        return array.fill(emit, size, type)
    one = in_dtype(emit, emit(array.Extent(size)), type.dtype)
    return emit(array.Broadcast(one, type.shape, ()))


def check_floats(op: Op, value: Value) -> TensorType:
    """The type of a tensor of floats; raises D0302 for another dtype."""
    type = tensor_type(value)
    if not type.dtype.is_float:
        raise op.fail(f"{op.name} has no meaning for {type.dtype.name}", code="D0302")
    return type
