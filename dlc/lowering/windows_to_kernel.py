"""Windows that move over tensors as kernels: pooling, convolution by its formula, places of extremes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel, scalar
from dlc.dialects.array.convolution import Layout
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size
from dlc.ir.types import I32
from dlc.lowering.array_to_kernel import lowers
from dlc.lowering.formula import (
    between,
    both,
    choose,
    convert,
    fold,
    generic,
    load,
    number,
    plus,
    size,
    times,
    wide,
)
from dlc.lowering.pieces_to_kernel import clamp

COMBINE = {"max": "maximum", "min": "minimum", "sum": "add"}


@lowers(array.ReduceWindow)
def _reduce_window(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.ReduceWindow)
    source, result = tensor_type(op.source), tensor_type(op.result)
    combine = COMBINE[op.function]
    moving = [axis for axis in range(source.rank) if op.window[axis] > 1]
    extents = tuple([op.window[axis] for axis in moving])

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        def element(deep: Builder, folded: list[Value]) -> Value:
            steps = dict(zip(moving, folded, strict=True))
            conditions: list[Value] = []
            places: list[Value] = []
            for axis, index in enumerate(indices):
                low, high = op.padding[axis]
                place = times(deep, index, op.strides[axis])
                if axis in steps:
                    step = times(deep, steps[axis], op.dilations[axis])
                    place = deep(scalar.Add(place, step))
                place = plus(deep, place, low * -1)
                if (low, high) != (0, 0):
                    conditions.append(between(deep, place, 0, source.shape[axis]))
                    place = clamp(deep, place, source.shape[axis])
                places.append(place)
            value = load(deep, arrays[0], places)
            neutral = number(deep, kernel.identity(combine, wide(source.dtype)), wide(source.dtype))
            return choose(deep, both(deep, conditions), value, neutral)

        return convert(inner, fold(inner, extents, combine, element), result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


@lowers(array.Convolution)
def _convolution(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Convolution)
    source, weights, result = (tensor_type(v) for v in (op.source, op.kernel, op.result))
    layout = op.layout
    channels = weights.shape[layout.kernel_in]
    spatial = [weights.shape[axis] for axis in layout.kernel_spatial]
    extents = (*spatial, channels)
    outputs = weights.shape[layout.kernel_out]

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        picture, kernels = arrays
        out = indices[layout.channel]
        group = None
        if op.groups > 1:
            each = size(inner, outputs // op.groups)
            group = inner(scalar.RawDivide(out, each))

        def element(deep: Builder, folded: list[Value]) -> Value:
            *steps, channel = folded
            places: list[Value | None] = [None] * source.rank
            places[0] = indices[0]
            places[layout.channel] = (
                channel
                if group is None
                else deep(scalar.Add(times(deep, group, channels), channel))
            )
            conditions: list[Value] = []
            for k, axis in enumerate(layout.spatial):
                place, inside = _tap(deep, op, k, indices[axis], steps[k], source.shape[axis])
                places[axis] = place
                conditions += inside
            x = load(deep, picture, [place for place in places if place is not None])
            w = load(deep, kernels, _kernel_places(layout, steps, channel, out))
            product = deep(scalar.Multiply(x, w))
            zero = number(deep, 0, wide(source.dtype))
            return choose(deep, both(deep, conditions), product, zero)

        return convert(inner, fold(inner, extents, "add", element), result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


def _tap(
    emit: Builder, op: array.Convolution, k: int, index: Value, step: Value, extent: Size
) -> tuple[Value, list[Value]]:
    """Where one element of the kernel meets the source along a spatial axis, and when it does."""
    low, high = op.padding[k]
    spread = op.source_dilations[k]
    moved = times(emit, index, op.strides[k])
    place = emit(scalar.Add(moved, times(emit, step, op.dilations[k])))
    place = plus(emit, place, low * -1)
    if spread == 1 and (low, high) == (0, 0):
        return place, []
    conditions = [between(emit, place, 0, (extent - 1) * spread + 1)]
    if spread > 1:
        whole = emit(scalar.RawDivide(place, size(emit, spread)))
        conditions.append(emit(scalar.Compare(times(emit, whole, spread), place, "eq")))
        place = whole
    return clamp(emit, place, extent), conditions


def _kernel_places(
    layout: Layout, steps: Sequence[Value], channel: Value, out: Value
) -> list[Value]:
    by_axis = dict(zip(layout.kernel_spatial, steps, strict=True))
    by_axis |= {layout.kernel_in: channel, layout.kernel_out: out}
    return [by_axis[axis] for axis in range(layout.rank)]


@lowers(array.ArgMax, array.ArgMin)
def _arg_extreme(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.ArgMax | array.ArgMin)
    source, result = tensor_type(op.source), tensor_type(op.result)
    combine = "maximum" if isinstance(op, array.ArgMax) else "minimum"
    extent = source.shape[op.axis]

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        def at(deep: Builder, k: Value) -> Value:
            return load(deep, arrays[0], [*indices[: op.axis], k, *indices[op.axis :]])

        best = fold(inner, (extent,), combine, lambda deep, folded: at(deep, folded[0]))

        def place(deep: Builder, folded: list[Value]) -> Value:
            value = at(deep, folded[0])
            chosen = deep(scalar.Compare(value, best, "eq"))
            if source.dtype.is_float:  # a NaN wins, and equals nothing
                is_nan = deep(scalar.Compare(value, value, "ne"))
                chosen = deep(scalar.Or(chosen, is_nan))
            here = convert(deep, folded[0], I32)
            return deep(scalar.Select(chosen, here, convert(deep, size(deep, extent), I32)))

        return fold(inner, (extent,), "minimum", place)

    assert result.dtype is I32
    return (generic(emit, op.operands, result.shape, formula),)
