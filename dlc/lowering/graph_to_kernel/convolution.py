"""Convolutions that no product computes directly, rewritten as ones that a product computes.

Most of them are gradients: that of a strided convolution's source has gaps between the elements of its
source, that of its kernel may leave out the end of a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from dlc.dialects import array
from dlc.dialects.array.convolution import convolution
from dlc.dialects.array.convolution_layouts import Padding
from dlc.dialects.array.elementwise import fill, tensor_type
from dlc.dialects.array.pieces import is_negative, slice_axis
from dlc.dialects.array.shape import reshape
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size, ceil_divide
from dlc.ir.types import BF16, F16, F32

PICTURES = {"nwc": "nhwc", "ncw": "nchw"}
"""How a signal lies in memory as a picture of one row."""


def split_convolution(op: array.Convolution, emit: Builder) -> Value | None:
    """The same from simpler operations; None for a product, and where no way is known."""
    if tensor_type(op.source).dtype in (F16, BF16):
        return _in_single(op, emit)
    if op.dims in PICTURES:
        return _as_picture(op, emit)
    if op.layout.rank != 4:
        return None
    if max(op.source_dilations) > 1:
        return _by_phases(op, emit)
    if any(is_negative(size) for pair in op.padding for size in pair):
        return _cropped(op, emit)
    return None


def _in_single(op: array.Convolution, emit: Builder) -> Value:
    """f16 and bf16 are summed in f32 anyway, and rounded once."""
    source, kernel = (emit(array.Cast(value, F32)) for value in (op.source, op.kernel))
    return emit(
        array.Cast(_like(op, emit, source, kernel, op.padding), tensor_type(op.source).dtype)
    )


def _like(
    op: array.Convolution, emit: Builder, source: Value, kernel: Value, padding: Padding
) -> Value:
    """The same convolution of other operands."""
    return convolution(
        emit,
        source,
        kernel,
        strides=op.strides,
        padding=padding,
        dilations=op.dilations,
        source_dilations=op.source_dilations,
        groups=op.groups,
        dims=op.dims,
    )


def _as_picture(op: array.Convolution, emit: Builder) -> Value:
    """A signal is a picture of one row."""
    rows = op.layout.spatial[0], op.layout.kernel_spatial[0]
    source, kernel = (
        reshape(emit, value, _with_one(tensor_type(value).shape, axis))
        for value, axis in zip((op.source, op.kernel), rows, strict=True)
    )
    made = convolution(
        emit,
        source,
        kernel,
        strides=(1, *op.strides),
        padding=((0, 0), *op.padding),
        dilations=(1, *op.dilations),
        source_dilations=(1, *op.source_dilations),
        groups=op.groups,
        dims=PICTURES[op.dims],
    )
    return reshape(emit, made, tensor_type(op.result).shape)


def _with_one(shape: Sequence[Size], axis: int) -> Shape:
    return (*shape[:axis], 1, *shape[axis:])


def _cropped(op: array.Convolution, emit: Builder) -> Value:
    """A negative padding leaves elements out; the others have theirs."""
    source = op.source
    padding: list[tuple[Size, Size]] = []
    for axis, pair in zip(op.layout.spatial, op.padding, strict=True):
        first, last = (-size if is_negative(size) else 0 for size in pair)
        if (first, last) != (0, 0):
            end = tensor_type(source).shape[axis] - last
            source = slice_axis(emit, source, axis, first, end)
        low, high = (0 if is_negative(size) else size for size in pair)
        padding.append((low, high))
    return _like(op, emit, source, op.kernel, tuple(padding))


# Gaps in the source -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Phase:
    """Every s-th element of a result along an axis: those elements of the kernel that meet no gap."""

    first: int
    step: int
    taps: int
    dilation: int
    low: int
    high: int


def _by_phases(op: array.Convolution, emit: Builder) -> Value | None:
    """With gaps of s - 1 zeros, every s-th element of a result is made by every s-th of the kernel.

    So there are s convolutions without gaps for each axis, whose results take turns. The elements of
    the kernel that would only meet zeros are never multiplied.
    """
    axes = [_phases(op, number) for number in range(len(op.strides))]
    if any(found is None for found in axes) or max(op.strides) > 1:
        return None
    known = [found for found in axes if found is not None]
    parts = {
        at: _part(op, emit, [phases[place] for phases, place in zip(known, at, strict=True)])
        for at in product(*[range(len(phases)) for phases in known])
    }
    rows: list[Value] = []
    down, across = op.layout.spatial
    for row in range(len(known[0])):
        line = [parts[row, column] for column in range(len(known[1]))]
        rows.append(_in_turns(emit, line, across, tensor_type(op.result).shape[across]))
    return _in_turns(emit, rows, down, tensor_type(op.result).shape[down])


def _phases(op: array.Convolution, number: int) -> list[_Phase | None] | None:
    """What makes the elements 0, 1, .. of every s along a spatial axis; None in it for zeros.

    None where the kernel, the padding or, with gaps, how far the result reaches beyond the source is only
    known when a model is called.
    """
    axis, kernel_axis = op.layout.spatial[number], op.layout.kernel_spatial[number]
    spread, dilation = op.source_dilations[number], op.dilations[number]
    extent, length = (tensor_type(value).shape[axis] for value in (op.source, op.result))
    window, low = tensor_type(op.kernel).shape[kernel_axis], op.padding[number][0]
    each = ceil_divide(length, spread)
    # Both grow with the source alike, so that their difference is a number.
    beyond = each - extent
    if not (isinstance(window, int) and isinstance(low, int) and isinstance(beyond, int)):
        return None
    found: list[_Phase | None] = []
    for place in range(spread):
        taps = [tap for tap in range(window) if (place + tap * dilation - low) % spread == 0]
        if not taps or each == 0 or extent == 0:
            found.append(None)
            continue
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        apart = step * dilation // spread if len(taps) > 1 else 1
        start = (place + taps[0] * dilation - low) // spread
        high = start + beyond + (len(taps) - 1) * apart
        found.append(_Phase(taps[0], step, len(taps), apart, -start, high))
    return found


def _part(op: array.Convolution, emit: Builder, phases: Sequence[_Phase | None]) -> Value:
    """The elements of the result at one place of the pattern that the gaps make."""
    known = [phase for phase in phases if phase is not None]
    if len(known) < len(phases):
        return _nothing(op, emit)
    kernel = op.kernel
    for axis, phase in zip(op.layout.kernel_spatial, known, strict=True):
        kernel = _every(emit, kernel, axis, phase)
    return convolution(
        emit,
        op.source,
        kernel,
        padding=[(phase.low, phase.high) for phase in known],
        dilations=[phase.dilation for phase in known],
        groups=op.groups,
        dims=op.dims,
    )


def _nothing(op: array.Convolution, emit: Builder) -> Value:
    """What is made where every element of the kernel meets a gap."""
    shape = list(tensor_type(op.result).shape)
    for axis, spread in zip(op.layout.spatial, op.source_dilations, strict=True):
        shape[axis] = ceil_divide(shape[axis], spread)
    return fill(emit, 0, tensor_type(op.result).with_shape(tuple(shape)))


def _every(emit: Builder, kernel: Value, axis: int, phase: _Phase) -> Value:
    """The elements of the kernel that belong to a phase, along one axis."""
    shape = tensor_type(kernel).shape
    starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], steps[axis] = phase.first, phase.step
    limits[axis] = phase.first + (phase.taps - 1) * phase.step + 1
    return emit(array.Slice(kernel, tuple(starts), tuple(limits), tuple(steps)))


def _in_turns(emit: Builder, parts: Sequence[Value], axis: int, length: Size) -> Value:
    """The parts interleaved along an axis, cut to `length` elements."""
    if len(parts) == 1:
        return parts[0]
    shape = tensor_type(parts[0]).shape
    apart = [reshape(emit, part, _with_one(shape, axis + 1)) for part in parts]
    whole = emit(array.Concatenate(apart, axis + 1))
    merged = (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :])
    return slice_axis(emit, reshape(emit, whole, merged), axis, 0, length)
