"""Operators that take parts of axes, put parts into tensors, and pad."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import numbers
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.shapes import taken
from dlc.ir.bounded import larger, smaller
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Size
from dlc.ir.intervals import interval
from dlc.ir.types import I64, TensorType

FAR = 1 << 62
"""A slice says so, or more, for "to the end"."""


def _split(context: NodeContext) -> Operand:
    """Parts along an axis, as far as somebody reads them."""
    x = context.value("self")
    axis = context.axis("dim", tensor_type(x).rank, 0)
    parts: list[Value | None] = []
    start: Size = 0
    whole = tensor_type(x).shape[axis]
    for type, size in zip(context.node.types, _part_sizes(context, whole), strict=True):
        is_read = type is not None
        parts.append(slice_axis(context.emit, x, axis, start, start + size) if is_read else None)
        start = start + size
    return tuple(parts)


def _part_sizes(context: NodeContext, whole: Size) -> tuple[Size, ...]:
    """The sizes of the parts: a list of them, or one for all, of which the last part has what is left."""
    count = len(context.node.types)
    if "split_sizes" in context.node.arguments:
        return context.sizes("split_sizes")
    if "chunks" in context.node.arguments:
        part = (whole + (context.integer("chunks") - 1)) // context.integer("chunks")
    else:
        part = context.size("split_size")
    return (*[part] * (count - 1), whole - part * (count - 1))


def _unbind(context: NodeContext) -> Operand:
    x = context.value("self")
    axis = context.axis("dim", tensor_type(x).rank, 0)
    shape = tensor_type(x).shape
    left = (*shape[:axis], *shape[axis + 1 :])
    return tuple(
        [
            None
            if type is None
            else reshape(context.emit, slice_axis(context.emit, x, axis, k, k + 1), left)
            for k, type in enumerate(context.node.types)
        ]
    )


def _select(context: NodeContext) -> Operand:
    x = context.value("self")
    axis = context.axis("dim", tensor_type(x).rank)
    index = _counted(context, context.size("index"), tensor_type(x).shape[axis])
    part = slice_axis(context.emit, x, axis, index, index + 1)
    return reshape(context.emit, part, context.type.shape)


def _counted(context: NodeContext, index: Size, size: Size) -> Size:
    """An index that may count from the end, as one that counts from the start."""
    _, most = interval(index, context.regions.bounds)
    return size + index if most is not None and most < 0 else index


def _bounds_of(context: NodeContext, size: Size) -> tuple[Size, Size]:
    """The start and the end of a slice, both inside the axis."""
    bounds = context.regions.bounds
    start, end = context.given("start"), context.given("end")
    low = _inside(context, start, size) if isinstance(start, int | Dim) else 0
    high = _inside(context, end, size) if isinstance(end, int | Dim) else size
    return low, larger(low, high, bounds)


def _inside(context: NodeContext, index: Size, size: Size) -> Size:
    bounds = context.regions.bounds
    if isinstance(index, int) and index >= FAR:
        return size
    counted = _counted(context, index, size)
    return smaller(counted, size, bounds) if counted == index else larger(counted, 0, bounds)


def _slice(context: NodeContext) -> Operand:
    x = context.value("self")
    shape = tensor_type(x).shape
    axis, step = context.axis("dim", len(shape), 0), context.integer("step", 1)
    low, high = _bounds_of(context, shape[axis])
    if (low, high, step) == (0, shape[axis], 1):
        return x
    if step == 1:
        return slice_axis(context.emit, x, axis, low, high)
    lows = tuple([low if k == axis else 0 for k in range(len(shape))])
    highs = tuple([high if k == axis else size for k, size in enumerate(shape)])
    steps = tuple([step if k == axis else 1 for k in range(len(shape))])
    return context.emit(array.Slice(x, lows, highs, steps))


def _slice_scatter(context: NodeContext) -> Operand:
    """The tensor with another in place of a slice of it."""
    emit, x, source = context.emit, context.value("self"), context.value("src", context.dtype)
    shape = tensor_type(x).shape
    axis, step = context.axis("dim", len(shape), 0), context.integer("step", 1)
    low, high = _bounds_of(context, shape[axis])
    if step == 1:
        return _between(emit, x, axis, low, stretched_part(emit, source, shape, axis), high)
    count = tensor_type(source).shape[axis]
    type = TensorType(I64, (count,))
    index = plus(emit, times(emit, array.iota(emit, type, 0), step), 0)
    index = emit(array.Add(index, numbers(emit, low, type)))
    order = (axis, *[k for k in range(len(shape)) if k != axis])
    rows = transpose(emit, source, order)
    return emit(array.Scatter(x, rows, (index,), (axis,), "set", unique=True))


def stretched_part(emit: Builder, part: Value, shape: Sequence[Size], axis: int) -> Value:
    """A part of a tensor, in the sizes of the tensor along all axes but one."""
    own = tensor_type(part).shape
    wanted = tuple([own[k] if k == axis else size for k, size in enumerate(shape)])
    return stretched(emit, part, wanted)


def _between(emit: Builder, x: Value, axis: int, low: Size, part: Value, high: Size) -> Value:
    """What is before `low`, the part, and what is from `high` on."""
    size = tensor_type(x).shape[axis]
    pieces: list[Value] = []
    if low != 0:
        pieces.append(slice_axis(emit, x, axis, 0, low))
    pieces.append(part)
    if high != size:
        pieces.append(slice_axis(emit, x, axis, high, size))
    return pieces[0] if len(pieces) == 1 else emit(array.Concatenate(tuple(pieces), axis))


def _select_scatter(context: NodeContext) -> Operand:
    emit, x, source = context.emit, context.value("self"), context.value("src", context.dtype)
    shape = tensor_type(x).shape
    axis = context.axis("dim", len(shape))
    index = _counted(context, context.size("index"), shape[axis])
    part = reshape(emit, source, (*shape[:axis], 1, *shape[axis + 1 :]))
    return _between(emit, x, axis, index, part, index + 1)


def _slice_backward(context: NodeContext) -> Operand:
    """Zeros with the cotangent in place of the slice."""
    emit, dy, shape = context.emit, context.value("grad_output"), context.type.shape
    axis, step = context.axis("dim", len(shape)), context.integer("step", 1)
    low, high = _bounds_of(context, shape[axis])
    count = tensor_type(dy).shape[axis]
    behind = shape[axis] - low - ((count - 1) * step + 1)
    zero = array.fill(emit, 0, TensorType(context.dtype))
    if step == 1:
        behind = shape[axis] - high
    low_pads = tuple([low if k == axis else 0 for k in range(len(shape))])
    high_pads = tuple([behind if k == axis else 0 for k in range(len(shape))])
    interior = tuple([step - 1 if k == axis else 0 for k in range(len(shape))])
    return emit(array.Pad(dy, zero, low_pads, high_pads, interior))


def _select_backward(context: NodeContext) -> Operand:
    emit, shape = context.emit, context.type.shape
    axis = context.axis("dim", len(shape))
    index = _counted(context, context.size("index"), shape[axis])
    dy = reshape(emit, context.value("grad_output"), (*shape[:axis], 1, *shape[axis + 1 :]))
    zero = array.fill(emit, 0, TensorType(context.dtype))
    low = tuple([index if k == axis else 0 for k in range(len(shape))])
    high = tuple([shape[axis] - index - 1 if k == axis else 0 for k in range(len(shape))])
    return emit(array.Pad(dy, zero, low, high, (0,) * len(shape)))


def _pad(context: NodeContext) -> Operand:
    """Constant padding; the pairs of numbers begin with the last axis, negative ones cut off."""
    emit, x = context.emit, context.value("self")
    type = tensor_type(x)
    low, high = _paddings(context, type.rank)
    bounds = context.regions.bounds
    starts = [larger(-number, 0, bounds) for number in low]
    cut = [larger(-number, 0, bounds) for number in high]
    if any(starts) or any(cut):
        ends = [size - less for size, less in zip(type.shape, cut, strict=True)]
        x = emit(array.Slice(x, tuple(starts), tuple(ends), (1,) * type.rank))
    before, behind = (tuple([larger(n, 0, bounds) for n in pads]) for pads in (low, high))
    value = array.fill(emit, context.number("value", 0), TensorType(type.dtype))
    return emit(array.Pad(x, value, before, behind, (0,) * type.rank))


def _paddings(context: NodeContext, rank: int) -> tuple[list[Size], list[Size]]:
    """The padding before and behind each axis."""
    pads = context.sizes("pad" if "pad" in context.node.arguments else "padding")
    low: list[Size] = [0] * rank
    high: list[Size] = [0] * rank
    for number in range(len(pads) // 2):
        low[rank - 1 - number], high[rank - 1 - number] = pads[2 * number : 2 * number + 2]
    return low, high


def _continued(mode: str) -> Importer:
    """The tensor with its own elements around it: reflected, the outermost, or from the other end."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        low, high = _paddings(context, tensor_type(x).rank)
        for axis, (before, behind) in enumerate(zip(low, high, strict=True)):
            if before == 0 and behind == 0:
                continue
            size = tensor_type(x).shape[axis]
            type = TensorType(I64, (before + size + behind,))
            place = array.iota(emit, type, 0)
            place = emit(array.Subtract(place, numbers(emit, before, type)))
            index = _continuation(emit, place, size, mode)
            x = taken(emit, x, index, axis)
        return x

    return apply


def _continuation(emit: Builder, place: Value, size: Size, mode: str) -> Value:
    """The index of the element that stands at a place, which may lie outside of the axis."""
    type = tensor_type(place)
    if mode == "circular":
        return emit(array.Remainder(place, numbers(emit, size, type)))
    last = numbers(emit, size - 1, type)
    if mode == "replicate":
        inside = emit(array.Maximum(place, array.constant_like(emit, 0, place)))
        return emit(array.Minimum(inside, last))
    from_end = emit(array.Subtract(last, emit(array.Abs(place))))
    return emit(array.Subtract(last, emit(array.Abs(from_end))))


IMPORTERS: dict[str, Importer] = {
    "aten.chunk": _split,
    "aten.constant_pad_nd": _pad,
    "aten.reflection_pad1d": _continued("reflect"),
    "aten.reflection_pad2d": _continued("reflect"),
    "aten.reflection_pad3d": _continued("reflect"),
    "aten.replication_pad1d": _continued("replicate"),
    "aten.replication_pad2d": _continued("replicate"),
    "aten.replication_pad3d": _continued("replicate"),
    "aten.select": _select,
    "aten.select_backward": _select_backward,
    "aten.select_scatter": _select_scatter,
    "aten.slice": _slice,
    "aten.slice_backward": _slice_backward,
    "aten.slice_scatter": _slice_scatter,
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.unbind": _unbind,
}
