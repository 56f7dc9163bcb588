"""Windows that move over tensors as kernels: pooling, convolution, the index of a window's extreme.

A convolution of pictures is an implicit GEMM (`kernel.conv`): a product whose left operand, the im2col
matrix of windows, is read from the picture in place. Where the window is not a weight and larger than the
result, as in the gradient of a kernel, that matrix is stored (im2col). Everything else is a formula per
element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects import array, kernel, weight
from dlc.dialects.array.convolution_layouts import Layout
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.array.window import Windowed
from dlc.dialects.expr import Condition, Expr, all_of, constant, select
from dlc.dialects.formulas import (
    Array,
    check_index,
    clamp,
    gemm,
    generic,
    is_extreme,
    reduce,
    shift,
    size,
    within,
)
from dlc.dialects.interface import bounds_around
from dlc.dialects.kernel.products import Conv
from dlc.ir.attributes import Dense
from dlc.ir.bounded import never_negative
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import F32, F64, I64, INDEX
from dlc.lowering.graph_to_kernel.arrays import lowers

NO_INDEX = (1 << 63) - 1
"""The neutral element of a minimum of indices."""

COMBINE = {"max": "maximum", "min": "minimum", "sum": "add"}


@lowers(array.ReduceWindow)
def _reduce_window(op: array.ReduceWindow, emit: Builder) -> Sequence[Value]:
    result = tensor_type(op.result)
    combine = COMBINE[op.function]
    axes, extents = _window_axes(op)
    repeats = op.function != "sum" and _borders_repeat(op)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        def element(taps: list[Expr]) -> Expr:
            source_index, inside = _window_element(op, indices, dict(zip(axes, taps, strict=True)))
            value = arrays[0].wide(source_index)
            if repeats:
                return value
            neutral = constant(emit, kernel.identity(combine, value.dtype), value.dtype)
            return select(all_of(inside), value, neutral)

        return reduce(emit, extents, combine, element).cast(result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


def _borders_repeat(op: Windowed) -> bool:
    """Whether the nearest element of the source to each padded one belongs to the same window.

    Then the extreme of a window is that of the nearest elements, and no element needs a choice.
    """
    source, result = tensor_type(op.source).shape, tensor_type(op.result).shape
    for axis, (low, high) in enumerate(op.padding):
        if (low, high) == (0, 0):
            continue
        extent, count, window = source[axis], result[axis], op.window[axis]
        if not (isinstance(extent, int) and isinstance(count, int) and isinstance(low, int)):
            return False
        last = (count - 1) * op.strides[axis] - low
        if op.dilations[axis] != 1 or low >= window or last >= extent or extent == 0:
            return False
    return True


def _window_axes(op: Windowed) -> tuple[list[int], tuple[int, ...]]:
    """The axes along which a window has more than one element, and its extents there."""
    axes = [axis for axis, extent in enumerate(op.window) if extent > 1]
    return axes, tuple([op.window[axis] for axis in axes])


def _window_element(
    op: Windowed, indices: Sequence[Expr], taps: Mapping[int, Expr]
) -> tuple[list[Expr], list[Condition]]:
    """The source's index of a window's element, and the conditions that it is not padding.

    `indices` is that of the window, `taps` has the element's index in it by axis. Where the conditions do
    not hold, the index is that of some other element, so that it can be loaded.
    """
    conditions: list[Condition] = []
    source_index: list[Expr] = []
    for axis, (index, extent) in enumerate(zip(indices, tensor_type(op.source).shape, strict=True)):
        low, high = op.padding[axis]
        position = index * op.strides[axis]
        if axis in taps:
            position = position + taps[axis] * op.dilations[axis]
        position = shift(position, low * -1)
        if (low, high) != (0, 0):
            conditions.append(within(position, 0, extent))
            position = clamp(position, extent)
        source_index.append(position)
    return source_index, conditions


@lowers(array.WindowIndex)
def _window_index(op: array.WindowIndex, emit: Builder) -> Sequence[Value]:
    """The extreme of a window, then the smallest row-major index in the source that has it."""
    source = tensor_type(op.source)
    combine = COMBINE[op.function]
    axes, extents = _window_axes(op)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        def load(taps: list[Expr]) -> tuple[Expr, list[Expr], list[Condition]]:
            source_index, inside = _window_element(op, indices, dict(zip(axes, taps, strict=True)))
            return arrays[0].wide(source_index), source_index, inside

        def value_of(taps: list[Expr]) -> Expr:
            value, _, inside = load(taps)
            neutral = constant(emit, kernel.identity(combine, value.dtype), value.dtype)
            return select(all_of(inside), value, neutral)

        extreme = reduce(emit, extents, combine, value_of)

        def index_of(taps: list[Expr]) -> Expr:
            value, source_index, inside = load(taps)
            chosen = all_of([*inside, is_extreme(value, extreme)])
            row_major = size(emit, 0)
            for index, extent in zip(source_index, source.shape, strict=True):
                row_major = row_major * extent + index
            # Row-major indices rise with the order of a window's elements: the first is the smallest.
            return select(chosen, row_major, NO_INDEX)

        first = reduce(emit, extents, "minimum", index_of)
        return select(first.differs(NO_INDEX), first, -1).cast(I64)

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.Convolution)
def _convolution(op: array.Convolution, emit: Builder) -> Sequence[Value]:
    if not _is_product(op):
        return _direct_convolution(op, emit)
    product = _im2col_product if op.groups == 1 and _is_wide(op) else _implicit_gemm
    if op.layout.channels_last:
        return (product(op, emit, op.source, op.kernel),)
    picture = emit(array.Transpose(op.source, (0, 2, 3, 1)))
    weights = emit(array.Transpose(op.kernel, (2, 3, 1, 0)))
    return (emit(array.Transpose(product(op, emit, picture, weights), (0, 3, 1, 2))),)


def _is_product(op: array.Convolution) -> bool:
    """Whether a convolution is an implicit GEMM: of pictures, without source dilation, in f32 or f64."""
    return (
        op.layout.rank == 4
        and op.source_dilations == (1, 1)
        and tensor_type(op.source).dtype in (F32, F64)
        and not any(is_negative(size) for pair in op.padding for size in pair)
        and (op.groups == 1 or tensor_type(op.kernel).is_static)
    )


def _is_wide(op: array.Convolution) -> bool:
    """Whether the window is larger than the result, as where a kernel's gradient is computed.

    Weights are packed into panels when they are loaded, so small results of large windows have nothing to
    gain from a product that would pack them in every call.
    """
    if isinstance(without_reshapes(op.kernel).op, weight.Get):
        return False
    layout = op.layout
    kernel_type, result = tensor_type(op.kernel), tensor_type(op.result)
    window = [kernel_type.shape[axis] for axis in layout.kernel_spatial]
    spatial = [result.shape[axis] for axis in layout.spatial]
    if not all(isinstance(size, int) for size in (*window, kernel_type.shape[layout.kernel_in])):
        return True
    return is_negative(spatial[0] * spatial[1] - window[0] * window[1])


def _im2col_product(op: array.Convolution, emit: Builder, picture: Value, weights: Value) -> Value:
    """im2col: a convolution as a product with a stored matrix that has each window as a column.

    `picture` is `[batch, height, width, channels]`, `weights` are `[height, width, channels, outputs]`. The
    rows of the matrix are numbered (channel, window): a cotangent `[batch, height, width, outputs]`, which
    is the window of a kernel's gradient, lies in memory in this order.
    """
    type = tensor_type(picture)
    batch, height, width, channels = type.shape
    *window, _, outputs = tensor_type(weights).shape
    spatial = [tensor_type(op.result).shape[axis] for axis in op.layout.spatial]
    shape = (channels, *window, *spatial, batch)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        channel, *taps, row, column, image = indices
        pixel, inside = _source_pixel(op, (row, column), taps, (height, width))
        value = arrays[0].wide([image, *pixel, channel])
        zero = constant(emit, 0, value.dtype)
        return select(all_of(inside), value, zero).cast(type.dtype)

    inner_size = channels * window[0] * window[1]
    rows = spatial[0] * spatial[1] * batch
    columns = emit(array.Reshape(generic(emit, (picture,), shape, formula), (inner_size, rows)))
    matrix = emit(array.Transpose(weights, (2, 0, 1, 3)))
    matrix = emit(array.Reshape(matrix, (inner_size, outputs)))
    result = gemm(emit, columns, matrix, type.with_shape((rows, outputs)), inner_size, True)
    result = emit(array.Reshape(result, (*spatial, batch, outputs)))
    return emit(array.Transpose(result, (2, 0, 1, 3)))


def _implicit_gemm(op: array.Convolution, emit: Builder, picture: Value, weights: Value) -> Value:
    """A convolution as `kernel.conv`; one of 1 x 1 without stride and padding as a plain product.

    `picture` is `[batch, height, width, channels]`, `weights` are `[height, width, channels, outputs]`.
    """
    type = tensor_type(picture)
    batch, height, width, channels = type.shape
    *window, _, outputs = tensor_type(weights).shape
    low, high = op.padding
    pointwise = window == [1, 1] and op.strides == (1, 1) and low == high == (0, 0)
    if pointwise and op.groups == 1:
        rows = emit(array.Reshape(picture, (batch * height * width, channels)))
        matrix = emit(array.Reshape(weights, (channels, outputs)))
        result = gemm(
            emit, rows, matrix, type.with_shape((batch * height * width, outputs)), channels
        )
        return emit(array.Reshape(result, (batch, height, width, outputs)))
    zeros = emit(array.Constant(Dense.splat(0, type.with_shape((channels,)))))
    spatial = [tensor_type(op.result).shape[axis] for axis in op.layout.spatial]
    pixels = batch * spatial[0] * spatial[1]
    epilogue = Block([INDEX, INDEX, type.dtype], ["i0", "i1"])
    Builder(epilogue, emit.location).place(kernel.Yield([epilogue.arguments[-1]]))
    conv = Conv(
        lhs=picture,
        rhs=weights,
        blank=zeros,
        extras=[],
        outs=[],
        epilogue=epilogue,
        domain=(pixels, outputs),
        window=(_static(window[0]), _static(window[1])),
        strides=(op.strides[0], op.strides[1]),
        padding=(op.padding[0], op.padding[1]),
        dilations=(op.dilations[0], op.dilations[1]),
        groups=op.groups,
    )
    return emit(array.Reshape(emit(conv), (batch, *spatial, outputs)))


def _static(size: Size) -> int:
    assert isinstance(size, int), "weights have no symbolic sizes"
    return size


def _direct_convolution(op: array.Convolution, emit: Builder) -> Sequence[Value]:
    """Direct convolution: each element of the result is a sum over taps and channels, in any layout."""
    source, weights, result = (tensor_type(value) for value in (op.source, op.kernel, op.result))
    layout = op.layout
    channels, outputs = weights.shape[layout.kernel_in], weights.shape[layout.kernel_out]
    window = [weights.shape[axis] for axis in layout.kernel_spatial]
    extents = [source.shape[axis] for axis in layout.spatial]

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        picture, filters = arrays
        image, output = indices[0], indices[layout.channel]
        spatial = [indices[axis] for axis in layout.spatial]
        group = output // (outputs // op.groups) if op.groups > 1 else None

        def element(inner: list[Expr]) -> Expr:
            *taps, channel = inner
            source_channel = channel if group is None else group * channels + channel
            pixel, inside = _source_pixel(op, spatial, taps, extents)
            x = picture.wide(_source_index(layout, image, pixel, source_channel))
            product = x * filters.wide(_kernel_index(layout, taps, channel, output))
            zero = constant(emit, 0, x.dtype)
            return select(all_of(inside), product, zero)

        return reduce(emit, (*window, channels), "add", element).cast(result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


def _source_index(layout: Layout, image: Expr, pixel: Sequence[Expr], channel: Expr) -> list[Expr]:
    """The index of an element of a convolution's source in its layout."""
    by_axis = {0: image, layout.channel: channel, **dict(zip(layout.spatial, pixel, strict=True))}
    return [by_axis[axis] for axis in range(layout.rank)]


def _kernel_index(layout: Layout, taps: Sequence[Expr], channel: Expr, output: Expr) -> list[Expr]:
    """The index of an element of a convolution's kernel in its layout."""
    by_axis = dict(zip(layout.kernel_spatial, taps, strict=True))
    by_axis |= {layout.kernel_in: channel, layout.kernel_out: output}
    return [by_axis[axis] for axis in range(layout.rank)]


@lowers(array.DepthwiseGradient)
def _depthwise_gradient(op: array.DepthwiseGradient, emit: Builder) -> Sequence[Value]:
    """A two-stage reduction: over the last spatial axis, then over the batch and the other axes.

    A line along the last axis stays in the cache while all taps read it, so memory is read once.
    """
    source, result = tensor_type(op.source), tensor_type(op.result)
    batch, *spatial, channels = tensor_type(op.cotangent).shape
    lines = (batch, *spatial[:-1])

    def line_sum(indices: list[Expr], arrays: list[Array]) -> Expr:
        picture, cotangent = arrays
        line, taps, channel = indices[: len(lines)], indices[len(lines) : -1], indices[-1]

        def element(inner: list[Expr]) -> Expr:
            pixel, inside = _source_pixel(op, [*line[1:], *inner], taps, source.shape[1:-1])
            x = picture.wide([line[0], *pixel, channel])
            product = x * cotangent.wide([*line, *inner, channel])
            conditions = all_of(inside)
            return select(conditions, product, constant(emit, 0, x.dtype))

        return reduce(emit, (spatial[-1],), "add", element)

    def total(indices: list[Expr], arrays: list[Array]) -> Expr:
        *taps, _, channel = indices
        sums = reduce(emit, lines, "add", lambda line: arrays[0].wide([*line, *taps, channel]))
        return sums.cast(result.dtype)

    line_sums = generic(emit, op.operands, (*lines, *op.window, channels), line_sum)
    return (generic(emit, (line_sums,), result.shape, total),)


def _source_pixel(
    op: array.Convolution | array.DepthwiseGradient,
    indices: Sequence[Expr],
    taps: Sequence[Expr],
    extents: Sequence[Size],
) -> tuple[list[Expr], list[Condition]]:
    """The source's spatial index that a tap of the kernel meets, and the conditions that there is one.

    `indices` is the result's spatial index. Where the conditions do not hold, the source's index is that of
    some other element, so that it can be loaded.
    """
    pixel: list[Expr] = []
    conditions: list[Condition] = []
    for axis, (index, tap, extent) in enumerate(zip(indices, taps, extents, strict=True)):
        position, inside = _source_position(op, axis, index, tap, extent)
        pixel.append(position)
        conditions += inside
    return pixel, conditions


def _source_position(
    op: array.Convolution | array.DepthwiseGradient,
    axis: int,
    index: Expr,
    tap: Expr,
    extent: Size,
) -> tuple[Expr, list[Condition]]:
    """`_source_pixel` along one spatial axis."""
    low, high = op.padding[axis]
    dilation = op.source_dilations[axis] if isinstance(op, array.Convolution) else 1
    position = shift(index * op.strides[axis] + tap * op.dilations[axis], low * -1)
    if dilation == 1 and (low, high) == (0, 0):
        return position, []
    conditions: list[Condition] = [within(position, 0, (extent - 1) * dilation + 1)]
    if dilation > 1:
        quotient = position // dilation
        conditions.append((quotient * dilation).equals(position))
        position = quotient
    return clamp(position, extent), conditions


@lowers(array.ArgMax, array.ArgMin)
def _arg_extreme(op: array.ArgMax | array.ArgMin, emit: Builder) -> Sequence[Value]:
    """The extreme along an axis, then the smallest index that has it."""
    source, result = tensor_type(op.source), tensor_type(op.result)
    combine = "maximum" if isinstance(op, array.ArgMax) else "minimum"
    extent = source.shape[op.axis]
    is_never_empty = never_negative(extent - 1, bounds_around(op))

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        # An empty axis has no extreme: the call fails.
        may_fail = not (is_never_empty or op.optional)
        last = check_index(size(emit, extent - 1), extent) if may_fail else None

        def element(k: Expr) -> Expr:
            return arrays[0].wide([*indices[: op.axis], k, *indices[op.axis :]])

        extreme = reduce(emit, (extent,), combine, lambda k: element(k[0]))

        def index_of(inner: list[Expr]) -> Expr:
            (k,) = inner
            chosen = is_extreme(element(k), extreme)
            index = k.cast(op.dtype)
            beyond = size(emit, extent) if last is None else last + 1
            return select(chosen, index, beyond.cast(op.dtype))

        return reduce(emit, (extent,), "minimum", index_of)

    return (generic(emit, op.operands, result.shape, formula),)
