"""Slices: at places that are known, or that are computed and then moved inside the tensor."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import numbers
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import I64, TensorType


def _slice(context: NodeContext) -> Made:
    starts, limits, steps = (
        context.integers(name) for name in ("start_indices", "limit_indices", "strides")
    )
    return sliced(context.emit, context.value(0), starts, limits, steps)


def _real_dynamic_slice(context: NodeContext) -> Made:
    strides = context.sizes(3)
    steps = tuple([step for step in strides if isinstance(step, int)])
    if len(steps) != len(strides):
        raise context.unsupported("with a step that only a call knows is not imported")
    starts, limits = context.value(1), context.value(2)
    sizes = _lengths(context, starts, limits) if set(steps) <= {1} else None
    if context.known.sizes(starts) is None and sizes is not None:
        return dynamic_slice(context, context.value(0), _parts(context, starts), sizes)
    return sliced(context.emit, context.value(0), context.sizes(1), context.sizes(2), steps)


def _lengths(context: NodeContext, starts: Value, limits: Value) -> tuple[Size, ...] | None:
    """The sizes of slices whose limits are the starts plus them."""
    match limits.op:
        case array.Add(lhs=one, rhs=other) if one is starts:
            return context.known.sizes(other)
        case array.Add(lhs=other, rhs=one) if one is starts:
            return context.known.sizes(other)
        case _:
            return None


def sliced(emit: Builder, x: Value, starts: Shape, limits: Shape, steps: tuple[int, ...]) -> Value:
    """Every so-manieth element from the starts up to the limits; the tensor itself where that is all."""
    if tuple(limits) == tensor_type(x).shape and not any(starts) and set(steps) <= {1}:
        return x
    return emit(array.Slice(x, tuple(starts), tuple(limits), steps))


def _dynamic_slice(context: NodeContext) -> Made:
    sizes = context.integers("slice_sizes")
    return dynamic_slice(context, context.value(0), context.operands[1:], sizes)


def _parts(context: NodeContext, vector: Value) -> list[Value]:
    emit = context.emit
    (count,) = tensor_type(vector).shape
    assert isinstance(count, int)
    return [reshape(emit, array.slice_axis(emit, vector, 0, k, k + 1), ()) for k in range(count)]


def dynamic_slice(
    context: NodeContext, x: Value, starts: Sequence[Value], sizes: Sequence[Size]
) -> Value:
    """A slice at computed starts, which are moved so that it is inside the tensor."""
    emit, shape = context.emit, tensor_type(x).shape
    if tuple(sizes) == shape:
        return x
    places = _places(context, starts, sizes, shape)
    known = [place for place in places if not isinstance(place, Value)]
    if len(known) == len(places):
        limits = tuple([start + size for start, size in zip(known, sizes, strict=True)])
        return sliced(emit, x, tuple(known), limits, (1,) * len(known))
    return emit(array.DynamicSlice(x, _values(emit, places), tuple(sizes)))


def _dynamic_update_slice(context: NodeContext) -> Made:
    emit, target, update = context.emit, context.value(0), context.value(1)
    whole, part = tensor_type(target).shape, tensor_type(update).shape
    if whole == part:
        return update
    places = _places(context, context.operands[2:], part, whole)
    if 0 in part:
        return target
    return emit(array.DynamicUpdateSlice(target, update, _values(emit, places)))


def _places(
    context: NodeContext, starts: Sequence[Value], sizes: Sequence[Size], shape: Shape
) -> list[Size | Value]:
    """Starts inside the tensor: known ones as sizes, computed ones as i64."""
    return [
        _place(context, start, whole - size)
        for start, size, whole in zip(starts, sizes, shape, strict=True)
    ]


def _place(context: NodeContext, start: Value, last: Size) -> Size | Value:
    emit, known = context.emit, context.known.sizes(start)
    if last == 0:
        return 0
    if known is not None:
        (size,) = known
        if isinstance(size, int) and isinstance(last, int):
            return min(max(size, 0), last)
        if context.known.sign(last - size) in (0, 1) and context.known.sign(size) in (0, 1):
            return size
    index = array.wide_index(emit, start)
    low = array.fill(emit, 0, TensorType(I64))
    return emit(
        array.Minimum(emit(array.Maximum(index, low)), numbers(emit, last, TensorType(I64)))
    )


def _values(emit: Builder, places: Sequence[Size | Value]) -> tuple[Value, ...]:
    return tuple(
        [
            numbers(emit, place, TensorType(I64)) if isinstance(place, int | Dim) else place
            for place in places
        ]
    )


IMPORTERS: dict[str, Importer] = {
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.slice": _slice,
}
