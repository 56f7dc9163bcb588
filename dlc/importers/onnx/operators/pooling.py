"""Pooling over pictures, and back: the mean, the largest or the norm of each window.

Pictures of ONNX have their channels second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import array, nn, numeric
from dlc.dialects.array import Padding
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.windows import layout_of, per_axis, window_padding
from dlc.ir.bounded import larger, smaller
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size, product
from dlc.ir.types import I64, TensorType


def _window(context: NodeContext, spatial: Shape) -> tuple[int, ...]:
    window = context.list("kernel_shape")
    if window is None or len(window) != len(spatial):
        raise context.wrong(f"needs a kernel_shape of {len(spatial)} numbers")
    return window


def _pool_padding(
    context: NodeContext,
    x: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Padding, tuple[Size, ...]]:
    """The padding with what `ceil_mode` adds, which is also given alone."""
    spatial = array.tensor_type(x).shape[2:]
    padding = window_padding(context, spatial, window, strides, dilations)
    if not context.flag("ceil_mode"):
        return padding, (0,) * len(spatial)
    added: list[Size] = []
    bounds = context.regions.bounds
    for size, (low, high), extent, stride, dilation in zip(
        spatial, padding, window, strides, dilations, strict=True
    ):
        room = size + low + high - (extent - 1) * dilation - 1
        count = (room + stride - 1) // stride + 1
        more = (count - 1) * stride - room
        if not (isinstance(high, int) and stride + high <= (extent - 1) * dilation + 1):
            # A last window that would lie wholly in the padding at the end is left out.
            fewer = smaller(count, (size + low - 1) // stride + 1, bounds)
            more = larger((fewer - 1) * stride - room, 0, bounds)
        added.append(0 if is_negative(more) else more)
    whole = [(low, high + more) for (low, high), more in zip(padding, added, strict=True)]
    return tuple(whole), tuple(added)


def _max_pool(context: NodeContext) -> NodeResults:
    """The largest elements, and where they stand if that is asked for."""
    x, emit = context.value(0), context.emit
    dims = layout_of(context, x)
    window = _window(context, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = per_axis(context, "strides", count), per_axis(context, "dilations", count)
    padding, _ = _pool_padding(context, x, window, strides, dilations)
    pooled = nn.max_pool(
        emit, x, window, strides=strides, padding=padding, dilations=dilations, dims=dims
    )
    if len(list(filter(None, context.node.outputs))) < 2:
        return pooled
    index = nn.argmax_pool(
        emit, x, window, strides=strides, padding=padding, dilations=dilations, dims=dims
    )
    by_columns = context.flag("storage_order")
    return pooled, _by_columns(emit, index, array.tensor_type(x).shape) if by_columns else index


def _by_columns(emit: Builder, index: Value, shape: Shape) -> Value:
    """Row-major indices of a picture as those of one whose spatial axes are stored in reverse."""
    spatial = shape[2:]
    whole = numbers(emit, product(spatial), array.tensor_type(index))
    rest = emit(array.Remainder(index, whole))
    found = emit(array.Subtract(index, rest))
    stride: Size = 1
    for axis, size in enumerate(spatial):
        behind = numbers(emit, product(spatial[axis + 1 :]), array.tensor_type(index))
        place = emit(array.FloorDivide(rest, behind))
        rest = emit(array.Remainder(rest, behind))
        step = numbers(emit, stride, array.tensor_type(index))
        found = emit(array.Add(found, emit(array.Multiply(place, step))))
        stride = stride * size
    return found


def _max_unpool(context: NodeContext) -> NodeResults:
    """Each element at its index of a picture of zeros, which is then made as large as is asked for."""
    x, emit, type = context.value(0), context.emit, context.type(0)
    window = _window(context, type.shape[2:])
    count = len(window)
    strides, pads = per_axis(context, "strides", count), per_axis(context, "pads", 2 * count, 0)
    spatial = [
        (size - 1) * stride - low - high + extent
        for size, stride, low, high, extent in zip(
            type.shape[2:], strides, pads[:count], pads[count:], window, strict=True
        )
    ]
    shape: Shape = (*type.shape[:2], *spatial)
    zeros = array.fill(emit, 0, type.with_shape((product(shape),)))
    index = reshape(emit, context.value(1), (type.size,))
    flat = reshape(emit, x, (type.size,))
    found = reshape(emit, emit(array.Scatter(zeros, flat, (index,), (0,))), shape)
    if context.operand(2) is None:
        return found
    wanted = context.sizes(2)
    more = [new - old for new, old in zip(wanted, shape, strict=True)]
    if any(is_negative(size) for size in more):
        raise context.wrong(f"makes the shape {list(shape)}, more than {wanted}")
    still = (0,) * type.rank
    zero = array.fill(emit, 0, type.with_shape(()))
    return emit(array.Pad(found, zero, still, tuple(more), still))


def _max_roi_pool(context: NodeContext) -> NodeResults:
    """The largest element of each bin of each region, `[batch, x0, y0, x1, y1]`; 0 of an empty one."""
    emit, x = context.emit, context.value(0)
    type, regions = array.tensor_type(x), context.type(1)
    bins = context.list("pooled_shape") or ()
    if type.rank != 4 or len(bins) != 2 or regions.shape[1:] != (5,):
        raise context.wrong(f"pools the regions {regions.text} of {type.text} to {list(bins)}")
    count = regions.shape[0]
    batch = in_dtype(emit, _column(context, 0), I64)
    found = emit(array.Gather(x, (batch,), (0,)))
    lowest = numeric.lowest(type.dtype)
    # Over the columns of each bin, then over its rows: [r, c, h, w], [r, c, h, bw], [r, c, bh, bw].
    for k in (1, 0):
        inside = _in_bins(context, k, bins[k], type.shape[2 + k])
        shape = array.tensor_type(found).shape
        wide: Shape = (*shape[:3], bins[k], shape[3]) if k else (*shape[:2], bins[k], *shape[2:])
        source_axes, mask_axes = ((0, 1, 2, 4), (0, 3, 4)) if k else ((0, 1, 3, 4), (0, 2, 3))
        mask = emit(array.Broadcast(inside, wide, mask_axes))
        source = emit(array.Broadcast(found, wide, source_axes))
        floor = array.fill(emit, lowest, type.with_shape(wide))
        found = emit(array.ReduceMax(emit(array.Select(mask, source, floor)), (4 if k else 3,)))
    is_full = [
        emit(array.ReduceOr(_in_bins(context, k, bins[k], type.shape[2 + k]), (2,))) for k in (0, 1)
    ]
    shape = (count, type.shape[1], *bins)
    rows, columns = (emit(array.Broadcast(one, shape, (0, 2 + k))) for k, one in enumerate(is_full))
    zero = array.constant_like(emit, 0, found)
    return emit(array.Select(emit(array.And(rows, columns)), found, zero))


def _column(context: NodeContext, k: int) -> Value:
    """A number of each region."""
    regions = context.value(1)
    part = array.slice_axis(context.emit, regions, 1, k, k + 1)
    return reshape(context.emit, part, array.tensor_type(regions).shape[:1])


def _in_bins(context: NodeContext, k: int, bins: int, size: Size) -> Value:
    """Whether an element of axis `k`, 0 for height, is in a bin of a region: [region, bin, element]."""
    emit, scale = context.emit, context.number("spatial_scale", 1.0)
    start, end = (_rounded(emit, times(emit, _column(context, 2 - k + n), scale)) for n in (0, 2))
    extent = plus(emit, emit(array.Subtract(end, start)), 1)
    extent = emit(array.Maximum(extent, array.constant_like(emit, 1, extent)))
    step = emit(array.Divide(extent, array.constant_like(emit, bins, extent)))
    whole = TensorType(
        array.tensor_type(start).dtype, (*array.tensor_type(start).shape, bins, size)
    )
    step, start = (emit(array.Broadcast(one, whole.shape, (0,))) for one in (step, start))
    bin = array.iota(emit, whole, 1, whole.dtype)
    low = emit(array.Floor(emit(array.Multiply(bin, step))))
    high = emit(array.Ceil(emit(array.Multiply(plus(emit, bin, 1), step))))
    place = emit(array.Subtract(array.iota(emit, whole, 2, whole.dtype), start))
    return emit(
        array.And(emit(array.Compare(place, low, "ge")), emit(array.Compare(place, high, "lt")))
    )


def _rounded(emit: Builder, x: Value) -> Value:
    """The nearest whole numbers, halves away from 0."""
    away = emit(array.Floor(plus(emit, emit(array.Abs(x)), 0.5)))
    return emit(array.Multiply(emit(array.Sign(x)), away))


def _average_pool(context: NodeContext) -> NodeResults:
    return average_pool(context, context.value(0))


def average_pool(context: NodeContext, x: Value) -> Value:
    """The mean of each window that the attributes of a node describe."""
    dims = layout_of(context, x)
    window = _window(context, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = (
        per_axis(context, "strides", count),
        per_axis(context, "dilations", count),
    )
    padding, added = _pool_padding(context, x, window, strides, dilations)
    counted = context.flag("count_include_pad")
    if counted and any(added):
        # The declared padding counts and is made real; what ceil_mode adds does not.
        low = (0, 0, *[pair[0] for pair in padding])
        high = (0, 0, *[pair[1] - more for pair, more in zip(padding, added, strict=True)])
        zero = array.fill(context.emit, 0, array.tensor_type(x).with_shape(()))
        x = context.emit(array.Pad(x, zero, low, high, (0,) * len(low)))
        padding, counted = tuple([(0, more) for more in added]), False
    return nn.avg_pool(
        context.emit,
        x,
        window,
        strides=strides,
        padding=padding,
        dilations=dilations,
        dims=dims,
        count_padding=counted,
    )


def _lp_pool(context: NodeContext) -> NodeResults:
    """The norm of each window: the root of the sum of powers, of which padding adds none."""
    x, emit, p = context.value(0), context.emit, context.integer("p", 2)
    window = _window(context, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = (
        per_axis(context, "strides", count),
        per_axis(context, "dilations", count),
    )
    padding, _ = _pool_padding(context, x, window, strides, dilations)
    size = emit(array.Abs(x))
    averaged = nn.avg_pool(
        emit,
        emit(array.Power(size, array.constant_like(emit, p, x))),
        window,
        strides=strides,
        padding=padding,
        dilations=dilations,
        dims=layout_of(context, x),
        count_padding=True,
    )
    summed = times(emit, averaged, math.prod(window))
    return emit(array.Power(summed, array.constant_like(emit, 1 / p, summed)))


def _global_average_pool(context: NodeContext) -> NodeResults:
    x = context.value(0)
    mean = nn.global_avg_pool(context.emit, x, dims=layout_of(context, x))
    return _with_ones(context, mean, x)


def _global_max_pool(context: NodeContext) -> NodeResults:
    x = context.value(0)
    return _with_ones(context, nn.global_max_pool(context.emit, x, dims=layout_of(context, x)), x)


def _with_ones(context: NodeContext, pooled: Value, x: Value) -> Value:
    """A result for each channel with spatial axes of size 1."""
    ones = (1,) * (array.tensor_type(x).rank - 2)
    return reshape(context.emit, pooled, (*array.tensor_type(pooled).shape, *ones))


IMPORTERS: dict[str, Importer] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
}
