"""Operators that rearrange tensors, and those that make constants and shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import numbers
from dlc.importers.onnx.facts import Tensor
from dlc.importers.onnx.step import Constant, Importer, NodeResults, Step, common_shape, stretched
from dlc.ir.core import Value
from dlc.ir.dims import Bounds, Shape, Size, maximum, minimum, product
from dlc.ir.types import F32, I64, TensorType

FAR = 10**9
"""Slices say so, or more, for "to the end"; no axis is as long."""


def _reshape(step: Step) -> NodeResults:
    shape = step.type(0).shape
    return reshape(step.emit, step.value(0), reshaped(step, shape, step.sizes(1)))


def reshaped(step: Step, shape: Shape, wanted: list[Size]) -> Shape:
    """The new shape, in which 0 keeps an axis and -1 is what remains."""
    found = list(wanted)
    if not step.flag("allowzero"):
        for axis, size in enumerate(found):
            if size == 0:
                if axis >= len(shape):
                    raise step.wrong(f"keeps axis {axis} of a tensor with {len(shape)} axes")
                found[axis] = shape[axis]
    if found.count(-1) > 1:
        raise step.wrong("has two axes of size -1")
    if -1 in found:
        rest = product(size for size in found if size != -1)
        if rest == 0:
            raise step.wrong("has an axis of size -1 beside one of size 0")
        found[found.index(-1)] = product(shape) // rest
    if any(isinstance(size, int) and size < 0 for size in found):
        raise step.wrong(f"makes the shape {found}")
    return tuple(found)


def _flatten(step: Step) -> NodeResults:
    shape = step.type(0).shape
    axis = step.integer("axis", 1)
    axis = axis if axis == len(shape) else step.axis(axis, len(shape))
    return reshape(step.emit, step.value(0), (product(shape[:axis]), product(shape[axis:])))


def _transpose(step: Step) -> NodeResults:
    rank = step.type(0).rank
    return transpose(step.emit, step.value(0), step.list("perm") or tuple(range(rank))[::-1])


def _given_axes(step: Step) -> tuple[int, ...] | None:
    """Axes, which are an operand since opset 13."""
    if step.opset < 13:
        return step.list("axes")
    return None if step.operand(1) is None else tuple(step.integers(1))


def _squeeze(step: Step) -> NodeResults:
    shape, given = step.type(0).shape, _given_axes(step)
    if given is None:
        axes = tuple([axis for axis, size in enumerate(shape) if size == 1])
    else:
        axes = step.axes(given, len(shape))
    if any(shape[axis] != 1 for axis in axes):
        raise step.wrong(f"removes the axes {list(axes)} of {step.type(0).text}, not all of size 1")
    left = tuple([size for axis, size in enumerate(shape) if axis not in axes])
    return reshape(step.emit, step.value(0), left)


def _unsqueeze(step: Step) -> NodeResults:
    shape, given = step.type(0).shape, _given_axes(step)
    if given is None:
        raise step.wrong("does not say which axes it adds")
    rank = len(shape) + len(given)
    axes = step.axes(given, rank)
    rest = iter(shape)
    return reshape(
        step.emit, step.value(0), tuple([1 if k in axes else next(rest) for k in range(rank)])
    )


def _concat(step: Step) -> NodeResults:
    values = step.values()
    axis = step.axis(step.integer("axis"), array.tensor_type(values[0]).rank)
    return step.emit(array.Concatenate(tuple(values), axis))


def _split(step: Step) -> NodeResults:
    x, count = step.value(0), len(step.node.outputs)
    axis = step.axis(step.integer("axis", 0), step.type(0).rank)
    size = step.type(0).shape[axis]
    sizes: list[Size] = list(step.list("split") or ())
    if step.opset >= 13 and step.operand(1) is not None:
        sizes = step.sizes(1)
    if not sizes:
        part = (size + count - 1) // count
        sizes = [part] * (count - 1)
        sizes.append(size - product((part, count - 1)))
    if len(sizes) != count:
        raise step.wrong(f"has {count} results for parts of the sizes {sizes}")
    made: list[Value] = []
    start: Size = 0
    for extent in sizes:
        made.append(slice_axis(step.emit, x, axis, start, start + extent))
        start = start + extent
    return made


# Slices -------------------------------------------------------------------------------------------


def _slice(step: Step) -> NodeResults:
    x = step.value(0)
    shape = step.type(0).shape
    lows: list[Size] = [0] * len(shape)
    highs: list[Size] = list(shape)
    strides = [1] * len(shape)
    backwards: list[int] = []
    for axis, start, end, stride in _sliced_axes(step, len(shape)):
        part = _backwards if stride < 0 else _forwards
        lows[axis], highs[axis] = part(step, start, end, abs(stride), shape[axis])
        strides[axis] = abs(stride)
        if stride < 0:
            backwards.append(axis)
    if any(lows) or tuple(highs) != shape or strides != [1] * len(shape):
        x = step.emit(array.Slice(x, tuple(lows), tuple(highs), tuple(strides)))
    return step.emit(array.Reverse(x, tuple(sorted(backwards)))) if backwards else x


def _sliced_axes(step: Step, rank: int) -> Iterable[tuple[int, Size, Size, int]]:
    """The axis, start, end and step of each axis that a Slice names: attributes before opset 10."""
    axes: Sequence[int] | None = None
    strides: Sequence[int] | None = None
    if step.opset < 10:
        starts: Sequence[Size] = step.list("starts") or ()
        ends: Sequence[Size] = step.list("ends") or ()
        axes = step.list("axes")
    else:
        starts, ends = step.sizes(1), step.sizes(2)
        axes = None if step.operand(3) is None else step.integers(3)
        strides = None if step.operand(4) is None else step.integers(4)
    axes = range(len(starts)) if axes is None else [step.axis(axis, rank) for axis in axes]
    strides = strides or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(strides) or 0 in strides:
        raise step.wrong("needs a start, an end and a step other than 0 for each axis")
    return zip(axes, starts, ends, strides, strict=True)


def _forwards(step: Step, start: Size, end: Size, stride: int, size: Size) -> tuple[Size, Size]:
    """The part of an axis from `start` up to before `end`, whatever the stride."""
    bounds = step.regions.bounds
    low, high = _inside(start, size, bounds), _inside(end, size, bounds)
    return low, maximum(low, high, bounds)


def _inside(place: Size, size: Size, bounds: Bounds) -> Size:
    """A place, perhaps counted from the end, as one from 0 to the size."""
    if isinstance(place, int):
        if place < 0:
            return 0 if place <= -FAR else maximum(size + place, 0, bounds)
        if place >= FAR:
            return size
    return minimum(place, size, bounds)


def _backwards(step: Step, start: Size, end: Size, stride: int, size: Size) -> tuple[Size, Size]:
    """The part, read forwards, of a slice that runs from `start` down to before `end`."""
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(size, int)):
        if (start, stride) == (-1, 1) and isinstance(end, int) and end <= -FAR:
            return 0, size
        raise step.unsupported("runs backwards over an axis whose size is not a number")
    first, last, way = slice(start, end, -stride).indices(size)
    # A start before the axis is its first place, where in Python it is nowhere.
    first = max(first, min(0, size - 1))
    count = len(range(first, last, way))
    return (first - (count - 1) * stride, first + 1) if count else (0, 0)


def _expand(step: Step) -> NodeResults:
    shape = common_shape(step, [step.type(0).shape, tuple(step.sizes(1))])
    return stretched(step.emit, step.value(0), shape)


def _tile(step: Step) -> NodeResults:
    x, shape = step.value(0), step.type(0).shape
    for axis, count in enumerate(step.sizes(1)):
        if count == 1:
            continue
        apart = (*shape[:axis], count, *shape[axis:])
        kept = tuple([k for k in range(len(apart)) if k != axis])
        wide = step.emit(array.Broadcast(x, apart, kept))
        shape = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
        x = reshape(step.emit, wide, shape)
    return x


def _pad(step: Step) -> NodeResults:
    x = step.value(0)
    low, high = _pads(step, step.type(0).rank)
    mode = step.text("mode", "constant")
    if mode == "constant":
        return _filled(step, x, low, high)
    return _continued(step, x, mode, low, high)


def _pads(step: Step, rank: int) -> tuple[list[int], list[int]]:
    """How many elements are put before and behind each axis; a negative number cuts some off."""
    pads = list(step.list("pads") or ()) if step.opset < 11 else step.integers(1)
    axes: Sequence[int] = range(rank)
    if step.opset >= 18 and step.operand(3) is not None:
        axes = [step.axis(axis, rank) for axis in step.integers(3)]
    if len(pads) != 2 * len(axes):
        raise step.wrong(f"has {len(pads)} pads for {len(axes)} axes")
    low, high = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        low[axis], high[axis] = pads[k], pads[len(axes) + k]
    return low, high


def _filled(step: Step, x: Value, low: list[int], high: list[int]) -> Value:
    """The tensor with one value around it, after what is cut off."""
    emit, type = step.emit, step.type(0)
    value = step.optional(2) if step.opset >= 11 else None
    if value is None:
        value = array.fill(emit, step.number("value", 0.0), type.with_shape(()))
    starts = [max(-number, 0) for number in low]
    ends = [size - max(-number, 0) for size, number in zip(type.shape, high, strict=True)]
    steps = (1,) * type.rank
    inner = emit(array.Slice(x, tuple(starts), tuple(ends), steps))
    before, behind = (tuple([max(number, 0) for number in numbers]) for numbers in (low, high))
    return emit(array.Pad(inner, reshape(emit, value, ()), before, behind, (0,) * type.rank))


def _continued(step: Step, x: Value, mode: str, low: list[int], high: list[int]) -> Value:
    """The tensor with its own elements around it, one axis after the other."""
    if mode not in ("reflect", "edge", "wrap"):
        raise step.wrong(f"has the unknown mode {mode!r}")
    if min(*low, *high, 0) < 0:
        raise step.unsupported(f"in mode {mode} that cuts elements off is not imported")
    for axis, (before, behind) in enumerate(zip(low, high, strict=True)):
        if before or behind:
            index = _places(step, array.tensor_type(x).shape[axis], mode, before, behind)
            found = step.emit(array.Gather(x, (index,), (axis,)))
            rank = array.tensor_type(x).rank
            x = transpose(step.emit, found, (*range(1, axis + 1), 0, *range(axis + 1, rank)))
    return x


def _places(step: Step, size: Size, mode: str, before: int, behind: int) -> Value:
    """Which element of an axis each place of the longer one has."""
    emit = step.emit
    if mode == "reflect" and isinstance(size, int) and max(before, behind) >= size:
        raise step.wrong(f"reflects {max(before, behind)} elements of {size}")
    type = TensorType(I64, (before + size + behind,))
    place = plus(emit, array.iota(emit, type, 0), -before)
    last = numbers(emit, size - 1, type)
    if mode == "wrap":
        return emit(array.Remainder(place, numbers(emit, size, type)))
    if mode == "edge":
        inside = emit(array.Maximum(place, array.constant_like(emit, 0, place)))
        return emit(array.Minimum(inside, last))
    from_end = emit(array.Abs(emit(array.Subtract(last, emit(array.Abs(place))))))
    return emit(array.Subtract(last, from_end))


# Constants and shapes -----------------------------------------------------------------------------


def _shape(step: Step) -> NodeResults:
    shape = step.type(0).shape
    start, end = step.integer("start", 0), step.integer("end", len(shape))
    return Constant.of_sizes(list(shape[start:end]))


def _size(step: Step) -> NodeResults:
    return Constant.of_sizes([product(step.type(0).shape)], ())


def _constant(step: Step) -> NodeResults:
    name = next(iter(step.node.attributes), "")
    match step.node.attributes.get(name):
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
            raise step.unsupported(f"with {name or 'no value'} is not imported")


def _constant_of_shape(step: Step) -> NodeResults:
    shape, value = step.sizes(0), step.tensor("value") or Tensor(F32, np.zeros(1, np.float32))
    if value.array.size != 1:
        raise step.wrong(f"has a value of {value.array.size} elements")
    known = tuple([size for size in shape if isinstance(size, int)])
    if min(known, default=0) < 0:
        raise step.wrong(f"makes the shape {shape}")
    element = value.array.reshape(())
    if len(known) == len(shape) and math.prod(known) < 1 << 48:
        return Constant(np.broadcast_to(element, known), value.dtype)
    return array.fill(step.emit, element.item(), TensorType(value.dtype, tuple(shape)))


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
