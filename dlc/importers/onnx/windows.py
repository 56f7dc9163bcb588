"""Operators that move a window over pictures: convolutions, pooling, normalising over channels.

Pictures of ONNX have their channels second; a later pass chooses another layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import Padding
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.transposed_convolution import transposed_convolution
from dlc.ir.bounded import larger, smaller
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size

LAYOUTS = {3: "ncw", 4: "nchw", 5: "ncdhw"}


def _layout(context: NodeContext, x: Value) -> str:
    rank = array.tensor_type(x).rank
    layout = LAYOUTS.get(rank)
    if layout is None:
        raise context.unsupported(f"takes tensors of 3 to 5 axes, found {rank}")
    return layout


def _numbers(context: NodeContext, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    """A list with one number for each spatial axis."""
    numbers = context.list(name) or (default,) * count
    if len(numbers) != count or min(numbers) < 0:
        raise context.wrong(f"has {name} {list(numbers)} for {count} spatial axes")
    return numbers


def _window(context: NodeContext, spatial: Shape) -> tuple[int, ...]:
    window = context.list("kernel_shape")
    if window is None or len(window) != len(spatial):
        raise context.wrong(f"needs a kernel_shape of {len(spatial)} numbers")
    return window


def _padding(
    context: NodeContext,
    spatial: Shape,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Padding:
    """The padding that `pads` or `auto_pad` state."""
    count = len(spatial)
    auto = context.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = _numbers(context, "pads", 2 * count, 0)
        return tuple(zip(pads[:count], pads[count:], strict=True))
    if auto == "VALID":
        return ((0, 0),) * count
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise context.wrong(f"has the unknown auto_pad {auto!r}")
    padding: list[tuple[Size, Size]] = []
    for size, extent, stride, dilation in zip(spatial, window, strides, dilations, strict=True):
        count = (size + stride - 1) // stride
        missing = (count - 1) * stride + (extent - 1) * dilation + 1 - size
        whole = larger(missing, 0, context.regions.bounds)
        less = whole // 2
        more = whole - less
        padding.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return tuple(padding)


def _extents(context: NodeContext, window: Shape, count: int) -> list[int]:
    """The spatial sizes of a kernel, as numbers."""
    if len(window) != count:
        raise context.wrong(f"has a kernel of {len(window)} spatial axes for a picture of {count}")
    extents = [size for size in window if isinstance(size, int)]
    if len(extents) < count:
        text = ", ".join(map(str, window))
        raise context.unsupported(
            f"with a kernel of [{text}], whose sizes are not all numbers, is not imported"
        )
    return extents


def _conv(context: NodeContext) -> NodeResults:
    x, kernel, bias = context.value(0), context.value(1), context.optional(2)
    dims = _layout(context, x)
    spatial, window = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape[2:]
    extents, count = _extents(context, window, len(spatial)), len(spatial)
    strides, dilations = _numbers(context, "strides", count), _numbers(context, "dilations", count)
    padding = _padding(context, spatial, extents, strides, dilations)
    extra = () if bias is None else (bias,)
    groups = context.integer("group", 1)
    return context.emit(
        nn.Conv(x, kernel, extra, strides, padding, dilations, (1,) * count, groups, dims)
    )


def _conv_transpose(context: NodeContext) -> NodeResults:
    x, kernel, bias = context.value(0), context.value(1), context.optional(2)
    dims = _layout(context, x)
    spatial, shape = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape
    count, groups = len(spatial), context.integer("group", 1)
    window = _extents(context, shape[2:], count)
    if groups < 1:
        raise context.wrong(f"has {groups} groups")
    strides, dilations = _numbers(context, "strides", count), _numbers(context, "dilations", count)
    extra = _numbers(context, "output_padding", count, 0)
    pads = _transposed_pads(context, spatial, window, strides, dilations, extra)
    return transposed_convolution(
        context.emit,
        x,
        kernel,
        () if bias is None else (bias,),
        pads,
        extra,
        strides,
        dilations,
        groups,
        dims,
    )


def _transposed_pads(
    context: NodeContext,
    spatial: Shape,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
) -> Padding:
    """The elements cut off at each end of the result."""
    count, auto = len(spatial), context.text("auto_pad", "NOTSET")
    output_shape = context.list("output_shape")
    if output_shape is None and auto in ("NOTSET", "VALID"):
        return _padding(context, spatial, window, strides, dilations)
    padding: list[tuple[Size, Size]] = []
    for axis, size in enumerate(spatial):
        whole = strides[axis] * (size - 1) + extra[axis] + (window[axis] - 1) * dilations[axis] + 1
        target = size * strides[axis] if output_shape is None else output_shape[-count:][axis]
        cut = whole - target
        half = cut // 2
        upper = auto == "SAME_UPPER"
        padding.append((half, cut - half) if upper else (cut - half, half))
    return tuple(padding)


# Pooling ------------------------------------------------------------------------------------------


def _pool_padding(
    context: NodeContext,
    x: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Padding, tuple[Size, ...]]:
    """The padding with what `ceil_mode` adds, which is also given alone."""
    spatial = array.tensor_type(x).shape[2:]
    padding = _padding(context, spatial, window, strides, dilations)
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
    if len(list(filter(None, context.node.outputs))) > 1:
        raise context.unsupported("with a second result, the places, is not imported")
    x = context.value(0)
    dims = _layout(context, x)
    window = _window(context, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = _numbers(context, "strides", count), _numbers(context, "dilations", count)
    padding, _ = _pool_padding(context, x, window, strides, dilations)
    return nn.max_pool(
        context.emit, x, window, strides=strides, padding=padding, dilations=dilations, dims=dims
    )


def _average_pool(context: NodeContext) -> NodeResults:
    x = context.value(0)
    dims = _layout(context, x)
    window = _window(context, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = _numbers(context, "strides", count), _numbers(context, "dilations", count)
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
    strides, dilations = _numbers(context, "strides", count), _numbers(context, "dilations", count)
    padding, _ = _pool_padding(context, x, window, strides, dilations)
    size = emit(array.Abs(x))
    averaged = nn.avg_pool(
        emit,
        emit(array.Power(size, array.constant_like(emit, p, x))),
        window,
        strides=strides,
        padding=padding,
        dilations=dilations,
        dims=_layout(context, x),
        count_padding=True,
    )
    summed = times(emit, averaged, math.prod(window))
    return emit(array.Power(summed, array.constant_like(emit, 1 / p, summed)))


def _global_average_pool(context: NodeContext) -> NodeResults:
    x = context.value(0)
    mean = nn.global_avg_pool(context.emit, x, dims=_layout(context, x))
    return _with_ones(context, mean, x)


def _global_max_pool(context: NodeContext) -> NodeResults:
    x = context.value(0)
    return _with_ones(context, nn.global_max_pool(context.emit, x, dims=_layout(context, x)), x)


def _with_ones(context: NodeContext, pooled: Value, x: Value) -> Value:
    """A result for each channel with spatial axes of size 1."""
    ones = (1,) * (array.tensor_type(x).rank - 2)
    return reshape(context.emit, pooled, (*array.tensor_type(pooled).shape, *ones))


# Normalising --------------------------------------------------------------------------------------


def _batch_normalization(context: NodeContext) -> NodeResults:
    trains = context.flag("training_mode") or (context.opset < 7 and not context.flag("is_test"))
    if trains or len(list(filter(None, context.node.outputs))) > 1:
        raise context.unsupported("in training mode is not imported")
    if not context.flag("spatial", default=True):
        raise context.unsupported("with spatial=0 is not imported")
    x, *parameters = [context.value(index) for index in range(5)]
    dtype = array.tensor_type(x).dtype
    scale, shift, middle, variance = [in_dtype(context.emit, part, dtype) for part in parameters]
    eps = context.number("epsilon", 1e-5)
    return nn.batch_norm(context.emit, x, scale, shift, middle, variance, axis=1, eps=eps)


def _instance_normalization(context: NodeContext) -> NodeResults:
    x = context.value(0)
    channels = array.tensor_type(x).shape[1]
    if not isinstance(channels, int):
        raise context.unsupported("takes pictures whose number of channels is a number")
    eps = context.number("epsilon", 1e-5)
    scale, shift = context.value(1), context.value(2)
    return nn.group_norm(context.emit, x, scale, shift, groups=channels, axis=1, eps=eps)


def _group_normalization(context: NodeContext) -> NodeResults:
    """Before opset 21 there is a scale and a shift for each group, since then for each channel."""
    x, groups, emit = context.value(0), context.integer("num_groups"), context.emit
    channels = array.tensor_type(x).shape[1]
    if not isinstance(channels, int):
        raise context.unsupported("takes pictures whose number of channels is a number")
    if groups < 1 or channels % groups:
        raise context.wrong(f"makes {groups} groups of {channels} channels")
    rows = [context.value(1), context.value(2)]
    if context.opset < 21:
        each = (groups, channels // groups)
        rows = [reshape(emit, emit(array.Broadcast(row, each, (0,))), (channels,)) for row in rows]
    eps = context.number("epsilon", 1e-5)
    return nn.group_norm(emit, x, rows[0], rows[1], groups=groups, axis=1, eps=eps)


def _lrn(context: NodeContext) -> NodeResults:
    """`x / (bias + alpha / size * sum of squares of the channels around) ** beta`."""
    x, size = context.value(0), context.integer("size")
    rank = array.tensor_type(x).rank
    if size < 1 or rank < 2:
        raise context.wrong(f"takes a size of at least 1 and two axes, found {size} and {rank}")
    return nn.local_response_norm(
        context.emit,
        x,
        size=size,
        alpha=context.number("alpha", 1e-4) / size,
        beta=context.number("beta", 0.75),
        bias=context.number("bias", 1.0),
        axis=1,
    )


IMPORTERS: dict[str, Importer] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
