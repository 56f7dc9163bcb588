"""`Resize` to sizes that are computed when the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.delayed_tensor import DelayedTensor, Extent, Undecided
from dlc.importers.onnx.node_context import NodeContext, NodeResults
from dlc.importers.onnx.operators.extents import at_least_one, clamped, everywhere, listed
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape
from dlc.ir.intervals import interval
from dlc.ir.types import DType, wide

COORDINATES = ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel")


@dataclass(frozen=True, slots=True)
class _Tap:
    """The index of an element that is read along an axis, and its weight; None for 1."""

    index: Value
    weight: Value | None


def resized(context: NodeContext) -> NodeResults:
    """Each element from those around its position in the source, as `operators.resize` does."""
    context.value(0)  # whose sizes must be known
    type = context.type(0)
    mode = context.text("mode", "nearest")
    coordinates = context.text("coordinate_transformation_mode", "half_pixel")
    refused = context.flag("antialias") or context.flag("exclude_outside")
    stretches = context.text("keep_aspect_ratio_policy", "stretch") == "stretch"
    empty = any((interval(size, context.regions.bounds)[0] or 0) < 1 for size in type.shape)
    if coordinates not in COORDINATES or refused or not stretches or empty:
        raise Undecided(context, 3)
    if mode != "nearest" and not type.dtype.is_float:
        raise context.unsupported(f"in mode {mode!r} of {type.dtype.name} is not imported")
    x, axes = context.value(0), context.list("axes")
    named = [context.axis(axis, type.rank) for axis in axes or range(type.rank)]
    sizes: list[Extent] = list(type.shape)
    for axis, size in zip(named, listed(context, 3), strict=True):
        sizes[axis] = size
    moved = [axis for axis in named if sizes[axis] != type.shape[axis]]

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        taps = [
            _taps(context.emitting(emit), index, type.shape[axis], sizes[axis], coordinates)
            if axis in moved
            else [_Tap(clamped(emit, index, type.shape[axis]), None)]
            for axis, index in enumerate(indices)
        ]
        return in_dtype(emit, _weighted(emit, x, taps), type.dtype)

    return DelayedTensor(type.dtype, tuple(sizes), element, context, 3)


def _weighted(emit: Builder, x: Value, taps: Sequence[Sequence[_Tap]]) -> Value:
    """The sum of the elements at all combinations of taps, one of each axis, times their weights."""
    total: Value | None = None
    axes = tuple(range(len(taps)))
    for each in product(*taps):
        part = emit(array.Gather(x, tuple([tap.index for tap in each]), axes))
        for tap in each:
            if tap.weight is not None:
                part = in_dtype(emit, part, array.tensor_type(tap.weight).dtype)
                part = emit(array.Multiply(part, tap.weight))
        total = part if total is None else emit(array.Add(total, part))
    assert total is not None
    return total


def _taps(
    context: NodeContext, index: Value, old: Extent, new: Extent, coordinates: str
) -> list[_Tap]:
    """What is read along an axis of `old` elements for places in one of `new`."""
    emit, mode = context.emit, context.text("mode", "nearest")
    position = _position(emit, index, old, new, coordinates)
    if mode == "nearest":
        rounding = context.text("nearest_mode", "round_prefer_floor")
        return [_Tap(clamped(emit, position.rounded(emit, rounding), old), None)]
    kind = nn.linear_filter
    if mode == "cubic":
        kind = nn.cubic_filter(context.number("cubic_coeff_a", -0.75))
    below, part = position.rounded(emit, "floor"), position.part(emit, wide(_dtype(context)))
    taps: list[_Tap] = []
    for step in range(1 - kind.reach, 1 + kind.reach):
        weight = kind.weight(emit, emit(array.Abs(plus(emit, part, -step))))
        taps.append(_Tap(clamped(emit, plus(emit, below, step), old), weight))
    return taps


def _dtype(context: NodeContext) -> DType:
    return context.type(0).dtype


def _position(
    emit: Builder, index: Value, old: Extent, new: Extent, coordinates: str
) -> nn.SourcePosition:
    """Where places of an axis of `new` elements lie in one of `old`, by the conventions of `nn.resize`."""
    source, target = everywhere(emit, old, index), at_least_one(emit, new, index)
    if coordinates == "asymmetric":
        return nn.SourcePosition(emit(array.Multiply(index, source)), target)
    if coordinates == "align_corners":
        one = array.constant_like(emit, 1, target)
        last = emit(array.Maximum(plus(emit, target, -1), one))
        return nn.SourcePosition(emit(array.Multiply(index, plus(emit, source, -1))), last)
    middle = plus(emit, times(emit, index, 2), 1)
    over = emit(array.Subtract(emit(array.Multiply(middle, source)), target))
    if coordinates == "pytorch_half_pixel":
        one = array.constant_like(emit, 1, target)
        over = emit(array.Multiply(over, emit(array.Minimum(plus(emit, target, -1), one))))
    return nn.SourcePosition(over, times(emit, target, 2))
