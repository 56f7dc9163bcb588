"""Operations that make tensors of constants, or arrange elements in another way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.facts import Array, Elements
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.ir.attributes import INLINE_BYTES, Dense, decode
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I32, I64, DType, TensorType

# Constants ----------------------------------------------------------------------------------------


def _constant(context: NodeContext) -> Made:
    """A splat is a fill, a small constant is in the IR, a large one is a weight."""
    found = context.given("value")
    if not isinstance(found, Elements):
        raise context.unsupported(f"of {context.node.types[0].text} is not imported")
    type = TensorType(context.dtype, found.shape)
    if found.array.ndim == 0 and _is_fillable(found.array):
        number = decode(found.array, type.dtype).item()
        return array.fill(context.emit, number, type)
    elements = np.ascontiguousarray(np.broadcast_to(found.array, found.shape))
    if elements.nbytes <= INLINE_BYTES:
        return context.emit(array.Constant(Dense.of(elements.reshape(found.shape), type.dtype)))
    return context.regions.large_constant(elements, type)


def _is_fillable(number: Array) -> bool:
    """Whether a number is the same once it was written: a NaN may have other bits."""
    return not (number.dtype.kind == "f" and bool(np.isnan(number)))


def _iota(context: NodeContext) -> Made:
    shape = context.sizes(0) if context.operands else context.shape()
    return iota(context.emit, shape, context.integer("iota_dimension"), context.dtype)


def iota(emit: Builder, shape: Shape, axis: int, dtype: DType) -> Value:
    """The index along an axis."""
    type = TensorType(I64, shape)
    index = array.iota(emit, type, axis)
    return in_dtype(emit, index, dtype)


# Shapes -------------------------------------------------------------------------------------------


def _broadcast_in_dim(context: NodeContext) -> Made:
    shape = context.sizes(1) if len(context.operands) > 1 else context.shape()
    return broadcast(
        context.emit, context.value(0), shape, context.integers("broadcast_dimensions")
    )


def broadcast(emit: Builder, value: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """A value whose axis k becomes axis `axes[k]`; an axis of size 1 is repeated."""
    own = tensor_type(value).shape
    order = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    value = transpose(emit, value, order)
    places = [axes[k] for k in order]
    sizes = [own[k] for k in order]
    kept = [k for k, axis in enumerate(places) if sizes[k] == shape[axis] or sizes[k] != 1]
    value = reshape(emit, value, tuple([shape[places[k]] for k in kept]))
    axes_kept = tuple([places[k] for k in kept])
    if all(shape[axis] == 1 for axis in range(len(shape)) if axis not in axes_kept):
        return reshape(emit, value, shape)
    return emit(array.Broadcast(value, shape, axes_kept))


def _reshape(context: NodeContext) -> Made:
    shape = context.sizes(1) if len(context.operands) > 1 else context.shape()
    return reshape(context.emit, context.value(0), shape)


def _transpose(context: NodeContext) -> Made:
    return transpose(context.emit, context.value(0), context.integers("permutation"))


def _reverse(context: NodeContext) -> Made:
    axes = tuple(sorted(context.integers("dimensions")))
    return context.emit(array.Reverse(context.value(0), axes)) if axes else context.value(0)


def _concatenate(context: NodeContext) -> Made:
    axis = context.integer("dimension")
    first = context.type(0).shape
    parts = [
        context.like(value, (*first[:axis], tensor_type(value).shape[axis], *first[axis + 1 :]))
        for value in context.operands
    ]
    return context.emit(array.Concatenate(tuple(parts), axis)) if len(parts) > 1 else parts[0]


def _get_dimension_size(context: NodeContext) -> Made:
    size = context.type(0).shape[context.integer("dimension")]
    return in_dtype(context.emit, context.emit(array.Extent(size)), I32)


# Padding ------------------------------------------------------------------------------------------


def _pad(context: NodeContext) -> Made:
    low, high, interior = (
        context.integers(name)
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    return padded(context.emit, context.value(0), context.value(1), low, high, interior)


def _dynamic_pad(context: NodeContext) -> Made:
    low, high, interior = (context.sizes(index) for index in (2, 3, 4))
    between = tuple([size for size in interior if isinstance(size, int)])
    if len(between) != len(interior):
        raise context.unsupported("with an interior padding that only a call knows is not imported")
    return padded(context.emit, context.value(0), context.value(1), low, high, between)


def padded(
    emit: Builder, x: Value, value: Value, low: Shape, high: Shape, interior: Sequence[int]
) -> Value:
    """A tensor with copies of a number around it and between its elements; a number below 0 cuts."""

    def positive(size: Size) -> Size:
        return max(size, 0) if isinstance(size, int) else size

    before, after = tuple(map(positive, low)), tuple(map(positive, high))
    if any((*before, *after, *interior)):
        x = emit(array.Pad(x, value, before, after, tuple(interior)))
    shape = tensor_type(x).shape
    starts = tuple([more - size for more, size in zip(before, low, strict=True)])
    cut = [more - size for more, size in zip(after, high, strict=True)]
    limits = tuple([size - less for size, less in zip(shape, cut, strict=True)])
    if limits == shape and not any(starts):
        return x
    return emit(array.Slice(x, starts, limits, (1,) * len(shape)))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.transpose": _transpose,
}
