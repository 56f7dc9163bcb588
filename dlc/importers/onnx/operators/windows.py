"""Operators that move a window over pictures: convolutions, and normalising over channels.

Pictures of ONNX have their channels second; a later pass chooses another layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import Padding
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, mean, spread, widened
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.transposed_convolution import transposed_convolution
from dlc.ir.bounded import larger
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I64, TensorType

LAYOUTS = {3: "ncw", 4: "nchw", 5: "ncdhw"}


def layout_of(context: NodeContext, x: Value) -> str:
    """The layout of a picture of 1 to 3 spatial axes."""
    rank = array.tensor_type(x).rank
    layout = LAYOUTS.get(rank)
    if layout is None:
        raise context.unsupported(f"takes tensors of 3 to 5 axes, found {rank}")
    return layout


def per_axis(context: NodeContext, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    """A list with one number for each spatial axis."""
    numbers = context.list(name) or (default,) * count
    if len(numbers) != count or min(numbers) < 0:
        raise context.wrong(f"has {name} {list(numbers)} for {count} spatial axes")
    return numbers


def window_padding(
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
        pads = per_axis(context, "pads", 2 * count, 0)
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
    return convolution(context, context.value(0), context.value(1), context.optional(2))


def convolution(context: NodeContext, x: Value, kernel: Value, bias: Value | None) -> Value:
    """The convolution that the attributes of a node describe, in any dtype."""
    dims = layout_of(context, x)
    spatial, window = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape[2:]
    extents, count = _extents(context, window, len(spatial)), len(spatial)
    strides, dilations = (
        per_axis(context, "strides", count),
        per_axis(context, "dilations", count),
    )
    padding = window_padding(context, spatial, extents, strides, dilations)
    extra = () if bias is None else (bias,)
    groups = context.integer("group", 1)
    return context.emit(
        nn.Conv(x, kernel, extra, strides, padding, dilations, (1,) * count, groups, dims)
    )


def _conv_transpose(context: NodeContext) -> NodeResults:
    x, kernel, bias = context.value(0), context.value(1), context.optional(2)
    dims = layout_of(context, x)
    spatial, shape = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape
    count, groups = len(spatial), context.integer("group", 1)
    window = _extents(context, shape[2:], count)
    if groups < 1:
        raise context.wrong(f"has {groups} groups")
    strides, dilations = (
        per_axis(context, "strides", count),
        per_axis(context, "dilations", count),
    )
    extra = per_axis(context, "output_padding", count, 0)
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
        return window_padding(context, spatial, window, strides, dilations)
    padding: list[tuple[Size, Size]] = []
    for axis, size in enumerate(spatial):
        whole = strides[axis] * (size - 1) + extra[axis] + (window[axis] - 1) * dilations[axis] + 1
        target = size * strides[axis] if output_shape is None else output_shape[-count:][axis]
        cut = whole - target
        half = cut // 2
        upper = auto == "SAME_UPPER"
        padding.append((half, cut - half) if upper else (cut - half, half))
    return tuple(padding)


def _col2im(context: NodeContext) -> NodeResults:
    """The sum of blocks, `[n, c * block, places]`, each put where it was cut out of a picture."""
    emit, type = context.emit, context.type(0)
    image, block = context.integers(1), context.integers(2)
    count = len(image)
    strides, dilations = per_axis(context, "strides", count), per_axis(context, "dilations", count)
    pads = per_axis(context, "pads", 2 * count, 0)
    wide = [size + pads[k] + pads[count + k] for k, size in enumerate(image)]
    places = [
        (size - (extent - 1) * dilation - 1) // stride + 1
        for size, extent, stride, dilation in zip(wide, block, strides, dilations, strict=True)
    ]
    taps = math.prod(block)
    channels = type.shape[1] // taps
    if type.rank != 3 or taps * channels != type.shape[1] or type.shape[2] != math.prod(places):
        raise context.wrong(f"puts {type.text} into blocks of {block} of a picture of {image}")
    apart = (type.shape[0], channels, *block, *places)
    blocks = reshape(emit, context.value(0), apart)
    updates = transpose(emit, blocks, (*range(2, 2 + 2 * count), 0, 1))
    counted = TensorType(I64, (*block, *places))
    indices: list[Value] = []
    for k in range(count):
        tap = times(emit, array.iota(emit, counted, k), dilations[k])
        start = times(emit, array.iota(emit, counted, count + k), strides[k])
        indices.append(emit(array.Add(start, tap)))
    zeros = array.fill(emit, 0, type.with_shape((*wide, type.shape[0], channels)))
    whole = emit(array.Scatter(zeros, updates, tuple(indices), tuple(range(count)), "add"))
    whole = transpose(emit, whole, (count, count + 1, *range(count)))
    low = (0, 0, *pads[:count])
    high = (type.shape[0], channels, *[low + n for low, n in zip(pads, image, strict=False)])
    return emit(array.Slice(whole, low, high, (1,) * len(low)))


# Normalising --------------------------------------------------------------------------------------


def _batch_normalization(context: NodeContext) -> NodeResults:
    if context.opset >= 14 and context.flag("training_mode"):
        return _batch_normalization_in_training(context)
    trains = context.opset < 7 and not context.flag("is_test")
    if trains or len(list(filter(None, context.node.outputs))) > 1:
        raise context.unsupported("in training mode before opset 14 is not imported")
    if not context.flag("spatial", default=True):
        raise context.unsupported("with spatial=0 is not imported")
    x, *parameters = [context.value(index) for index in range(5)]
    dtype = array.tensor_type(x).dtype
    scale, shift, middle, variance = [in_dtype(context.emit, part, dtype) for part in parameters]
    eps = context.number("epsilon", 1e-5)
    return nn.batch_norm(context.emit, x, scale, shift, middle, variance, axis=1, eps=eps)


def _batch_normalization_in_training(context: NodeContext) -> NodeResults:
    """By mean and variance of the batch, which also move the running ones towards them."""
    emit, x = context.emit, context.value(0)
    type = array.tensor_type(x)
    momentum = context.number("momentum", 0.9)
    wide_x = widened(emit, x)
    axes = tuple([axis for axis in range(type.rank) if axis != 1])
    middle = mean(emit, wide_x, axes)
    apart = emit(array.Subtract(wide_x, spread(emit, middle, wide_x, axes)))
    variance = mean(emit, emit(array.Multiply(apart, apart)), axes)
    dtype = array.tensor_type(wide_x).dtype
    scale, shift = (in_dtype(emit, context.value(index), dtype) for index in (1, 2))
    eps = context.number("epsilon", 1e-5)
    y = nn.batch_norm(emit, wide_x, scale, shift, middle, variance, axis=1, eps=eps)
    running: list[Value] = []
    for index, found in ((3, middle), (4, variance)):
        old = in_dtype(emit, context.value(index), dtype)
        moved = emit(array.Add(times(emit, old, momentum), times(emit, found, 1 - momentum)))
        running.append(in_dtype(emit, moved, context.type(index).dtype))
    return in_dtype(emit, y, type.dtype), *running


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
    "BatchNormalization": _batch_normalization,
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
}
