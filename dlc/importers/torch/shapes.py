"""Operators that rearrange tensors, and those that make constants."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.bounded import larger, smaller
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import BOOL, F32, F64, I64, TensorType

FAR = 1 << 62
"""A slice says so, or more, for "to the end"."""


def _shaped(context: NodeContext) -> Operand:
    """The elements in the shape of the result."""
    return reshape(context.emit, context.value("self"), context.type.shape)


def _as_strided(context: NodeContext) -> Operand:
    """A view by strides, where it is only another shape."""
    x = context.value("self")
    _check_whole(context, x)
    return reshape(context.emit, x, context.sizes("size"))


def _as_strided_scatter(context: NodeContext) -> Operand:
    """The tensor with another in place of all of its elements."""
    x = context.value("self")
    _check_whole(context, x)
    return reshape(context.emit, context.value("src"), context.type.shape)


def _check_whole(context: NodeContext, x: Value) -> None:
    """Refuse strides other than those of a tensor with all elements of this one, in their order."""
    size, strides = context.sizes("size"), context.sizes("stride")
    expected: Size = 1
    for extent, stride in zip(size[::-1], strides[::-1], strict=True):
        if extent != 1 and stride != expected:
            raise context.unsupported(f"with the strides {list(strides)} is not imported")
        expected = expected * extent
    if expected != tensor_type(x).size or context.given("storage_offset") not in (0, None):
        raise context.unsupported("of a part of the memory is not imported")


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
    """The tensor several times along each axis; further axes stand in front."""
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
    values = [
        value
        for value in context.values("tensors", context.dtype)
        if tensor_type(value).rank == rank
    ]
    if len(values) == 1:
        return values[0]
    return context.emit(array.Concatenate(tuple(values), context.axis("dim", rank, 0)))


def _stack(context: NodeContext) -> Operand:
    emit, rank = context.emit, context.type.rank
    axis = context.axis("dim", rank, 0)
    parts: list[Value] = []
    for value in context.values("tensors", context.dtype):
        shape = tensor_type(value).shape
        parts.append(reshape(emit, value, (*shape[:axis], 1, *shape[axis:])))
    return parts[0] if len(parts) == 1 else emit(array.Concatenate(tuple(parts), axis))


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
    index = _counted(context.size("index"), tensor_type(x).shape[axis])
    part = slice_axis(context.emit, x, axis, index, index + 1)
    return reshape(context.emit, part, context.type.shape)


def _counted(index: Size, size: Size) -> Size:
    """An index that may count from the end, as one that counts from the start."""
    return size + index if isinstance(index, int) and index < 0 else index


def _bounds_of(context: NodeContext, size: Size) -> tuple[Size, Size]:
    """The start and the end of a slice, both inside the axis."""
    bounds = context.regions.bounds
    start, end = context.given("start"), context.given("end")
    low = _inside(context, start, size) if isinstance(start, int | Dim) else 0
    high = _inside(context, end, size) if isinstance(end, int | Dim) else size
    return low, larger(low, high, bounds)


def _inside(context: NodeContext, index: Size, size: Size) -> Size:
    bounds = context.regions.bounds
    if isinstance(index, int):
        if index < 0:
            return larger(size + index, 0, bounds)
        if index >= FAR:
            return size
    return smaller(index, size, bounds)


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
    index = _counted(context.size("index"), shape[axis])
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
    index = _counted(context.size("index"), shape[axis])
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
    cut = (size - shift) % size if isinstance(size, int) else _counted(-shift, size)
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


def _filled(name: str) -> Importer:
    def apply(context: NodeContext) -> Operand:
        given = context.given(name)
        if isinstance(given, int | float):
            return array.fill(context.emit, given, context.type)
        return context.stretched(name)

    return apply


def _all(number: int) -> Importer:
    return lambda context: array.fill(context.emit, number, context.type)


def _arange(context: NodeContext) -> Operand:
    """`start + k * step`; in floats computed in f64, as PyTorch does, and rounded once."""
    emit, type = context.emit, context.type
    start = context.given("start")
    step = context.given("step")
    step = 1 if step is None else step
    wide = F64 if type.dtype.is_float else I64
    count = array.iota(emit, type.with_dtype(I64), 0)
    count = in_dtype(emit, count, wide)
    if step != 1:
        count = emit(array.Multiply(count, context.stretched("step", dtype=wide)))
    if start not in (0, None):
        count = emit(array.Add(count, context.stretched("start", dtype=wide)))
    return in_dtype(emit, count, type.dtype)


def _linspace(context: NodeContext) -> Operand:
    """Numbers at equal distances; the second half is counted from the end, as in PyTorch."""
    emit, type = context.emit, context.type
    (count,) = type.shape
    dtype = type.dtype if type.dtype is F64 else F32
    index = in_dtype(emit, array.iota(emit, type.with_dtype(I64), 0), dtype)
    start, end = (context.stretched(name, dtype=dtype) for name in ("start", "end"))
    if count == 1:
        return in_dtype(emit, start, type.dtype)
    last = numbers(emit, count - 1, TensorType(dtype, type.shape))
    step = emit(array.Divide(emit(array.Subtract(end, start)), last))
    up = emit(array.Add(start, emit(array.Multiply(step, index))))
    left = emit(array.Subtract(last, index))
    down = emit(array.Subtract(end, emit(array.Multiply(step, left))))
    first = emit(array.Compare(index, left, "lt"))
    return in_dtype(emit, emit(array.Select(first, up, down)), type.dtype)


def _eye(context: NodeContext) -> Operand:
    emit, type = context.emit, context.type
    index = type.with_dtype(I64)
    same = array.Compare(array.iota(emit, index, 0), array.iota(emit, index, 1), "eq")
    return in_dtype(emit, emit(same), type.dtype)


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
    "aten.arange": _arange,
    "aten.as_strided": _as_strided,
    "aten.as_strided_scatter": _as_strided_scatter,
    "aten.cat": _cat,
    "aten.chunk": _split,
    "aten.constant_pad_nd": _pad,
    "aten.empty": _all(0),
    "aten.empty_like": _all(0),
    "aten.empty_permuted": _all(0),
    "aten.empty_strided": _all(0),
    "aten.expand": _expand,
    "aten.eye": _eye,
    "aten.fill": _filled("value"),
    "aten.flatten": _shaped,
    "aten.flip": _flip,
    "aten.full": _filled("fill_value"),
    "aten.full_like": _filled("fill_value"),
    "aten.linspace": _linspace,
    "aten.new_empty": _all(0),
    "aten.new_full": _filled("fill_value"),
    "aten.new_ones": _all(1),
    "aten.new_zeros": _all(0),
    "aten.ones": _all(1),
    "aten.ones_like": _all(1),
    "aten.permute": _permute,
    "aten.pixel_shuffle": _pixel_shuffle,
    "aten.pixel_unshuffle": _pixel_unshuffle,
    "aten.reflection_pad1d": _continued("reflect"),
    "aten.reflection_pad2d": _continued("reflect"),
    "aten.reflection_pad3d": _continued("reflect"),
    "aten.repeat": _repeat,
    "aten.repeat_interleave": _repeat_interleave,
    "aten.replication_pad1d": _continued("replicate"),
    "aten.replication_pad2d": _continued("replicate"),
    "aten.replication_pad3d": _continued("replicate"),
    "aten.reshape": _shaped,
    "aten.roll": _roll,
    "aten.select": _select,
    "aten.select_backward": _select_backward,
    "aten.select_scatter": _select_scatter,
    "aten.slice": _slice,
    "aten.slice_backward": _slice_backward,
    "aten.slice_scatter": _slice_scatter,
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.squeeze": _shaped,
    "aten.stack": _stack,
    "aten.t": _transpose,
    "aten.tile": _repeat,
    "aten.transpose": _transpose,
    "aten.tril": _triangle("le"),
    "aten.triu": _triangle("ge"),
    "aten.unbind": _unbind,
    "aten.unflatten": _shaped,
    "aten.unfold": _unfold,
    "aten.unsqueeze": _shaped,
    "aten.view": _shaped,
    "aten.zeros": _all(0),
    "aten.zeros_like": _all(0),
    "prims.iota": _arange,
}
