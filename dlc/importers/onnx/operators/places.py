"""Operators that gather, scatter, sort or locate elements."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.onnx.node_context import FOLDED, Constant, Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.counting import is_counted_now, nonzero
from dlc.ir.attributes import encode
from dlc.ir.bounded import larger
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, ceil_divide
from dlc.ir.types import BOOL, F64, I64, DType, TensorType

MODES = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
"""The reductions of an update with the element that it replaces, by their names in ONNX."""


def from_start(context: NodeContext, index: Value, size: Size) -> Value:
    """Indices of an axis, of which negative ones count from the end, as such that do not."""
    emit = context.emit
    negative = emit(array.Compare(index, array.constant_like(emit, 0, index), "lt"))
    behind = emit(array.Add(index, numbers(emit, size, array.tensor_type(index))))
    return emit(array.Select(negative, behind, index))


# Taking -------------------------------------------------------------------------------------------


def _gather(context: NodeContext) -> NodeResults:
    shape = context.type(0).shape
    axis = context.axis(context.integer("axis", 0), len(shape))
    indices = context.operand(1)
    if isinstance(indices, Constant) and indices.array.size == 1:
        (index,) = indices.sizes
        if isinstance(index, int) and index < 0:
            index = shape[axis] + index
        part = array.slice_axis(context.emit, context.value(0), axis, index, index + 1)
        return reshape(
            context.emit, part, (*shape[:axis], *indices.array.shape, *shape[axis + 1 :])
        )
    index = from_start(context, context.value(1), shape[axis])
    return _taken(context.emit, context.value(0), index, axis)


def _taken(emit: Builder, x: Value, index: Value, axis: int) -> Value:
    """The elements of an axis at these indices, whose axes stand where it stood."""
    rank, front = array.tensor_type(x).rank, array.tensor_type(index).rank
    taken = emit(array.Gather(x, (index,), (axis,)))
    order = (*range(front, front + axis), *range(front), *range(front + axis, front + rank - 1))
    return transpose(emit, taken, order)


def _gather_elements(context: NodeContext) -> NodeResults:
    axis = context.axis(context.integer("axis", 0), context.type(0).rank)
    index = from_start(context, context.value(1), context.type(0).shape[axis])
    return array.take_along(context.emit, context.value(0), index, axis)


def _gather_nd(context: NodeContext) -> NodeResults:
    """Each row of the indices names a place; `batch_dims` leading axes go along with the data."""
    batch = context.integer("batch_dims", 0)
    indices = _index_rows(context, batch)
    front = array.tensor_type(indices[0])
    counted = [array.iota(context.emit, front, axis) for axis in range(batch)]
    axes = tuple(range(batch + len(indices)))
    return context.emit(array.Gather(context.value(0), (*counted, *indices), axes))


def _index_rows(context: NodeContext, first: int = 0) -> list[Value]:
    """The last axis of the indices as one tensor for each axis that it names, from `first` on."""
    index = in_dtype(context.emit, context.value(1), I64)
    shape = array.tensor_type(index).shape
    count = shape[-1] if shape else 0
    sizes = context.type(0).shape
    if not isinstance(count, int) or not 0 < count <= len(sizes) - first:
        raise context.wrong(f"has rows of {count} indices for a tensor with {len(sizes)} axes")
    indices: list[Value] = []
    for k in range(count):
        part = array.slice_axis(context.emit, index, len(shape) - 1, k, k + 1)
        indices.append(
            from_start(context, reshape(context.emit, part, shape[:-1]), sizes[first + k])
        )
    return indices


def _reverse_sequence(context: NodeContext) -> NodeResults:
    x, rank = context.value(0), context.type(0).rank
    time = context.axis(context.integer("time_axis", 0), rank)
    batch = context.axis(context.integer("batch_axis", 1), rank)
    if {time, batch} != {0, 1}:
        raise context.wrong(f"reverses along axis {time} for each place of axis {batch}")
    lengths = context.value(1)
    if batch == 1:
        return reversed_steps(context.emit, x, lengths)
    order = (1, 0, *range(2, rank))
    turned = reversed_steps(context.emit, transpose(context.emit, x, order), lengths)
    return transpose(context.emit, turned, order)


def reversed_steps(emit: Builder, x: Value, lengths: Value) -> Value:
    """Sequences `[time, batch, ..]`, the first steps of each, as many as `lengths[batch]`, in reverse."""
    type = array.tensor_type(x)
    counted = TensorType(I64, type.shape[:2])
    step = array.iota(emit, counted, 0)
    length = emit(array.Broadcast(in_dtype(emit, lengths, I64), counted.shape, (1,)))
    mirrored = plus(emit, emit(array.Subtract(length, step)), -1)
    is_inside = emit(array.Compare(step, length, "lt"))
    index = emit(array.Select(is_inside, mirrored, step))
    return emit(array.Gather(x, (index, array.iota(emit, counted, 1)), (0, 1)))


# Putting ------------------------------------------------------------------------------------------


def _mode(context: NodeContext) -> str:
    name = context.text("reduction", "none")
    if name not in MODES:
        raise context.unsupported(f"with reduction {name!r} is not imported")
    return MODES[name]


def _scatter_elements(context: NodeContext) -> NodeResults:
    axis = context.axis(context.integer("axis", 0), context.type(0).rank)
    index = from_start(context, context.value(1), context.type(0).shape[axis])
    return array.put_along(
        context.emit, context.value(0), context.value(2), index, axis, _mode(context), unique=False
    )


def _scatter_nd(context: NodeContext) -> NodeResults:
    indices = _index_rows(context)
    axes = tuple(range(len(indices)))
    return context.emit(
        array.Scatter(context.value(0), context.value(2), indices, axes, _mode(context))
    )


def _tensor_scatter(context: NodeContext) -> NodeResults:
    """Steps of a cache replaced, in each batch from an index on; around its end in circular mode."""
    emit, cache, update = context.emit, context.value(0), context.value(1)
    shape, steps = context.type(0).shape, context.type(1).shape
    axis = context.axis(context.integer("axis", -2), len(shape))
    mode = context.text("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise context.wrong(f"in mode {mode!r} writes along axis {axis}")
    counted = TensorType(I64, (shape[0], steps[axis]))
    place = array.iota(emit, counted, 1)
    if context.operand(2) is not None:
        first = in_dtype(emit, context.value(2), I64)
        place = emit(array.Add(place, emit(array.Broadcast(first, counted.shape, (0,)))))
    if mode == "circular":
        place = emit(array.Remainder(place, numbers(emit, shape[axis], counted)))
    order = (0, axis, *[k for k in range(1, len(shape)) if k != axis])
    index = (array.iota(emit, counted, 0), place)
    rows = [transpose(emit, value, order) for value in (cache, update)]
    written = emit(array.Scatter(rows[0], rows[1], index, (0, 1)))
    return transpose(emit, written, array.inverse(order))


# Order and totals ---------------------------------------------------------------------------------


def _top_k(context: NodeContext) -> NodeResults:
    axis = context.axis(context.integer("axis", -1), context.type(0).rank)
    if context.opset < 10:
        k: Size = context.integer("k")
    else:
        (k,) = context.sizes(1)
    best = array.TopK(context.value(0), axis, k, context.flag("largest", default=True))
    values, indices = context.emit.all(best)
    return values, context.emit(array.Cast(indices, I64))


def _cumulative(make: type[array.CumulativeSum | array.CumulativeProduct]) -> Importer:
    def apply(context: NodeContext) -> NodeResults:
        (signed_axis,) = context.integers(1)
        axis = context.axis(signed_axis, context.type(0).rank)
        flags = context.flag("reverse"), context.flag("exclusive")
        return context.emit(make(context.value(0), axis, *flags))

    return apply


# Where things are ---------------------------------------------------------------------------------


def _one_hot(context: NodeContext) -> NodeResults:
    """The second value where an index names the place along a new axis, elsewhere the first."""
    emit = context.emit
    index = in_dtype(emit, context.value(0), I64)
    type = array.tensor_type(index)
    depth = int(context.floats(1)[0])
    axis = context.axis(context.integer("axis", -1), type.rank + 1)
    shape = (*type.shape[:axis], depth, *type.shape[axis:])
    kept = tuple([k for k in range(len(shape)) if k != axis])
    wide = emit(array.Broadcast(from_start(context, index, depth), shape, kept))
    is_hit = emit(array.Compare(array.iota(emit, TensorType(I64, shape), axis), wide, "eq"))
    pair = context.value(2)
    off, on = [
        emit(
            array.Broadcast(reshape(emit, array.slice_axis(emit, pair, 0, k, k + 1), ()), shape, ())
        )
        for k in range(2)
    ]
    return emit(array.Select(is_hit, on, off))


def _triangle(context: NodeContext) -> NodeResults:
    emit, x, type = context.emit, context.value(0), context.type(0)
    if type.rank < 2:
        raise context.wrong(f"takes matrices, found {type.text}")
    diagonal = 0 if context.operand(1) is None else context.integers(1)[0]
    index_type = type.with_dtype(I64)
    row = plus(emit, array.iota(emit, index_type, type.rank - 2), diagonal)
    column = array.iota(emit, index_type, type.rank - 1)
    predicate = "ge" if context.flag("upper", default=True) else "le"
    kept = emit(array.Compare(column, row, predicate))
    return emit(array.Select(kept, x, array.fill(emit, 0, type)))


def _compress(context: NodeContext) -> NodeResults:
    emit, x = context.emit, context.value(0)
    if "axis" in context.node.attributes:
        axis = context.axis(context.integer("axis"), context.type(0).rank)
    else:
        x, axis = reshape(emit, x, (context.type(0).size,)), 0
    mask = context.operand(1)
    if isinstance(mask, Constant) and is_counted_now(mask):
        index = Constant(np.flatnonzero(mask.array).astype(np.int64), I64)
        return _taken(emit, x, context.as_value(index), axis)
    mask = context.value(1)
    chosen, size = array.tensor_type(mask).shape[0], array.tensor_type(x).shape[axis]
    if chosen != size:
        # A short mask leaves out the rest.
        x = array.slice_axis(emit, x, axis, 0, chosen)
    return array.compress(emit, x, mask, axis, context.regions.fresh_dim(context.node.line))[0]


def _range(context: NodeContext) -> NodeResults:
    start, limit, delta = (context.constant(index) for index in range(3))
    if any(constant.is_symbolic for constant in (start, limit, delta)):
        return _symbolic_range(context, start.sizes[0], limit.sizes[0], delta.sizes[0], start.dtype)
    first, last, by = (context.floats(index)[0] for index in range(3))
    if not by or not math.isfinite((last - first) / by):
        raise context.wrong(f"counts from {first} to {last} by {by}")
    dtype, count = start.dtype, max(math.ceil((last - first) / by), 0)
    if count > FOLDED:
        emit, type = context.emit, TensorType(F64 if dtype.is_float else I64, (count,))
        listed = plus(emit, times(emit, array.iota(emit, type, 0, type.dtype), by), first)
        return in_dtype(emit, listed, dtype)
    elements = np.arange(count) * by + first
    return Constant(
        encode(elements, dtype) if dtype.is_float else elements.astype(dtype.numpy), dtype
    )


def _symbolic_range(
    context: NodeContext, start: Size, limit: Size, step: Size, dtype: DType
) -> Value:
    """Numbers from `start` up to before `limit`, or down to above it, of which one is a size."""
    if not isinstance(step, int) or step == 0:
        raise context.unsupported(f"in steps of {step} is not imported")
    room = limit - start if step > 0 else start - limit
    count = larger(ceil_divide(room, abs(step)), 0, context.regions.bounds)
    position = array.iota(context.emit, TensorType(I64, (count,)), 0, I64)
    type = array.tensor_type(position)
    if step != 1:
        position = context.emit(array.Multiply(position, numbers(context.emit, step, type)))
    if start != 0:
        position = context.emit(array.Add(position, numbers(context.emit, start, type)))
    return in_dtype(context.emit, position, dtype)


def _eye(context: NodeContext) -> NodeResults:
    type = context.type(0)
    if type.rank != 2:
        raise context.wrong(f"makes a matrix, not {type.text}")
    emit, index_type = context.emit, type.with_dtype(I64)
    row = plus(emit, array.iota(emit, index_type, 0), context.integer("k", 0))
    same = emit(array.Compare(array.iota(emit, index_type, 1), row, "eq"))
    dtype = type.dtype if "dtype" not in context.node.attributes else context.dtype("dtype")
    return same if dtype is BOOL else emit(array.Cast(same, dtype))


# Blocks of pixels ---------------------------------------------------------------------------------


def _depth_to_space(context: NodeContext) -> NodeResults:
    batch, depth, height, width = _picture(context)
    block = context.integer("blocksize")
    inner = depth // (block * block)
    if context.text("mode", "DCR") == "DCR":
        apart, order = (batch, block, block, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (batch, inner, block, block, height, width), (0, 1, 4, 2, 5, 3)
    parts = transpose(context.emit, reshape(context.emit, context.value(0), apart), order)
    return reshape(context.emit, parts, (batch, inner, height * block, width * block))


def _space_to_depth(context: NodeContext) -> NodeResults:
    batch, depth, height, width = _picture(context)
    block = context.integer("blocksize")
    apart = (batch, depth, height // block, block, width // block, block)
    by_depth = context.text("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if by_depth else (0, 3, 5, 1, 2, 4)
    parts = transpose(context.emit, reshape(context.emit, context.value(0), apart), order)
    shape = (batch, block * block * depth, height // block, width // block)
    return reshape(context.emit, parts, shape)


def _picture(context: NodeContext) -> tuple[Size, Size, Size, Size]:
    shape = context.type(0).shape
    if len(shape) != 4:
        raise context.wrong(f"takes pictures of 4 axes, found {context.type(0).text}")
    return shape[0], shape[1], shape[2], shape[3]


IMPORTERS: dict[str, Importer] = {
    "Compress": _compress,
    "CumProd": _cumulative(array.CumulativeProduct),
    "CumSum": _cumulative(array.CumulativeSum),
    "DepthToSpace": _depth_to_space,
    "EyeLike": _eye,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": nonzero,
    "OneHot": _one_hot,
    "Range": _range,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "SpaceToDepth": _space_to_depth,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
    "Trilu": _triangle,
}
