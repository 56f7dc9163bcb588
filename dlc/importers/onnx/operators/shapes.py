"""Operators that rearrange tensors, and those that make constants and shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import numbers
from dlc.importers.onnx.facts import Tensor
from dlc.importers.onnx.node_context import (
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    common_shape,
    narrowed,
    stretched,
)
from dlc.importers.solved_sizes import with_sizes
from dlc.ir.bounded import larger, never_negative, smaller
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Shape, Size, evaluate, names, product
from dlc.ir.equal_sizes import extreme_as, never_equal
from dlc.ir.types import F32, I64, TensorType

USUAL = (16, 1 << 20)
"""A small and a large size, to see of which sign a difference of sizes is as a rule."""
FAR = 10**9
"""Slices say so, or more, for "to the end"; no axis is as long."""


def _reshape(context: NodeContext) -> NodeResults:
    x, new_shape = context.value(0), context.sizes(1)
    x = _with_dims_of(context, x, new_shape)
    return reshape(context.emit, x, reshaped(context, array.tensor_type(x).shape, new_shape))


def _with_dims_of(context: NodeContext, x: Value, new_shape: list[Size]) -> Value:
    """The tensor with a dim of the new shape in place of one of its own, if only so `-1` comes out even.

    `f32[A, 30, 32]` as `[B, -1, 4, 8]` tells that A is B, and `f32[4*min(A, 9), B]` as `[4, A, -1]` that A
    is 9 at most.
    """
    shape = array.tensor_type(x).shape
    rest = product(size for size in new_shape if size != -1)
    if -1 not in new_shape or 0 in new_shape or _divides(rest, product(shape)):
        return x
    foreign = [size for size in new_shape if isinstance(size, Dim) and size not in shape]
    own = [
        (axis, size)
        for axis, size in enumerate(shape)
        if isinstance(size, Dim) and size not in new_shape
    ]
    likely = [(axis, extreme_as(size, other)) for axis, size in own for other in foreign]
    for axis, other in (*likely, *[(axis, other) for axis, _ in own for other in foreign]):
        taken = (*shape[:axis], other, *shape[axis + 1 :])
        if _divides(rest, product(taken)) and not never_equal(shape[axis], other):
            return with_sizes(context.emit, x, taken)
    return x


def _divides(divisor: Size, size: Size) -> bool:
    return divisor != 0 and size // divisor * divisor == size


def reshaped(context: NodeContext, shape: Shape, new_shape: list[Size]) -> Shape:
    """The new shape, in which 0 keeps an axis and -1 is what remains."""
    sizes = list(new_shape)
    if not context.flag("allowzero"):
        for axis, size in enumerate(sizes):
            if size == 0:
                if axis >= len(shape):
                    raise context.wrong(f"keeps axis {axis} of a tensor with {len(shape)} axes")
                sizes[axis] = shape[axis]
    if sizes.count(-1) > 1:
        raise context.wrong("has two axes of size -1")
    if -1 in sizes:
        rest = product(size for size in sizes if size != -1)
        if rest == 0:
            raise context.wrong("has an axis of size -1 beside one of size 0")
        sizes[sizes.index(-1)] = product(shape) // rest
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise context.wrong(f"makes the shape {sizes}")
    return tuple(sizes)


def _flatten(context: NodeContext) -> NodeResults:
    shape = context.type(0).shape
    axis = context.integer("axis", 1)
    axis = axis if axis == len(shape) else context.axis(axis, len(shape))
    return reshape(context.emit, context.value(0), (product(shape[:axis]), product(shape[axis:])))


def _transpose(context: NodeContext) -> NodeResults:
    rank = context.type(0).rank
    return transpose(
        context.emit, context.value(0), context.list("perm") or tuple(range(rank))[::-1]
    )


def _given_axes(context: NodeContext) -> tuple[int, ...] | None:
    """Axes, which are an operand since opset 13."""
    if context.opset < 13:
        return context.list("axes")
    return None if context.operand(1) is None else tuple(context.integers(1))


def _squeeze(context: NodeContext) -> NodeResults:
    shape, named_axes = context.type(0).shape, _given_axes(context)
    if named_axes is None:
        axes = tuple([axis for axis, size in enumerate(shape) if size == 1])
    else:
        axes = context.axes(named_axes, len(shape))
    if any(never_equal(shape[axis], 1, context.regions.bounds) for axis in axes):
        raise context.wrong(
            f"removes the axes {list(axes)} of {context.type(0).text}, not all of size 1"
        )
    left = tuple([size for axis, size in enumerate(shape) if axis not in axes])
    return reshape(context.emit, context.value(0), left)


def _unsqueeze(context: NodeContext) -> NodeResults:
    shape, named_axes = context.type(0).shape, _given_axes(context)
    if named_axes is None:
        raise context.wrong("does not say which axes it adds")
    rank = len(shape) + len(named_axes)
    axes = context.axes(named_axes, rank)
    rest = iter(shape)
    return reshape(
        context.emit, context.value(0), tuple([1 if k in axes else next(rest) for k in range(rank)])
    )


def _concat(context: NodeContext) -> NodeResults:
    values = context.values()
    axis = context.axis(context.integer("axis"), array.tensor_type(values[0]).rank)
    for other in range(array.tensor_type(values[0]).rank):
        if other != axis:
            values = context.with_common_axis(*[(value, other) for value in values])
    some = [value for value in values if array.tensor_type(value).shape[axis] != 0]
    if len(some) == 1 < len(values):
        return some[0]
    return context.emit(array.Concatenate(tuple(values), axis))


def _split(context: NodeContext) -> NodeResults:
    x, count = context.value(0), len(context.node.outputs)
    axis = context.axis(context.integer("axis", 0), context.type(0).rank)
    size = context.type(0).shape[axis]
    sizes: list[Size] = list(context.list("split") or ())
    if context.opset >= 13 and context.operand(1) is not None:
        sizes = context.sizes(1)
    if not sizes:
        part = (size + count - 1) // count
        sizes = [part] * (count - 1)
        sizes.append(size - product((part, count - 1)))
    if len(sizes) != count:
        raise context.wrong(f"has {count} results for parts of the sizes {sizes}")
    parts: list[Value] = []
    start: Size = 0
    for extent in sizes:
        parts.append(slice_axis(context.emit, x, axis, start, start + extent))
        start = start + extent
    return parts


# Slices -------------------------------------------------------------------------------------------


def _slice(context: NodeContext) -> NodeResults:
    x = context.value(0)
    shape = context.type(0).shape
    lows: list[Size] = [0] * len(shape)
    highs: list[Size] = list(shape)
    strides = [1] * len(shape)
    backwards: list[int] = []
    for axis, start, end, stride in _sliced_axes(context, len(shape)):
        part = _backwards if stride < 0 else forwards
        lows[axis], highs[axis] = part(context, start, end, abs(stride), shape[axis])
        strides[axis] = abs(stride)
        if stride < 0:
            backwards.append(axis)
    if any(lows) or tuple(highs) != shape or strides != [1] * len(shape):
        x = context.emit(array.Slice(x, tuple(lows), tuple(highs), tuple(strides)))
    return context.emit(array.Reverse(x, tuple(sorted(backwards)))) if backwards else x


def _sliced_axes(context: NodeContext, rank: int) -> Iterable[tuple[int, Size, Size, int]]:
    """The axis, start, end and stride of each axis that a Slice names: attributes before opset 10."""
    if context.opset < 10:
        starts: Sequence[Size] = context.list("starts") or ()
        ends: Sequence[Size] = context.list("ends") or ()
    else:
        starts, ends = context.sizes(1), context.sizes(2)
    axes, strides = slice_axes(context, rank, (len(starts), len(ends)))
    return zip(axes, starts, ends, strides, strict=True)


def slice_axes(
    context: NodeContext, rank: int, counts: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """The axes that a Slice names, and their strides; `counts` says how many starts and ends there are."""
    axes: Sequence[int] | None = None
    strides: Sequence[int] | None = None
    if context.opset < 10:
        axes = context.list("axes")
    else:
        axes = None if context.operand(3) is None else context.integers(3)
        strides = None if context.operand(4) is None else context.integers(4)
    axes = range(counts[0]) if axes is None else [context.axis(axis, rank) for axis in axes]
    strides = strides or [1] * counts[0]
    if {*counts, len(axes), len(strides)} != {counts[0]} or 0 in strides:
        raise context.wrong("needs a start, an end and a context other than 0 for each axis")
    return axes, strides


def forwards(
    context: NodeContext, start: Size, end: Size, stride: int, size: Size
) -> tuple[Size, Size]:
    """The part of an axis from `start` up to before `end`, whatever the stride."""
    bounds = context.regions.bounds
    low, high = _inside(context, start, size), _inside(context, end, size)
    return low, larger(low, high, bounds)


def _inside(context: NodeContext, index: Size, size: Size) -> Size:
    """An index, perhaps counted from the end, as one from 0 to the size.

    Where bounds do not tell whether it counts from the end, it does if it does for usual sizes, or for
    large ones if the axis is then long enough, and each call is checked.
    """
    bounds = context.regions.bounds
    if isinstance(index, int) and abs(index) >= FAR:
        return 0 if index < 0 else size
    if never_negative(index, bounds):
        return smaller(index, size, bounds)
    is_inside = never_negative(size + index, bounds)
    if usually_negative(index, USUAL[1:] if is_inside else USUAL):
        context.require(-index - 1, f"counts the index {index} from the end, so it must not be 0")
        return larger(size + index, 0, bounds)
    context.require(index, f"counts the index {index} from the start, so it must not be below 0")
    return smaller(index, size, bounds)


def usually_negative(size: Size, usual: Sequence[int] = USUAL) -> bool:
    """Whether a size is below 0 for small and for large sizes of a call: `2 - S` is, `128 - S` is not."""
    return all(evaluate(size, dict.fromkeys(names(size), each)) < 0 for each in usual)


def _backwards(
    context: NodeContext, start: Size, end: Size, stride: int, size: Size
) -> tuple[Size, Size]:
    """The part, read forwards, of a slice that runs from `start` down to before `end`."""
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(size, int)):
        if (start, stride) == (-1, 1) and isinstance(end, int) and end <= -FAR:
            return 0, size
        raise context.unsupported("runs backwards over an axis whose size is not a number")
    first, last, way = slice(start, end, -stride).indices(size)
    # A start before the axis is its first place, where in Python it is nowhere.
    first = max(first, min(0, size - 1))
    count = len(range(first, last, way))
    return (first - (count - 1) * stride, first + 1) if count else (0, 0)


def _expand(context: NodeContext) -> NodeResults:
    shape = common_shape(context, [context.type(0).shape, tuple(context.sizes(1))])
    return stretched(context.emit, narrowed(context, context.value(0), shape), shape)


def _tile(context: NodeContext) -> NodeResults:
    x, shape = context.value(0), context.type(0).shape
    for axis, count in enumerate(context.sizes(1)):
        if count == 1:
            continue
        apart = (*shape[:axis], count, *shape[axis:])
        kept = tuple([k for k in range(len(apart)) if k != axis])
        wide = context.emit(array.Broadcast(x, apart, kept))
        shape = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
        x = reshape(context.emit, wide, shape)
    return x


def _pad(context: NodeContext) -> NodeResults:
    x = context.value(0)
    low, high = _pads(context, context.type(0).rank)
    mode = context.text("mode", "constant")
    if mode == "constant":
        return _filled(context, x, low, high)
    return _continued(context, x, mode, low, high)


def _pads(context: NodeContext, rank: int) -> tuple[list[Size], list[Size]]:
    """The padding before and behind each axis; a negative number removes elements."""
    attribute = context.list("pads") if context.opset < 11 else None
    pads: list[Size] = context.sizes(1) if context.opset >= 11 else [*(attribute or ())]
    axes: Sequence[int] = range(rank)
    if context.opset >= 18 and context.operand(3) is not None:
        axes = [context.axis(axis, rank) for axis in context.integers(3)]
    if len(pads) != 2 * len(axes):
        raise context.wrong(f"has {len(pads)} pads for {len(axes)} axes")
    low: list[Size] = [0] * rank
    high: list[Size] = [0] * rank
    for k, axis in enumerate(axes):
        low[axis], high[axis] = pads[k], pads[len(axes) + k]
    return low, high


def _filled(context: NodeContext, x: Value, low: list[Size], high: list[Size]) -> Value:
    """The tensor with one value around it, after what is cut off."""
    emit, type = context.emit, context.type(0)
    value = context.optional(2) if context.opset >= 11 else None
    if value is None:
        value = array.fill(emit, context.number("value", 0.0), type.with_shape(()))
    bounds = context.regions.bounds
    starts = [larger(-number, 0, bounds) for number in low]
    ends = [
        size - larger(-number, 0, bounds) for size, number in zip(type.shape, high, strict=True)
    ]
    steps = (1,) * type.rank
    is_cut = any(starts) or tuple(ends) != type.shape
    inner = emit(array.Slice(x, tuple(starts), tuple(ends), steps)) if is_cut else x
    before, behind = (
        tuple([larger(number, 0, bounds) for number in numbers]) for numbers in (low, high)
    )
    return emit(array.Pad(inner, reshape(emit, value, ()), before, behind, (0,) * type.rank))


def _continued(
    context: NodeContext, x: Value, mode: str, low: Sequence[Size], high: Sequence[Size]
) -> Value:
    """The tensor with its own elements around it, one axis after the other."""
    if mode not in ("reflect", "edge", "wrap"):
        raise context.wrong(f"has the unknown mode {mode!r}")
    bounds = context.regions.bounds
    if not all(never_negative(number, bounds) for number in (*low, *high)):
        raise context.unsupported(f"in mode {mode} that cuts elements off is not imported")
    for axis, (before, behind) in enumerate(zip(low, high, strict=True)):
        if before or behind:
            index = _source_index(context, array.tensor_type(x).shape[axis], mode, before, behind)
            found = context.emit(array.Gather(x, (index,), (axis,)))
            rank = array.tensor_type(x).rank
            x = transpose(context.emit, found, (*range(1, axis + 1), 0, *range(axis + 1, rank)))
    return x


def _source_index(context: NodeContext, size: Size, mode: str, before: Size, behind: Size) -> Value:
    """For each position of the padded axis, the index of the element that it copies."""
    emit = context.emit
    for padding in (before, behind):
        if mode == "reflect" and never_negative(padding - size, context.regions.bounds):
            raise context.wrong(f"reflects {padding} elements of {size}")
    type = TensorType(I64, (before + size + behind,))
    first = numbers(emit, before, type)
    position = emit(array.Subtract(array.iota(emit, type, 0), first))
    last = numbers(emit, size - 1, type)
    if mode == "wrap":
        return emit(array.Remainder(position, numbers(emit, size, type)))
    if mode == "edge":
        inside = emit(array.Maximum(position, array.constant_like(emit, 0, position)))
        return emit(array.Minimum(inside, last))
    from_end = emit(array.Abs(emit(array.Subtract(last, emit(array.Abs(position))))))
    return emit(array.Subtract(last, from_end))


# Constants and shapes -----------------------------------------------------------------------------


def _shape(context: NodeContext) -> NodeResults:
    shape = context.type(0).shape
    start, end = context.integer("start", 0), context.integer("end", len(shape))
    return Constant.of_sizes(list(shape[start:end]))


def _size(context: NodeContext) -> NodeResults:
    return Constant.of_sizes([product(context.type(0).shape)], ())


def _constant(context: NodeContext) -> NodeResults:
    name = next(iter(context.node.attributes), "")
    match context.node.attributes.get(name):
        case Tensor(dtype, found) if name == "value":
            return Constant(found, dtype)
        case float(number) if name == "value_float":
            return Constant(np.asarray(number, np.float32), F32)
        case int(number) if name == "value_int":
            return Constant(np.asarray(number, np.int64), I64)
        case tuple(items) if name == "value_floats":
            return Constant(np.asarray(cast("tuple[float, ...]", items), np.float32), F32)
        case tuple(items) if name == "value_ints":
            return Constant(np.asarray(cast("tuple[int, ...]", items), np.int64), I64)
        case _:
            raise context.unsupported(f"with {name or 'no value'} is not imported")


def _constant_of_shape(context: NodeContext) -> NodeResults:
    shape, value = context.sizes(0), context.tensor("value") or Tensor(F32, np.zeros(1, np.float32))
    if value.array.size != 1:
        raise context.wrong(f"has a value of {value.array.size} elements")
    numbers = tuple([size for size in shape if isinstance(size, int)])
    if min(numbers, default=0) < 0:
        raise context.wrong(f"makes the shape {shape}")
    element = value.array.reshape(())
    if len(numbers) == len(shape) and math.prod(numbers) < 1 << 48:
        return Constant(np.broadcast_to(element, numbers), value.dtype)
    return array.fill(context.emit, element.item(), TensorType(value.dtype, tuple(shape)))


# Resizing -----------------------------------------------------------------------------------------


IMPORTERS: dict[str, Importer] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
