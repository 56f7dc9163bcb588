"""Operators that rearrange tensors, and those that make constants."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import numbers
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import BOOL, I64, TensorType


def _shaped(context: NodeContext) -> Operand:
    """The elements in the shape of the result."""
    return reshape(context.emit, context.value("self"), context.type.shape)


def _as_strided(context: NodeContext) -> Operand:
    """A view by strides of a tensor without gaps: another shape, or elements by their places in memory."""
    emit, x = context.emit, context.value("self")
    if _is_whole(context, x):
        return reshape(emit, x, context.sizes("size"))
    flat = reshape(emit, x, (tensor_type(x).size,))
    return emit(array.Gather(flat, (_memory_places(context),), (0,)))


def _memory_places(context: NodeContext) -> Value:
    """Where the elements of a view by strides lie in the memory of a tensor without gaps."""
    emit, type = context.emit, TensorType(I64, context.sizes("size"))
    offset = context.given("storage_offset")
    place = numbers(emit, offset if isinstance(offset, int | Dim) else 0, type)
    for axis, stride in enumerate(context.sizes("stride")):
        index = array.iota(emit, type, axis)
        step = emit(array.Multiply(index, numbers(emit, stride, type)))
        place = emit(array.Add(place, step))
    return place


def _as_strided_scatter(context: NodeContext) -> Operand:
    """The tensor with another in place of a view by strides."""
    emit, x, source = context.emit, context.value("self"), context.value("src", context.dtype)
    if _is_whole(context, x):
        return reshape(emit, source, context.type.shape)
    flat = reshape(emit, x, (tensor_type(x).size,))
    put = emit(array.Scatter(flat, source, (_memory_places(context),), (0,), "set"))
    return reshape(emit, put, context.type.shape)


def _is_whole(context: NodeContext, x: Value) -> bool:
    """Whether the strides are those of a tensor with all elements of this one, in their order."""
    size, strides = context.sizes("size"), context.sizes("stride")
    expected: Size = 1
    for extent, stride in zip(size[::-1], strides[::-1], strict=True):
        if extent != 1 and stride != expected:
            return False
        expected = expected * extent
    return expected == tensor_type(x).size and context.given("storage_offset") in (0, None)


def _permute(context: NodeContext) -> Operand:
    x = context.value("self")
    rank = tensor_type(x).rank
    return transpose(context.emit, x, tuple([axis % rank for axis in context.integers("dims")]))


def _transpose(context: NodeContext) -> Operand:
    x = context.value("self")
    rank = tensor_type(x).rank
    if rank < 2:
        return x
    if "dim0" in context.node.arguments:
        one, other = context.axis("dim0", rank), context.axis("dim1", rank)
    else:
        one, other = rank - 2, rank - 1
    axes = list(range(rank))
    axes[one], axes[other] = other, one
    return transpose(context.emit, x, tuple(axes))


def _expand(context: NodeContext) -> Operand:
    return context.stretched("self")


def _repeat(context: NodeContext) -> Operand:
    """The tensor several times along each axis; further axes are in front."""
    emit, x = context.emit, context.value("self")
    counts = context.sizes("repeats" if "repeats" in context.node.arguments else "dims")
    shape = tensor_type(x).shape
    counts = (*[1] * (len(shape) - len(counts)), *counts)
    shape = (*[1] * (len(counts) - len(shape)), *shape)
    x = reshape(emit, x, shape)
    for axis, count in enumerate(counts):
        if count != 1:
            apart = (*shape[:axis], count, *shape[axis:])
            kept = tuple([k for k in range(len(apart)) if k != axis])
            shape = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
            x = reshape(emit, emit(array.Broadcast(x, apart, kept)), shape)
    return x


def _repeat_interleave(context: NodeContext) -> Operand:
    """Each element of an axis several times."""
    emit, x = context.emit, context.value("self")
    count = context.size("repeats")
    if context.given("dim") is None:
        x, axis = reshape(emit, x, (tensor_type(x).size,)), 0
    else:
        axis = context.axis("dim", tensor_type(x).rank)
    shape = tensor_type(x).shape
    apart = (*shape[: axis + 1], count, *shape[axis + 1 :])
    kept = tuple([k for k in range(len(apart)) if k != axis + 1])
    return reshape(emit, emit(array.Broadcast(x, apart, kept)), context.type.shape)


def _cat(context: NodeContext) -> Operand:
    """Empty tensors of one axis, which PyTorch allows beside others, are left out."""
    rank = context.type.rank
    axis = context.axis("dim", rank, 0)
    values = [
        _beside(context, value, axis)
        for value in context.values("tensors", context.dtype)
        if tensor_type(value).rank == rank
    ]
    if len(values) == 1:
        return values[0]
    return context.emit(array.Concatenate(tuple(values), axis))


def _beside(context: NodeContext, value: Value, axis: int) -> Value:
    """A part of a concatenation, in the sizes of the whole along all other axes."""
    own, shape = tensor_type(value).shape, context.type.shape
    return with_sizes(context.emit, value, (*shape[:axis], own[axis], *shape[axis + 1 :]))


def _stack(context: NodeContext) -> Operand:
    emit, rank = context.emit, context.type.rank
    axis = context.axis("dim", rank, 0)
    parts: list[Value] = []
    for value in context.values("tensors", context.dtype):
        shape = tensor_type(value).shape
        part = reshape(emit, value, (*shape[:axis], 1, *shape[axis:]))
        parts.append(_beside(context, part, axis))
    return parts[0] if len(parts) == 1 else emit(array.Concatenate(tuple(parts), axis))


def taken(emit: Builder, x: Value, index: Value, axis: int) -> Value:
    """The elements of an axis at these indices, whose axes stand where it stood."""
    rank, front = tensor_type(x).rank, tensor_type(index).rank
    found = emit(array.Gather(x, (index,), (axis,)))
    order = (*range(front, front + axis), *range(front), *range(front + axis, front + rank - 1))
    return transpose(emit, found, order)


def _flip(context: NodeContext) -> Operand:
    x = context.value("self")
    rank = tensor_type(x).rank
    axes = tuple(sorted(axis % rank for axis in context.integers("dims")))
    return context.emit(array.Reverse(x, axes)) if axes else x


def _roll(context: NodeContext) -> Operand:
    """Elements moved along axes, those that fall out on one side come in on the other."""
    emit, x = context.emit, context.value("self")
    shifts, axes = context.integers("shifts"), context.integers("dims")
    shape = tensor_type(x).shape
    if not axes:
        flat = reshape(emit, x, (tensor_type(x).size,))
        return reshape(emit, _rolled(emit, flat, 0, shifts[0]), shape)
    for axis, shift in zip(axes, shifts, strict=True):
        x = _rolled(emit, x, axis % len(shape), shift)
    return x


def _rolled(emit: Builder, x: Value, axis: int, shift: int) -> Value:
    size = tensor_type(x).shape[axis]
    cut = (size - shift) % size if isinstance(size, int) else size - shift if shift > 0 else -shift
    if cut == 0:
        return x
    parts = slice_axis(emit, x, axis, cut, size), slice_axis(emit, x, axis, 0, cut)
    return emit(array.Concatenate(parts, axis))


def _unfold(context: NodeContext) -> Operand:
    """Windows of an axis, each along a new last axis."""
    emit, x = context.emit, context.value("self")
    rank = tensor_type(x).rank
    axis = context.axis("dimension", rank)
    type = TensorType(I64, (context.type.shape[axis], context.size("size")))
    start = times(emit, array.iota(emit, type, 0), context.integer("step"))
    index = emit(array.Add(start, array.iota(emit, type, 1)))
    found = taken(emit, x, index, axis)
    order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
    return transpose(emit, found, order)


def _pixel_shuffle(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    factor = context.integer("upscale_factor")
    *batch, channels, height, width = tensor_type(x).shape
    count = len(batch)
    apart = (*batch, channels // (factor * factor), factor, factor, height, width)
    order = (*range(count), count, count + 3, count + 1, count + 4, count + 2)
    return reshape(emit, transpose(emit, reshape(emit, x, apart), order), context.type.shape)


def _pixel_unshuffle(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    factor = context.integer("downscale_factor")
    *batch, channels, height, width = tensor_type(x).shape
    count = len(batch)
    apart = (*batch, channels, height // factor, factor, width // factor, factor)
    order = (*range(count), count, count + 2, count + 4, count + 1, count + 3)
    return reshape(emit, transpose(emit, reshape(emit, x, apart), order), context.type.shape)


# Constants ----------------------------------------------------------------------------------------


def _triangle(predicate: str) -> Importer:
    """The elements on one side of a diagonal, elsewhere 0."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        type = tensor_type(x)
        index = type.with_dtype(I64)
        row = array.iota(emit, index, type.rank - 2)
        diagonal = context.integer("diagonal", 0)
        row = plus(emit, row, diagonal) if diagonal else row
        kept = emit(array.Compare(array.iota(emit, index, type.rank - 1), row, predicate))
        if type.dtype is BOOL:
            return emit(array.And(kept, x))
        return emit(array.Select(kept, x, array.fill(emit, 0, type)))

    return apply


IMPORTERS: dict[str, Importer] = {
    "aten._reshape_alias": _shaped,
    "aten._unsafe_view": _shaped,
    "aten.as_strided": _as_strided,
    "aten.as_strided_scatter": _as_strided_scatter,
    "aten.cat": _cat,
    "aten.expand": _expand,
    "aten.flatten": _shaped,
    "aten.flip": _flip,
    "aten.permute": _permute,
    "aten.pixel_shuffle": _pixel_shuffle,
    "aten.pixel_unshuffle": _pixel_unshuffle,
    "aten.repeat": _repeat,
    "aten.repeat_interleave": _repeat_interleave,
    "aten.reshape": _shaped,
    "aten.roll": _roll,
    "aten.squeeze": _shaped,
    "aten.stack": _stack,
    "aten.t": _transpose,
    "aten.tile": _repeat,
    "aten.transpose": _transpose,
    "aten.tril": _triangle("le"),
    "aten.triu": _triangle("ge"),
    "aten.unflatten": _shaped,
    "aten.unfold": _unfold,
    "aten.unsqueeze": _shaped,
    "aten.view": _shaped,
}
