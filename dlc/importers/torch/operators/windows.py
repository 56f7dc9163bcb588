"""Operators that move a window over pictures: convolutions, pooling, resizing.

Pictures of PyTorch have their channels second; a later pass chooses another layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array, nn
from dlc.dialects.array import Padding, tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import elements, inverse, reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype, mean, numbers, widened
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.shapes import taken
from dlc.importers.transposed_convolution import transposed_convolution
from dlc.ir.attributes import Dense
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I64, TensorType

LAYOUTS = {3: "ncw", 4: "nchw", 5: "ncdhw"}


def batched(emit: Builder, x: Value, spatial: int) -> Value:
    """A picture as a batch of one, where it stands alone."""
    shape = tensor_type(x).shape
    return reshape(emit, x, (1, *shape)) if len(shape) == spatial + 1 else x


def _layout(context: NodeContext, x: Value) -> str:
    found = LAYOUTS.get(tensor_type(x).rank)
    if found is None:
        raise context.unsupported(f"takes pictures of 1 to 3 axes, found {tensor_type(x).text}")
    return found


def _convolution(context: NodeContext) -> Operand:
    emit, x, kernel = context.emit, context.value("input"), context.value("weight")
    count = tensor_type(kernel).rank - 2
    x = batched(emit, x, count)
    bias = context.optional("bias")
    biases = () if bias is None else (bias,)
    strides, dilations = context.spatial("stride", count, 1), context.spatial("dilation", count, 1)
    padding: Padding = tuple([(pad, pad) for pad in context.spatial("padding", count, 0)])
    groups, dims = context.integer("groups", 1), _layout(context, x)
    if context.flag("transposed"):
        extra = context.spatial("output_padding", count, 0)
        y = transposed_convolution(
            emit, x, kernel, biases, padding, extra, strides, dilations, groups, dims
        )
    else:
        ones = (1,) * count
        y = emit(nn.Conv(x, kernel, biases, strides, padding, dilations, ones, groups, dims))
    return reshape(emit, y, context.type.shape)


# Pooling ------------------------------------------------------------------------------------------


class Pool:
    """What the pooling operators have in common: windows, strides, padding, and what ceil_mode adds."""

    def __init__(self, context: NodeContext, spatial: int, *, source: str = "self") -> None:
        emit = context.emit
        self.x = batched(emit, context.value(source), spatial)
        self.dims = _layout(context, self.x)
        self.window = context.spatial("kernel_size", spatial)
        self.strides = context.spatial("stride", spatial) or self.window
        self.dilations = context.spatial("dilation", spatial, 1)
        pads = context.spatial("padding", spatial, 0)
        self.padding: Padding = tuple([(pad, pad) for pad in pads])
        added = self._added() if context.flag("ceil_mode") else (0,) * spatial
        self.whole: Padding = tuple(
            [(low, high + more) for (low, high), more in zip(self.padding, added, strict=True)]
        )
        self.added = added

    def _added(self) -> tuple[Size, ...]:
        """What a last window that does not fit needs at the end; none begins in the padding there."""
        found: list[Size] = []
        sizes = tensor_type(self.x).shape[2:]
        steps = zip(sizes, self.window, self.strides, self.padding, self.dilations, strict=True)
        for size, extent, stride, (low, high), dilation in steps:
            room = size + low + high - (extent - 1) * dilation - 1
            count = (room + stride - 1) // stride + 1
            more = (count - 1) * stride - room
            if isinstance(more, int) and more > 0 and _is_outside(count, stride, size + low):
                more = max(more - stride, 0)
            found.append(more)
        return tuple(found)


def _is_outside(count: Size, stride: int, end: Size) -> bool:
    """Whether the last of the windows begins behind the end of the picture."""
    last = (count - 1) * stride
    return isinstance(last, int) and isinstance(end, int) and last >= end


def _max_pool(spatial: int, *, with_places: bool) -> Importer:
    def apply(context: NodeContext) -> Operand:
        emit, pool = context.emit, Pool(context, spatial)
        y = nn.max_pool(
            emit,
            pool.x,
            pool.window,
            strides=pool.strides,
            padding=pool.whole,
            dilations=pool.dilations,
            dims=pool.dims,
        )
        y = reshape(emit, y, context.type.shape)
        if not with_places:
            return y
        return y, _places(context, pool) if any(context.node.types[1:]) else None

    return apply


def _places(context: NodeContext, pool: Pool) -> Value:
    """The place of each maximum inside its picture, row-major, as PyTorch counts it."""
    emit, type = context.emit, tensor_type(pool.x)
    ones = (1, 1)
    index = emit(
        array.WindowIndex(
            pool.x,
            "max",
            (*ones, *pool.window),
            (*ones, *pool.strides),
            ((0, 0), (0, 0), *pool.whole),
            (*ones, *pool.dilations),
        )
    )
    size = elements(type.shape[2:])
    inside = emit(array.Remainder(index, numbers(emit, size, tensor_type(index))))
    return reshape(emit, in_dtype(emit, inside, I64), context.type_of(1).shape)


def _avg_pool(spatial: int) -> Importer:
    def apply(context: NodeContext) -> Operand:
        emit, pool = context.emit, Pool(context, spatial)
        counted = context.given("count_include_pad") != 0
        x, padding = pool.x, pool.whole
        divisor = context.given("divisor_override")
        if counted and any(pool.added):
            # Padding counts, what ceil_mode adds does not: the padding is made real.
            zero = array.fill(emit, 0, TensorType(tensor_type(x).dtype))
            pads = [(0, 0), (0, 0), *pool.padding]
            low, high = tuple([p[0] for p in pads]), tuple([p[1] for p in pads])
            x = emit(array.Pad(x, zero, low, high, (0,) * len(pads)))
            padding, counted = tuple([(0, more) for more in pool.added]), False
        y = nn.avg_pool(
            emit,
            x,
            pool.window,
            strides=pool.strides,
            padding=padding,
            dims=pool.dims,
            count_padding=counted or divisor is not None,
        )
        if isinstance(divisor, int) and divisor:
            count = 1
            for extent in pool.window:
                count *= extent
            y = times(emit, y, count / divisor)
        return reshape(emit, y, context.type.shape)

    return apply


def _adaptive_average(spatial: int) -> Importer:
    """Windows that divide each axis into a given number of parts, which may overlap."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, batched(context.emit, context.value("self"), spatial)
        sizes, counts = tensor_type(x).shape[2:], context.type.shape[-spatial:]
        if all(count == 1 for count in counts):
            y = mean(emit, widened(emit, x), tuple(range(2, spatial + 2)))
            return reshape(emit, in_dtype(emit, y, context.dtype), context.type.shape)
        window = _even_windows(sizes, counts)
        if window is None:
            return reshape(emit, _uneven_average(context, x, counts), context.type.shape)
        y = nn.avg_pool(emit, x, window, dims=_layout(context, x))
        return reshape(emit, y, context.type.shape)

    return apply


def _even_windows(sizes: Sequence[Size], counts: Sequence[Size]) -> tuple[int, ...] | None:
    """The windows, where each axis comes out even and they are numbers."""
    found: list[int] = []
    for size, count in zip(sizes, counts, strict=True):
        extent = size // count
        if not isinstance(extent, int) or extent * count != size:
            return None
        found.append(extent)
    return tuple(found)


def _uneven_average(context: NodeContext, x: Value, counts: Sequence[Size]) -> Value:
    """Axis after axis: the windows are `floor(k * size / count)` to `ceil((k + 1) * size / count)`."""
    emit, y = context.emit, widened(context.emit, x)
    for axis, count in enumerate(counts, 2):
        size = tensor_type(x).shape[axis]
        if size == count:
            continue
        if not isinstance(size, int) or not isinstance(count, int):
            y = _averaged_parts(emit, y, axis, size, count)
            continue
        parts: list[Value] = []
        for k in range(count):
            low, high = k * size // count, -(-(k + 1) * size // count)
            part = mean(emit, array.slice_axis(emit, y, axis, low, high), (axis,))
            shape = tensor_type(part).shape
            parts.append(reshape(emit, part, (*shape[:axis], 1, *shape[axis:])))
        y = parts[0] if count == 1 else emit(array.Concatenate(tuple(parts), axis))
    return in_dtype(emit, y, context.dtype)


def _averaged_parts(emit: Builder, x: Value, axis: int, size: Size, count: Size) -> Value:
    """The same where sizes are not numbers: each mean is a difference of two running sums."""
    type = TensorType(I64, (count,))
    part = array.iota(emit, type, 0)
    whole, parts = numbers(emit, size, type), numbers(emit, count, type)
    start = emit(array.FloorDivide(emit(array.Multiply(part, whole)), parts))
    reach = emit(array.Multiply(plus(emit, part, 1), whole))
    last = emit(array.FloorDivide(plus(emit, reach, -1), parts))
    before = taken(emit, emit(array.CumulativeSum(x, axis, False, True)), start, axis)
    summed = taken(emit, emit(array.CumulativeSum(x, axis)), last, axis)
    extent = plus(emit, emit(array.Subtract(last, start)), 1)
    extent = in_dtype(emit, extent, tensor_type(x).dtype)
    total = emit(array.Subtract(summed, before))
    return emit(array.Divide(total, along(emit, extent, total, (axis,))))


def _adaptive_max(spatial: int) -> Importer:
    def apply(context: NodeContext) -> Operand:
        window = _even_windows(
            context.tensor("self").shape[-spatial:], context.type.shape[-spatial:]
        )
        if window is None:
            raise context.unsupported("with uneven parts is not imported")
        arguments = {"self": context.given("self"), "kernel_size": window}
        node = replace(context.node, arguments=arguments)
        return _max_pool(spatial, with_places=True)(
            NodeContext(node, context.emit, context.regions)
        )

    return apply


# Resizing -----------------------------------------------------------------------------------------


def _scales(context: NodeContext, spatial: int) -> list[float | None]:
    """The scales that the caller gave, for each spatial axis."""
    found = context.given("scale_factors")
    if isinstance(found, tuple):
        return [float(part) if isinstance(part, int | float) else None for part in found]
    names = ("scales_d", "scales_h", "scales_w")[-spatial:] if spatial > 1 else ("scales",)
    given = [context.given(name) for name in names]
    return [float(part) if isinstance(part, int | float) else None for part in given]


def _ratios(context: NodeContext, spatial: int) -> dict[int, Fraction]:
    """The scale of each axis where the caller gave one, as the simplest fraction that it can be."""
    return {
        axis: Fraction(scale).limit_denominator(1 << 12)
        for axis, scale in enumerate(_scales(context, spatial), 2)
        if scale is not None
    }


def _nearest(spatial: int, coordinates: str, rounding: str) -> Importer:
    def apply(context: NodeContext) -> Operand:
        name = "self" if "self" in context.node.arguments else "input"
        x = context.value(name)
        sizes = dict(enumerate(context.type.shape[2:], 2))
        ratios = _ratios(context, spatial)
        return nn.resize_nearest(
            context.emit, x, sizes, scales=ratios, coordinates=coordinates, rounding=rounding
        )

    return apply


def _linear(spatial: int) -> Importer:
    def apply(context: NodeContext) -> Operand:
        name = "self" if "self" in context.node.arguments else "input"
        x = context.value(name)
        aligned = context.flag("align_corners")
        y = nn.resize_linear(
            context.emit,
            widened(context.emit, x),
            dict(enumerate(context.type.shape[2:], 2)),
            scales={} if aligned else _ratios(context, spatial),
            coordinates="align_corners" if aligned else "half_pixel",
        )
        return in_dtype(context.emit, y, context.dtype)

    return apply


def _cubic(context: NodeContext) -> Operand:
    """Cubic convolution with a = -0.75 (Keys 1981): four neighbours along each axis."""
    emit = context.emit
    x = widened(emit, context.value("self" if "self" in context.node.arguments else "input"))
    aligned = context.flag("align_corners")
    ratios = {} if aligned else _ratios(context, 2)
    for axis, size in enumerate(context.type.shape[2:], 2):
        old = tensor_type(x).shape[axis]
        if not isinstance(size, int) or not isinstance(old, int):
            raise context.unsupported("to a size that is not a number is not imported")
        if size == old and axis not in ratios:
            continue
        x = _cubic_axis(
            emit, x, axis, old, size, 1 / ratios[axis] if axis in ratios else None, aligned
        )
    return in_dtype(emit, x, context.dtype)


def _cubic_axis(
    emit: Builder, x: Value, axis: int, old: int, new: int, step: Fraction | None, aligned: bool
) -> Value:
    """The product with the weights of each new element along an axis, which are constants."""
    if aligned:
        step = Fraction(old - 1, max(new - 1, 1))
        places = np.arange(new) * float(step)
    else:
        step = Fraction(old, new) if step is None else step
        places = (np.arange(new) + 0.5) * float(step) - 0.5
    below = np.floor(places)
    rest = places - below
    weights = np.zeros((new, old))
    for shift in range(-1, 3):
        index = np.clip(below + shift, 0, old - 1).astype(np.int64)
        np.add.at(weights, (np.arange(new), index), _keys(np.abs(rest - shift)))
    dtype = tensor_type(x).dtype
    matrix = emit(
        array.Constant(Dense.of(np.ascontiguousarray(weights.T.astype(dtype.numpy)), dtype))
    )
    rank = tensor_type(x).rank
    order = (*[k for k in range(rank) if k != axis], axis)
    last = transpose(emit, x, order)
    shape = tensor_type(last).shape
    rows = reshape(emit, last, (elements(shape[:-1]), old))
    y = reshape(emit, emit(array.MatMul(rows, matrix)), (*shape[:-1], new))
    return transpose(emit, y, inverse(order))


def _keys(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of an element at a distance of t places."""
    a = -0.75
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


IMPORTERS: dict[str, Importer] = {
    "aten._adaptive_avg_pool2d": _adaptive_average(2),
    "aten._adaptive_avg_pool3d": _adaptive_average(3),
    "aten._upsample_nearest_exact1d": _nearest(1, "half_pixel", "round_prefer_ceil"),
    "aten._upsample_nearest_exact2d": _nearest(2, "half_pixel", "round_prefer_ceil"),
    "aten._upsample_nearest_exact3d": _nearest(3, "half_pixel", "round_prefer_ceil"),
    "aten.adaptive_avg_pool1d": _adaptive_average(1),
    "aten.adaptive_avg_pool2d": _adaptive_average(2),
    "aten.adaptive_avg_pool3d": _adaptive_average(3),
    "aten.adaptive_max_pool2d": _adaptive_max(2),
    "aten.avg_pool1d": _avg_pool(1),
    "aten.avg_pool2d": _avg_pool(2),
    "aten.avg_pool3d": _avg_pool(3),
    "aten.convolution": _convolution,
    "aten.max_pool1d": _max_pool(1, with_places=False),
    "aten.max_pool2d": _max_pool(2, with_places=False),
    "aten.max_pool2d_with_indices": _max_pool(2, with_places=True),
    "aten.max_pool3d": _max_pool(3, with_places=False),
    "aten.max_pool3d_with_indices": _max_pool(3, with_places=True),
    "aten.upsample_bicubic2d": _cubic,
    "aten.upsample_bilinear2d": _linear(2),
    "aten.upsample_linear1d": _linear(1),
    "aten.upsample_nearest1d": _nearest(1, "asymmetric", "floor"),
    "aten.upsample_nearest2d": _nearest(2, "asymmetric", "floor"),
    "aten.upsample_nearest3d": _nearest(3, "asymmetric", "floor"),
    "aten.upsample_trilinear3d": _linear(3),
}
