"""Tensors stretched to a common shape, by NumPy's broadcasting rules."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.importers.solved_sizes import with_sizes
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape


def stretched(emit: Builder, value: Value, shape: Shape) -> Value:
    """A value in a shape that it can be stretched to: each size is 1 or, in every call, that of it."""
    own = array.tensor_type(value).shape
    if own == shape:
        return value
    first = len(shape) - len(own)
    value = with_sizes(
        emit,
        value,
        [1 if size == 1 else shape[first + axis] for axis, size in enumerate(own)],
    )
    own = array.tensor_type(value).shape
    kept = [axis for axis, size in enumerate(own) if size == shape[first + axis]]
    part = tuple([own[axis] for axis in kept])
    if part != own:
        value = reshape(emit, value, part)
    if part == shape:
        return value
    return emit(array.Broadcast(value, shape, tuple([first + axis for axis in kept])))
