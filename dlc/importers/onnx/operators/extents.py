"""Sizes that are computed when the model runs: calculating with them, and checks that hold in a call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.onnx.delayed_tensor import Extent, Undecided
from dlc.importers.onnx.node_context import Constant, NodeContext
from dlc.ir.bounded import larger, smaller
from dlc.ir.core import Builder, Value
from dlc.ir.types import I64, TensorType

NUMBER = TensorType(I64)
MOST_AXES = 64
"""Sizes in a list, and steps in which it was put together."""


def is_known(extent: Extent) -> bool:
    """Whether a size is known before the call."""
    return not isinstance(extent, Value)


def number(emit: Builder, extent: Extent) -> Value:
    """A size as a scalar."""
    return extent if isinstance(extent, Value) else numbers(emit, extent, NUMBER)


def everywhere(emit: Builder, extent: Extent, like: Value) -> Value:
    """A size in the shape of some indices."""
    type = array.tensor_type(like)
    if not isinstance(extent, Value):
        return numbers(emit, extent, type)
    return emit(array.Broadcast(extent, type.shape, ())) if type.rank else extent


# Elements of lists of sizes -----------------------------------------------------------------------


def listed(context: NodeContext, index: int) -> list[Extent]:
    """The elements of an operand that lists sizes, as far as they are known.

    Raises Undecided where a call decides how many they are.
    """
    operand = context.needed(index)
    if isinstance(operand, Constant):
        return [*context.sizes(index)]
    if not _is_list(operand):
        raise Undecided(context, index)
    return _elements(context.emit, operand, MOST_AXES)


def _is_list(value: Value) -> bool:
    type = array.tensor_type(value)
    return type.rank < 2 and isinstance(type.size, int) and type.size <= MOST_AXES


def _elements(emit: Builder, value: Value, depth: int) -> list[Extent]:
    """The elements of a vector, or a scalar: those of the vectors that it was put together from."""
    type = array.tensor_type(value)
    match value.op if depth else None:
        case array.Constant(value=dense) if type.dtype is I64:
            return [int(item) for item in np.ravel(dense.array).tolist()]
        case array.Fill(value=item) if type.dtype is I64:
            return [int(item)] * _count(value)
        case array.Extent(size=size, dtype=dtype) if dtype is I64:
            return [size]
        case array.Concatenate(sources=sources):
            return [each for source in sources for each in _elements(emit, source, depth - 1)]
        case array.Reshape(source=source) if _is_list(source):
            return _elements(emit, source, depth - 1)
        case array.Slice(
            source=source, starts=(int(start),), limits=(int(stop),), steps=(step,)
        ) if _is_list(source):
            return _elements(emit, source, depth - 1)[start:stop:step]
        case array.Cast(source=source) if type.dtype is I64 and type.rank:
            parts = _elements(emit, source, depth - 1)
            return [
                in_dtype(emit, part, I64) if isinstance(part, Value) else part for part in parts
            ]
        case _:
            return _separate(emit, value)


def _separate(emit: Builder, value: Value) -> list[Extent]:
    if not array.tensor_type(value).rank:
        return [value]
    parts = [array.slice_axis(emit, value, 0, k, k + 1) for k in range(_count(value))]
    return [reshape(emit, part, ()) for part in parts]


def _count(value: Value) -> int:
    count = array.tensor_type(value).size
    assert isinstance(count, int), count
    return count


def vector(emit: Builder, extents: Sequence[Extent]) -> Value:
    """Sizes as a vector."""
    parts = [reshape(emit, number(emit, extent), (1,)) for extent in extents]
    return parts[0] if len(parts) == 1 else emit(array.Concatenate(tuple(parts), 0))


# Calculating --------------------------------------------------------------------------------------


def added(emit: Builder, one: Extent, other: Extent) -> Extent:
    """The sum of two sizes."""
    if isinstance(one, Value) or isinstance(other, Value):
        if 0 in (one, other):
            return other if one == 0 else one
        return emit(array.Add(number(emit, one), number(emit, other)))
    return one + other


def subtracted(emit: Builder, one: Extent, other: Extent) -> Extent:
    """The difference of two sizes."""
    if isinstance(one, Value) or isinstance(other, Value):
        if other == 0:
            return one
        return emit(array.Subtract(number(emit, one), number(emit, other)))
    return one - other


def multiplied(emit: Builder, one: Extent, other: Extent) -> Extent:
    """The product of two sizes."""
    if isinstance(one, Value) or isinstance(other, Value):
        if 1 in (one, other):
            return other if one == 1 else one
        return emit(array.Multiply(number(emit, one), number(emit, other)))
    return one * other


def lesser(context: NodeContext, one: Extent, other: Extent) -> Extent:
    """The smaller of two sizes."""
    if isinstance(one, Value) or isinstance(other, Value):
        emit = context.emit
        return emit(array.Minimum(number(emit, one), number(emit, other)))
    return smaller(one, other, context.regions.bounds)


def greater(context: NodeContext, one: Extent, other: Extent) -> Extent:
    """The larger of two sizes."""
    if isinstance(one, Value) or isinstance(other, Value):
        emit = context.emit
        return emit(array.Maximum(number(emit, one), number(emit, other)))
    return larger(one, other, context.regions.bounds)


# Checks -------------------------------------------------------------------------------------------


def zero_unless(emit: Builder, wrong: Value) -> Value:
    """0 for each condition; a call in which one holds fails (D0807)."""
    zero = array.fill(emit, 0, TensorType(I64, (1,)))
    return emit(array.Gather(zero, (in_dtype(emit, wrong, I64),), (0,)))


def within(emit: Builder, index: Value, extent: Extent) -> Value:
    """Indices of an axis, of which negative ones count from its end; a call with one outside fails."""
    size = everywhere(emit, extent, index)
    zero = array.constant_like(emit, 0, index)
    is_behind = emit(array.Compare(index, zero, "lt"))
    index = emit(array.Select(is_behind, emit(array.Add(index, size)), index))
    below = emit(array.Compare(index, zero, "lt"))
    above = emit(array.Compare(index, size, "ge"))
    return emit(array.Add(index, zero_unless(emit, emit(array.Or(below, above)))))


def clamped(emit: Builder, index: Value, extent: Extent) -> Value:
    """The indices, or the nearest ones of the axis."""
    last = plus(emit, everywhere(emit, extent, index), -1)
    inside = emit(array.Minimum(index, last))
    return emit(array.Maximum(inside, array.constant_like(emit, 0, index)))


def at_least_one(emit: Builder, extent: Extent, like: Value) -> Value:
    """A size to divide indices by; what is divided by a size of 0 means nothing, and must not trap."""
    size = everywhere(emit, extent, like)
    return emit(array.Maximum(size, array.constant_like(emit, 1, size)))


def agreed(context: NodeContext, extents: Sequence[Extent]) -> tuple[Extent, list[Value]]:
    """The size that all are, a known one if there is, and zeros that fail in calls where others differ."""
    emit = context.emit
    sizes = [extent for extent in extents if not isinstance(extent, Value)]
    chosen = context.common_size(sizes) if sizes else extents[0]
    others = [extent for extent in extents if extent is not chosen and extent != chosen]
    wanted = number(emit, chosen) if others else None
    zeros: list[Value] = []
    for extent in others:
        assert wanted is not None
        differs = emit(array.Compare(number(emit, extent), wanted, "ne"))
        zeros.append(zero_unless(emit, differs))
    return chosen, zeros


def with_checks(emit: Builder, index: Value, zeros: Sequence[Value]) -> Value:
    """The indices, which are there only in calls where these checks hold."""
    for zero in zeros:
        index = emit(array.Add(index, everywhere(emit, zero, index)))
    return index
