"""Operators that read a picture between its elements: `GridSample`, `RoiAlign`, `DeformConv`.

A position along an axis is a float; 0 is the first element. What lies at it is the sum of a few elements
around it, its *taps*, each with a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, mean, numbers, widened
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.windows import per_axis
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size, product
from dlc.ir.types import F32, I64, TensorType, wide

CUBIC = -0.75
"""The coefficient of cubic interpolation, as PyTorch has it."""
MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""What opset 16 calls the modes of `GridSample`."""


@dataclass(frozen=True, slots=True)
class Tap:
    """An element near each position of an axis: its index, its weight, and whether there is one.

    Indices are inside the axis also where there is none; `inside` is None if there always is one.
    """

    index: Value
    weight: Value | None
    inside: Value | None = None


def sample(
    emit: Builder, x: Value, front: Sequence[Value], first: int, taps: Sequence[Sequence[Tap]]
) -> list[Value]:
    """The weighted elements, one value for each combination of taps of the axes from `first` on.

    `front` are index tensors for the axes 0 to `len(front) - 1`; all index tensors have one shape, with
    which the results begin. The other axes of x follow.
    """
    axes = (*range(len(front)), *range(first, first + len(taps)))
    found: list[Value] = []
    for chosen in combinations(*taps):
        part = emit(array.Gather(x, (*front, *[tap.index for tap in chosen]), axes))
        leading = tuple(range(array.tensor_type(chosen[0].index).rank))
        shape = array.tensor_type(part).shape
        for tap in chosen:
            if tap.weight is not None:
                part = emit(array.Multiply(part, emit(array.Broadcast(tap.weight, shape, leading))))
        for tap in chosen:
            if tap.inside is not None:
                inside = emit(array.Broadcast(tap.inside, shape, leading))
                part = emit(array.Select(inside, part, array.constant_like(emit, 0, part)))
        found.append(part)
    return found


def summed(emit: Builder, parts: Sequence[Value]) -> Value:
    """The sum of several values."""
    whole, *rest = parts
    for part in rest:
        whole = emit(array.Add(whole, part))
    return whole


def clamped(emit: Builder, x: Value, low: float, high: Value) -> Value:
    """Numbers brought between a number and those of a tensor."""
    return emit(array.Minimum(emit(array.Maximum(x, array.constant_like(emit, low, x))), high))


def inside(emit: Builder, index: Value, size: Size) -> Value:
    """Whether indices are those of elements of an axis."""
    type = array.tensor_type(index)
    low = emit(array.Compare(index, array.fill(emit, 0, type), "ge"))
    return emit(array.And(low, emit(array.Compare(index, numbers(emit, size, type), "lt"))))


def around(emit: Builder, position: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The places of the taps, whole numbers in the positions' dtype, and their weights."""
    if mode == "nearest":
        return [(position, None)]
    below = emit(array.Floor(position))
    part = emit(array.Subtract(position, below))
    rest = emit(array.Subtract(array.constant_like(emit, 1, part), part))
    if mode == "linear":
        return [(below, rest), (plus(emit, below, 1), part)]
    weights = [
        nn.far_cubic(emit, plus(emit, part, 1), CUBIC),
        nn.near_cubic(emit, part, CUBIC),
        nn.near_cubic(emit, rest, CUBIC),
        nn.far_cubic(emit, plus(emit, rest, 1), CUBIC),
    ]
    return [(plus(emit, below, k - 1), weight) for k, weight in enumerate(weights)]


# GridSample ---------------------------------------------------------------------------------------


def _grid_sample(context: NodeContext) -> NodeResults:
    """`y[n, c, o..]` is what x has at the place `grid[n, o..]`, whose numbers go from -1 to 1."""
    emit, x, grid = context.emit, context.value(0), context.value(1)
    type, grid_type = array.tensor_type(x), array.tensor_type(grid)
    spatial = type.shape[2:]
    if len(spatial) not in (1, 2, 3):
        raise context.unsupported(f"takes pictures of 1 to 3 spatial axes, found {type.text}")
    if grid_type.rank != type.rank or grid_type.shape[-1] != len(spatial):
        raise context.wrong(f"samples {type.text} at the places {grid_type.text}")
    mode = context.text("mode", "linear" if context.opset >= 20 else "bilinear")
    mode, padding = MODES.get(mode, mode), context.text("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic") or padding not in PADDINGS:
        raise context.wrong(f"has the unknown mode {mode!r} or padding {padding!r}")
    dtype = max(wide(type.dtype), wide(grid_type.dtype), key=lambda dtype: dtype.bits)
    dtype = dtype if dtype.is_float else F32
    grid = in_dtype(emit, grid, dtype)
    taps: list[list[Tap]] = []
    for k, size in enumerate(spatial):
        # The last axis comes first in the grid.
        last = len(spatial) - 1 - k
        place = array.slice_axis(emit, grid, type.rank - 1, last, last + 1)
        place = reshape(emit, place, grid_type.shape[:-1])
        axis = _Axis(emit, size, padding, context.flag("align_corners"))
        taps.append(axis.taps(axis.position(place), mode))
    batch = array.iota(emit, array.tensor_type(taps[0][0].index), 0)
    source = x if mode == "nearest" else in_dtype(emit, x, dtype)
    whole = summed(emit, sample(emit, source, [batch], 2, taps))
    whole = in_dtype(emit, whole, type.dtype)
    rank = type.rank
    return transpose(emit, whole, (0, rank - 1, *range(1, rank - 1)))


PADDINGS = ("zeros", "border", "reflection")


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that `GridSample` reads; it ends at its outermost elements if corners are aligned, else
    half an element further out.
    """

    emit: Builder
    size: Size
    padding: str
    aligned: bool

    def _length(self, like: Value, more: int = 0) -> Value:
        return numbers(self.emit, self.size + more, array.tensor_type(like))

    def position(self, place: Value) -> Value:
        """The position of a place from -1 to 1."""
        emit, moved = self.emit, plus(self.emit, place, 1)
        if self.aligned:
            halved = times(emit, moved, 0.5)
            return emit(array.Multiply(halved, self._length(place, -1)))
        scaled = emit(array.Multiply(moved, self._length(place)))
        return times(emit, plus(emit, scaled, -1), 0.5)

    def taps(self, position: Value, mode: str) -> list[Tap]:
        """The elements around each position."""
        emit = self.emit
        if mode == "nearest":
            position = emit(array.Round(position))
        if mode != "cubic":
            # PyTorch and onnxruntime pad what cubic interpolation reads, not where it reads.
            position = self._padded(position)
        return [self._tap(place, weight) for place, weight in around(emit, position, mode)]

    def _padded(self, position: Value) -> Value:
        """Positions beyond the ends of the axis as the padding has them."""
        emit = self.emit
        if self.padding == "zeros":
            return position
        if self.padding == "reflection":
            moved = self._reflected(position)
        else:
            moved = clamped(emit, position, 0, self._length(position, -1))
        low = array.constant_like(emit, 0 if self.aligned else -0.5, position)
        high = plus(emit, self._length(position), -1 if self.aligned else -0.5)
        is_between = emit(
            array.And(
                emit(array.Compare(position, low, "ge")), emit(array.Compare(position, high, "le"))
            )
        )
        return emit(array.Select(is_between, position, moved))

    def _reflected(self, position: Value) -> Value:
        """Positions mirrored at the ends until they lie between them."""
        emit, low = self.emit, 0 if self.aligned else -0.5
        apart = emit(array.Abs(plus(emit, position, -low)))
        span = self._length(position, -1 if self.aligned else 0)
        # An axis of one element whose corners are aligned has no length: any period will do.
        twice = emit(array.Maximum(times(emit, span, 2), array.constant_like(emit, 1, span)))
        part = emit(array.Remainder(apart, twice))
        back = emit(array.Minimum(part, emit(array.Subtract(twice, part))))
        return plus(emit, back, low)

    def _tap(self, place: Value, weight: Value | None) -> Tap:
        emit = self.emit
        if self.padding == "reflection":
            place = self._reflected(place)
        index = in_dtype(emit, place, I64)
        kept = clamped(emit, index, 0, self._length(index, -1))
        is_inside = inside(emit, index, self.size) if self.padding == "zeros" else None
        return Tap(kept, weight, is_inside)


# RoiAlign -----------------------------------------------------------------------------------------


def _roi_align(context: NodeContext) -> NodeResults:
    """`output_height` times `output_width` bins of each region, each the mean or the largest of samples."""
    emit, x, regions = context.emit, widened(context.emit, context.value(0)), context.value(1)
    type = array.tensor_type(x)
    ratio, mode = context.integer("sampling_ratio", 0), context.text("mode", "avg")
    if ratio < 1:
        raise context.unsupported("with a number of samples that follows from the region")
    if type.rank != 4 or mode not in ("avg", "max"):
        raise context.wrong(
            f"takes pictures of 4 axes and the modes avg and max, found {type.text}"
        )
    bins = context.integer("output_height", 1), context.integer("output_width", 1)
    count = array.tensor_type(regions).shape[0]
    shape: Shape = (count, *bins, ratio, ratio)
    whole = TensorType(type.dtype, shape)
    regions = in_dtype(emit, regions, type.dtype)
    taps: list[list[Tap]] = []
    for k, size in enumerate(type.shape[2:]):
        position = _bin_positions(context, regions, k, bins[k], whole)
        taps.append(_roi_taps(emit, position, size))
    batch = in_dtype(emit, context.value(2), I64)
    batch = emit(array.Broadcast(batch, shape, (0,)))
    parts = sample(emit, x, [batch], 2, taps)
    if mode == "avg":
        pooled = mean(emit, summed(emit, parts), (3, 4))
    else:
        # ONNX takes the largest of the weighted elements, not of the samples that they add up to.
        best, *rest = parts
        for part in rest:
            best = emit(array.Maximum(best, part))
        pooled = emit(array.ReduceMax(best, (3, 4)))
    return in_dtype(emit, transpose(emit, pooled, (0, 3, 1, 2)), context.type(0).dtype)


def _bin_positions(
    context: NodeContext, regions: Value, k: int, bins: int, whole: TensorType
) -> Value:
    """The positions of the samples along axis `k`, 0 for height: [region, bin, bin, sample, sample]."""
    emit, ratio = context.emit, whole.shape[3]
    assert isinstance(ratio, int)
    default = "half_pixel" if context.opset >= 16 else "output_half_pixel"
    half = context.text("coordinate_transformation_mode", default) == "half_pixel"
    ends: list[Value] = []
    for column in (1 - k, 3 - k):
        end = reshape(emit, array.slice_axis(emit, regions, 1, column, column + 1), whole.shape[:1])
        end = times(emit, end, context.number("spatial_scale", 1.0))
        ends.append(plus(emit, end, -0.5) if half else end)
    start, stop = ends
    extent = emit(array.Subtract(stop, start))
    if not half:
        extent = emit(array.Maximum(extent, array.constant_like(emit, 1, extent)))
    step = emit(array.Divide(extent, array.constant_like(emit, bins, extent)))
    step = emit(array.Broadcast(step, whole.shape, (0,)))
    bin = emit(array.Multiply(array.iota(emit, whole, 1 + k, whole.dtype), step))
    place = plus(emit, array.iota(emit, whole, 3 + k, whole.dtype), 0.5)
    part = times(emit, emit(array.Multiply(place, step)), 1 / ratio)
    first = emit(array.Broadcast(start, whole.shape, (0,)))
    return emit(array.Add(emit(array.Add(first, bin)), part))


def _roi_taps(emit: Builder, position: Value, size: Size) -> list[Tap]:
    """Up to one element outside a picture is what its border is, further out nothing."""
    length = numbers(emit, size, array.tensor_type(position))
    low = emit(array.Compare(position, array.constant_like(emit, -1, position), "ge"))
    near = emit(array.And(low, emit(array.Compare(position, length, "le"))))
    last = numbers(emit, size - 1, array.tensor_type(position))
    taps: list[Tap] = []
    for place, weight in around(emit, clamped(emit, position, 0, last), "linear"):
        index = in_dtype(emit, place, I64)
        taps.append(Tap(clamped(emit, index, 0, _last(emit, index, size)), weight, near))
    return taps


def _last(emit: Builder, index: Value, size: Size) -> Value:
    return numbers(emit, size - 1, array.tensor_type(index))


# DeformConv ---------------------------------------------------------------------------------------


def _deform_conv(context: NodeContext) -> NodeResults:
    """A convolution whose taps offsets move, `[n, group * tap * 2, h, w]`, and a mask weights."""
    emit, x, kernel = context.emit, context.value(0), context.value(1)
    type, filters = array.tensor_type(x), array.tensor_type(kernel).shape
    if type.rank != 4:
        raise context.unsupported(f"takes pictures of 2 spatial axes, found {type.text}")
    window = [size for size in filters[2:] if isinstance(size, int)]
    groups, parts = context.integer("group", 1), context.integer("offset_group", 1)
    channels = type.shape[1]
    if len(window) != 2 or not isinstance(channels, int) or not isinstance(filters[0], int):
        raise context.unsupported("takes kernels and channels whose sizes are numbers")
    taps = window[0] * window[1]
    batch, height, width = type.shape[0], *array.tensor_type(context.value(2)).shape[2:]
    shape: Shape = (batch, parts, taps, height, width)
    columns = _deformed(context, x, window, shape)
    mask = context.optional(4)
    if mask is not None:
        mask = reshape(emit, mask, shape)
        wide = array.tensor_type(columns).shape
        columns = emit(array.Multiply(columns, emit(array.Broadcast(mask, wide, (0, 1, 2, 3, 4)))))
    # [n, part, tap, h, w, c] becomes [n, group, c * tap, h * w].
    ordered = transpose(emit, columns, (0, 1, 5, 2, 3, 4))
    inner = channels // groups * taps
    ordered = reshape(emit, ordered, (batch, groups, inner, product((height, width))))
    rows = reshape(emit, kernel, (groups, filters[0] // groups, inner))
    rows = emit(array.Broadcast(rows, (batch, *array.tensor_type(rows).shape), (1, 2, 3)))
    whole = reshape(emit, emit(array.MatMul(rows, ordered)), (batch, filters[0], height, width))
    bias = context.optional(3)
    if bias is None:
        return whole
    spread = emit(array.Broadcast(bias, array.tensor_type(whole).shape, (1,)))
    return emit(array.Add(whole, spread))


def _deformed(context: NodeContext, x: Value, window: Sequence[int], shape: Shape) -> Value:
    """The elements that each tap reads: [n, part, tap, h, w, channel of the part]."""
    emit, type = context.emit, array.tensor_type(x)
    batch, parts, taps, height, width = shape
    strides, dilations = (per_axis(context, name, 2) for name in ("strides", "dilations"))
    pads = per_axis(context, "pads", 4, 0)
    channels = type.shape[1]
    offset = reshape(emit, context.value(2), (batch, parts, taps, 2, height, width))
    read: list[list[Tap]] = []
    for k, size in enumerate(type.shape[2:]):
        moved = reshape(emit, array.slice_axis(emit, offset, 3, k, k + 1), shape)
        place = array.tensor_type(moved)
        tap = array.iota(emit, place.with_dtype(I64), 2)
        columns = array.constant_like(emit, window[1], tap)
        tap = emit((array.FloorDivide if k == 0 else array.Remainder)(tap, columns))
        start = times(emit, array.iota(emit, place.with_dtype(I64), 3 + k), strides[k])
        start = emit(array.Add(plus(emit, start, -pads[k]), times(emit, tap, dilations[k])))
        position = emit(array.Add(in_dtype(emit, start, place.dtype), moved))
        taps_of_axis: list[Tap] = []
        for where, weight in around(emit, position, "linear"):
            index = in_dtype(emit, where, I64)
            kept = clamped(emit, index, 0, _last(emit, index, size))
            taps_of_axis.append(Tap(kept, weight, inside(emit, index, size)))
        read.append(taps_of_axis)
    assert isinstance(channels, int) and isinstance(parts, int)
    split = reshape(emit, x, (batch, parts, channels // parts, *type.shape[2:]))
    counted = TensorType(I64, shape)
    front = [array.iota(emit, counted, axis) for axis in (0, 1)]
    return summed(emit, sample(emit, split, front, 3, read))


IMPORTERS: dict[str, Importer] = {
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
}
