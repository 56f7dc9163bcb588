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
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.step import Importer, NodeResults, Step
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, maximum, minimum

LAYOUTS = {3: "ncw", 4: "nchw", 5: "ncdhw"}


def _layout(step: Step, x: Value) -> str:
    rank = array.tensor_type(x).rank
    found = LAYOUTS.get(rank)
    if found is None:
        raise step.unsupported(f"takes tensors of 3 to 5 axes, found {rank}")
    return found


def _numbers(step: Step, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    """A list with one number for each spatial axis."""
    found = step.list(name) or (default,) * count
    if len(found) != count or min(found) < 0:
        raise step.wrong(f"has {name} {list(found)} for {count} spatial axes")
    return found


def _window(step: Step, spatial: Shape) -> tuple[int, ...]:
    window = step.list("kernel_shape")
    if window is None or len(window) != len(spatial):
        raise step.wrong(f"needs a kernel_shape of {len(spatial)} numbers")
    return window


def _padding(
    step: Step,
    spatial: Shape,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Padding:
    """The padding that `pads` or `auto_pad` state."""
    count = len(spatial)
    auto = step.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = _numbers(step, "pads", 2 * count, 0)
        return tuple(zip(pads[:count], pads[count:], strict=True))
    if auto == "VALID":
        return ((0, 0),) * count
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise step.wrong(f"has the unknown auto_pad {auto!r}")
    found: list[tuple[Size, Size]] = []
    for size, extent, stride, dilation in zip(spatial, window, strides, dilations, strict=True):
        places = (size + stride - 1) // stride
        missing = (places - 1) * stride + (extent - 1) * dilation + 1 - size
        whole = maximum(missing, 0, step.regions.bounds)
        less = whole // 2
        more = whole - less
        found.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return tuple(found)


def _extents(step: Step, window: Shape, count: int) -> list[int]:
    """The spatial sizes of a kernel, as numbers."""
    if len(window) != count:
        raise step.wrong(f"has a kernel of {len(window)} spatial axes for a picture of {count}")
    found = [size for size in window if isinstance(size, int)]
    if len(found) < count:
        text = ", ".join(map(str, window))
        raise step.unsupported(
            f"with a kernel of [{text}], whose sizes are not all numbers, is not imported"
        )
    return found


def _conv(step: Step) -> NodeResults:
    x, kernel, bias = step.value(0), step.value(1), step.optional(2)
    dims = _layout(step, x)
    spatial, window = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape[2:]
    extents, count = _extents(step, window, len(spatial)), len(spatial)
    strides, dilations = _numbers(step, "strides", count), _numbers(step, "dilations", count)
    padding = _padding(step, spatial, extents, strides, dilations)
    extra = () if bias is None else (bias,)
    groups = step.integer("group", 1)
    return step.emit(
        nn.Conv(x, kernel, extra, strides, padding, dilations, (1,) * count, groups, dims)
    )


def _conv_transpose(step: Step) -> NodeResults:
    """The derivative of a convolution: its source is spread by the strides, its kernel turned."""
    x, kernel, bias = step.value(0), step.value(1), step.optional(2)
    dims = _layout(step, x)
    spatial, shape = array.tensor_type(x).shape[2:], array.tensor_type(kernel).shape
    count, groups = len(spatial), step.integer("group", 1)
    window = _extents(step, shape[2:], count)
    if groups < 1:
        raise step.wrong(f"has {groups} groups")
    strides, dilations = _numbers(step, "strides", count), _numbers(step, "dilations", count)
    extra = _numbers(step, "output_padding", count, 0)
    pads = _transposed_pads(step, spatial, window, strides, dilations, extra)
    padding: list[tuple[Size, Size]] = []
    for (low, high), extent, dilation, more in zip(pads, window, dilations, extra, strict=True):
        reach = (extent - 1) * dilation
        padding.append((reach - low, reach - high + more))
    turned = step.emit(array.Reverse(kernel, tuple(range(2, count + 2))))
    # [g * i, o, ...] becomes [g * o, i, ...].
    inner, outer = shape[0] // groups, shape[1]
    split = reshape(step.emit, turned, (groups, inner, outer, *window))
    swapped = transpose(step.emit, split, (0, 2, 1, *range(3, count + 3)))
    filters = reshape(step.emit, swapped, (groups * outer, inner, *window))
    return step.emit(
        nn.Conv(
            x,
            filters,
            () if bias is None else (bias,),
            (1,) * count,
            tuple(padding),
            dilations,
            strides,
            groups,
            dims,
        )
    )


def _transposed_pads(
    step: Step,
    spatial: Shape,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
) -> Padding:
    """The elements cut off at each end of the result."""
    count, auto = len(spatial), step.text("auto_pad", "NOTSET")
    wanted = step.list("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        return _padding(step, spatial, window, strides, dilations)
    found: list[tuple[Size, Size]] = []
    for axis, size in enumerate(spatial):
        whole = strides[axis] * (size - 1) + extra[axis] + (window[axis] - 1) * dilations[axis] + 1
        target = size * strides[axis] if wanted is None else wanted[-count:][axis]
        cut = whole - target
        half = cut // 2
        upper = auto == "SAME_UPPER"
        found.append((half, cut - half) if upper else (cut - half, half))
    return tuple(found)


# Pooling ------------------------------------------------------------------------------------------


def _pool_padding(
    step: Step, x: Value, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Padding, tuple[Size, ...]]:
    """The padding with what `ceil_mode` adds, which is also given alone."""
    spatial = array.tensor_type(x).shape[2:]
    padding = _padding(step, spatial, window, strides, dilations)
    if not step.flag("ceil_mode"):
        return padding, (0,) * len(spatial)
    added: list[Size] = []
    bounds = step.regions.bounds
    for size, (low, high), extent, stride, dilation in zip(
        spatial, padding, window, strides, dilations, strict=True
    ):
        room = size + low + high - (extent - 1) * dilation - 1
        places = (room + stride - 1) // stride + 1
        more = (places - 1) * stride - room
        if not (isinstance(high, int) and stride + high <= (extent - 1) * dilation + 1):
            # A last window that would lie wholly in the padding at the end is left out.
            fewer = minimum(places, (size + low - 1) // stride + 1, bounds)
            more = maximum((fewer - 1) * stride - room, 0, bounds)
        added.append(0 if is_negative(more) else more)
    whole = [(low, high + more) for (low, high), more in zip(padding, added, strict=True)]
    return tuple(whole), tuple(added)


def _max_pool(step: Step) -> NodeResults:
    if len(list(filter(None, step.node.outputs))) > 1:
        raise step.unsupported("with a second result, the places, is not imported")
    x = step.value(0)
    dims = _layout(step, x)
    window = _window(step, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = _numbers(step, "strides", count), _numbers(step, "dilations", count)
    padding, _ = _pool_padding(step, x, window, strides, dilations)
    return nn.max_pool(
        step.emit, x, window, strides=strides, padding=padding, dilations=dilations, dims=dims
    )


def _average_pool(step: Step) -> NodeResults:
    x = step.value(0)
    dims = _layout(step, x)
    window = _window(step, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = _numbers(step, "strides", count), _numbers(step, "dilations", count)
    padding, added = _pool_padding(step, x, window, strides, dilations)
    counted = step.flag("count_include_pad")
    if counted and any(added):
        # The declared padding counts and is made real; what ceil_mode adds does not.
        low = (0, 0, *[pair[0] for pair in padding])
        high = (0, 0, *[pair[1] - more for pair, more in zip(padding, added, strict=True)])
        zero = array.fill(step.emit, 0, array.tensor_type(x).with_shape(()))
        x = step.emit(array.Pad(x, zero, low, high, (0,) * len(low)))
        padding, counted = tuple([(0, more) for more in added]), False
    return nn.avg_pool(
        step.emit,
        x,
        window,
        strides=strides,
        padding=padding,
        dilations=dilations,
        dims=dims,
        count_padding=counted,
    )


def _lp_pool(step: Step) -> NodeResults:
    """The norm of each window: the root of the sum of powers, of which padding adds none."""
    x, emit, p = step.value(0), step.emit, step.integer("p", 2)
    window = _window(step, array.tensor_type(x).shape[2:])
    count = len(window)
    strides, dilations = _numbers(step, "strides", count), _numbers(step, "dilations", count)
    padding, _ = _pool_padding(step, x, window, strides, dilations)
    size = emit(array.Abs(x))
    averaged = nn.avg_pool(
        emit,
        emit(array.Power(size, array.constant_like(emit, p, x))),
        window,
        strides=strides,
        padding=padding,
        dilations=dilations,
        dims=_layout(step, x),
        count_padding=True,
    )
    summed = times(emit, averaged, math.prod(window))
    return emit(array.Power(summed, array.constant_like(emit, 1 / p, summed)))


def _global_average_pool(step: Step) -> NodeResults:
    x = step.value(0)
    mean = nn.global_avg_pool(step.emit, x, dims=_layout(step, x))
    return _with_ones(step, mean, x)


def _global_max_pool(step: Step) -> NodeResults:
    x = step.value(0)
    return _with_ones(step, nn.global_max_pool(step.emit, x, dims=_layout(step, x)), x)


def _with_ones(step: Step, pooled: Value, x: Value) -> Value:
    """A result for each channel with spatial axes of size 1."""
    ones = (1,) * (array.tensor_type(x).rank - 2)
    return reshape(step.emit, pooled, (*array.tensor_type(pooled).shape, *ones))


# Normalising --------------------------------------------------------------------------------------


def _batch_normalization(step: Step) -> NodeResults:
    trains = step.flag("training_mode") or (step.opset < 7 and not step.flag("is_test"))
    if trains or len(list(filter(None, step.node.outputs))) > 1:
        raise step.unsupported("in training mode is not imported")
    if not step.flag("spatial", default=True):
        raise step.unsupported("with spatial=0 is not imported")
    x, *parameters = [step.value(index) for index in range(5)]
    dtype = array.tensor_type(x).dtype
    scale, shift, middle, variance = [in_dtype(step.emit, part, dtype) for part in parameters]
    eps = step.number("epsilon", 1e-5)
    return nn.batch_norm(step.emit, x, scale, shift, middle, variance, axis=1, eps=eps)


def _instance_normalization(step: Step) -> NodeResults:
    x = step.value(0)
    channels = array.tensor_type(x).shape[1]
    if not isinstance(channels, int):
        raise step.unsupported("takes pictures whose number of channels is a number")
    eps = step.number("epsilon", 1e-5)
    scale, shift = step.value(1), step.value(2)
    return nn.group_norm(step.emit, x, scale, shift, groups=channels, axis=1, eps=eps)


def _group_normalization(step: Step) -> NodeResults:
    """Before opset 21 there is a scale and a shift for each group, since then for each channel."""
    x, groups, emit = step.value(0), step.integer("num_groups"), step.emit
    channels = array.tensor_type(x).shape[1]
    if not isinstance(channels, int):
        raise step.unsupported("takes pictures whose number of channels is a number")
    if groups < 1 or channels % groups:
        raise step.wrong(f"makes {groups} groups of {channels} channels")
    rows = [step.value(1), step.value(2)]
    if step.opset < 21:
        each = (groups, channels // groups)
        rows = [reshape(emit, emit(array.Broadcast(row, each, (0,))), (channels,)) for row in rows]
    eps = step.number("epsilon", 1e-5)
    return nn.group_norm(emit, x, rows[0], rows[1], groups=groups, axis=1, eps=eps)


def _lrn(step: Step) -> NodeResults:
    """`x / (bias + alpha / size * sum of squares of the channels around) ** beta`."""
    x, size = step.value(0), step.integer("size")
    rank = array.tensor_type(x).rank
    if size < 1 or rank < 2:
        raise step.wrong(f"takes a size of at least 1 and two axes, found {size} and {rank}")
    return nn.local_response_norm(
        step.emit,
        x,
        size=size,
        alpha=step.number("alpha", 1e-4) / size,
        beta=step.number("beta", 0.75),
        bias=step.number("bias", 1.0),
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
