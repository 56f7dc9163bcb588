"""Windows that move over tensors as kernels: pooling, convolution by its formula, places of extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects import array, kernel, scalar
from dlc.dialects.array.convolution import Layout
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.window import Windowed
from dlc.dialects.interface import bounds_around
from dlc.dialects.kernel.formula import (
    between,
    both,
    choose,
    convert,
    gemm,
    generic,
    load,
    number,
    plus,
    reduce,
    size,
    times,
)
from dlc.dialects.kernel.products import Conv
from dlc.ir.attributes import Dense
from dlc.ir.bounded import never_negative
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size
from dlc.ir.types import F32, F64, I64, INDEX, wide
from dlc.lowering.graph_to_kernel.arrays import lowers
from dlc.lowering.graph_to_kernel.pieces import clamp

NOWHERE = (1 << 63) - 1
"""Stands for no place in a minimum of places."""

COMBINE = {"max": "maximum", "min": "minimum", "sum": "add"}


@lowers(array.ReduceWindow)
def _reduce_window(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.ReduceWindow)
    source, result = tensor_type(op.source), tensor_type(op.result)
    combine = COMBINE[op.function]
    moving, extents = _moving(op)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        def element(deep: Builder, folded: list[Value]) -> Value:
            steps = dict(zip(moving, folded, strict=True))
            places, conditions = _window_places(deep, op, indices, steps)
            value = load(deep, arrays[0], places)
            neutral = number(deep, kernel.identity(combine, wide(source.dtype)), wide(source.dtype))
            return choose(deep, both(deep, conditions), value, neutral)

        return convert(inner, reduce(inner, extents, combine, element), result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


def _moving(op: Windowed) -> tuple[list[int], tuple[int, ...]]:
    """The axes along which a window has more than one element, and how many."""
    moving = [axis for axis, taps in enumerate(op.window) if taps > 1]
    return moving, tuple([op.window[axis] for axis in moving])


def _window_places(
    emit: Builder, op: Windowed, indices: Sequence[Value], steps: Mapping[int, Value]
) -> tuple[list[Value], list[Value]]:
    """Where an element of a window is in the source, and when it is there; else some place in it."""
    conditions: list[Value] = []
    places: list[Value] = []
    for axis, (index, extent) in enumerate(zip(indices, tensor_type(op.source).shape, strict=True)):
        low, high = op.padding[axis]
        place = times(emit, index, op.strides[axis])
        if axis in steps:
            step = times(emit, steps[axis], op.dilations[axis])
            place = emit(scalar.Add(place, step))
        place = plus(emit, place, low * -1)
        if (low, high) != (0, 0):
            conditions.append(between(emit, place, 0, extent))
            place = clamp(emit, place, extent)
        places.append(place)
    return places, conditions


@lowers(array.WindowIndex)
def _window_index(op: Op, emit: Builder) -> Sequence[Value]:
    """The extreme of a window, then the first place in the order of the window that has it."""
    assert isinstance(op, array.WindowIndex)
    source = tensor_type(op.source)
    combine = COMBINE[op.function]
    moving, extents = _moving(op)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        def at(deep: Builder, folded: list[Value]) -> tuple[Value, list[Value], list[Value]]:
            steps = dict(zip(moving, folded, strict=True))
            places, conditions = _window_places(deep, op, indices, steps)
            return load(deep, arrays[0], places), places, conditions

        def value_of(deep: Builder, folded: list[Value]) -> Value:
            value, _, conditions = at(deep, folded)
            neutral = number(deep, kernel.identity(combine, wide(source.dtype)), wide(source.dtype))
            return choose(deep, both(deep, conditions), value, neutral)

        best = reduce(inner, extents, combine, value_of)

        def place_of(deep: Builder, folded: list[Value]) -> Value:
            value, places, conditions = at(deep, folded)
            chosen = deep(scalar.Compare(value, best, "eq"))
            if source.dtype.is_float:  # a NaN wins, and equals nothing
                chosen = deep(scalar.Or(chosen, deep(scalar.Compare(value, value, "ne"))))
            good = both(deep, [*conditions, chosen])
            row_major: Value = size(deep, 0)
            for place, extent in zip(places, source.shape, strict=True):
                row_major = deep(scalar.Add(times(deep, row_major, extent), place))
            # Rising places in a window have rising numbers, so the first is the smallest.
            return choose(deep, good, row_major, size(deep, NOWHERE))

        first = reduce(inner, extents, "minimum", place_of)
        found = inner(scalar.Compare(first, size(inner, NOWHERE), "ne"))
        return convert(inner, inner(scalar.Select(found, first, size(inner, -1))), I64)

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.Convolution)
def _convolution(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Convolution)
    if not _is_product(op):
        return _by_formula(op, emit)
    product = _columns if op.groups == 1 and _is_wide(op) else _product
    if op.layout.channels_last:
        return (product(op, emit, op.source, op.kernel),)
    picture = emit(array.Transpose(op.source, (0, 2, 3, 1)))
    weights = emit(array.Transpose(op.kernel, (2, 3, 1, 0)))
    return (emit(array.Transpose(product(op, emit, picture, weights), (0, 3, 1, 2))),)


def _is_product(op: array.Convolution) -> bool:
    """Whether a convolution is one `kernel.conv`: of pictures, without gaps, in f32 or f64."""
    return (
        op.layout.rank == 4
        and op.source_dilations == (1, 1)
        and tensor_type(op.source).dtype in (F32, F64)
        and not any(is_negative(size) for pair in op.padding for size in pair)
        and (op.groups == 1 or tensor_type(op.kernel).is_static)
    )


def _is_wide(op: array.Convolution) -> bool:
    """Whether the window is larger than what it leaves, as where a kernel's gradient is computed."""
    layout = op.layout
    kernel_type, result = tensor_type(op.kernel), tensor_type(op.result)
    window = [kernel_type.shape[axis] for axis in layout.kernel_spatial]
    spatial = [result.shape[axis] for axis in layout.spatial]
    if not all(isinstance(size, int) for size in (*window, kernel_type.shape[layout.kernel_in])):
        return True
    return is_negative(spatial[0] * spatial[1] - window[0] * window[1])


def _columns(op: array.Convolution, emit: Builder, picture: Value, weights: Value) -> Value:
    """A convolution as one product with a matrix that has all that a result needs in a column.

    The rows are numbered (channel, window), as a cotangent `[batch, height, width, outputs]` lies in
    memory where it is the window of a kernel's gradient.
    """
    type = tensor_type(picture)
    batch, height, width, channels = type.shape
    *window, _, outputs = tensor_type(weights).shape
    spatial = [tensor_type(op.result).shape[axis] for axis in op.layout.spatial]
    shape = (channels, *window, *spatial, batch)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        channel, *steps, row, column, number_in_batch = indices
        places, conditions = _taps(inner, op, (row, column), steps, (height, width))
        value = load(inner, arrays[0], [number_in_batch, *places, channel])
        zero = number(inner, 0, wide(type.dtype))
        return convert(inner, choose(inner, both(inner, conditions), value, zero), type.dtype)

    inner_size = channels * window[0] * window[1]
    rows = spatial[0] * spatial[1] * batch
    columns = emit(array.Reshape(generic(emit, (picture,), shape, formula), (inner_size, rows)))
    matrix = emit(array.Transpose(weights, (2, 0, 1, 3)))
    matrix = emit(array.Reshape(matrix, (inner_size, outputs)))
    result = gemm(emit, columns, matrix, type.with_shape((rows, outputs)), inner_size, True)
    result = emit(array.Reshape(result, (*spatial, batch, outputs)))
    return emit(array.Transpose(result, (2, 0, 1, 3)))


def _product(op: array.Convolution, emit: Builder, picture: Value, weights: Value) -> Value:
    """The convolution of a picture with its channels last."""
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
    made = Conv(
        lhs=picture,
        rhs=weights,
        blank=zeros,
        extras=[],
        outs=[],
        epilogue=epilogue,
        domain=(pixels, outputs),
        window=(_number(window[0]), _number(window[1])),
        strides=(op.strides[0], op.strides[1]),
        padding=(op.padding[0], op.padding[1]),
        dilations=(op.dilations[0], op.dilations[1]),
        groups=op.groups,
    )
    return emit(array.Reshape(emit(made), (batch, *spatial, outputs)))


def _number(size: Size) -> int:
    assert isinstance(size, int), "weights have no symbolic sizes"
    return size


def _by_formula(op: array.Convolution, emit: Builder) -> Sequence[Value]:
    """Any convolution, element by element."""
    source, weights, result = (tensor_type(v) for v in (op.source, op.kernel, op.result))
    layout = op.layout
    channels, outputs = weights.shape[layout.kernel_in], weights.shape[layout.kernel_out]
    window = [weights.shape[axis] for axis in layout.kernel_spatial]
    extents = [source.shape[axis] for axis in layout.spatial]

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        picture, kernels = arrays
        out, spatial = indices[layout.channel], [indices[axis] for axis in layout.spatial]
        group = None
        if op.groups > 1:
            group = inner(scalar.RawDivide(out, size(inner, outputs // op.groups)))

        def element(deep: Builder, folded: list[Value]) -> Value:
            *steps, channel = folded
            of_all = channel  # the channel of the source, of all groups
            if group is not None:
                of_all = deep(scalar.Add(times(deep, group, channels), channel))
            taps, conditions = _taps(deep, op, spatial, steps, extents)
            places = {0: indices[0], layout.channel: of_all}
            places |= dict(zip(layout.spatial, taps, strict=True))
            x = load(deep, picture, [places[axis] for axis in range(source.rank)])
            w = load(deep, kernels, _kernel_places(layout, steps, channel, out))
            product = deep(scalar.Multiply(x, w))
            zero = number(deep, 0, wide(source.dtype))
            return choose(deep, both(deep, conditions), product, zero)

        total = reduce(inner, (*window, channels), "add", element)
        return convert(inner, total, result.dtype)

    return (generic(emit, op.operands, result.shape, formula),)


@lowers(array.DepthwiseGradient)
def _depthwise_gradient(op: Op, emit: Builder) -> Sequence[Value]:
    """The sums over the last spatial axis, which are short and lie in the cache, then those over all.

    So the source is read once from memory for all elements of the kernel.
    """
    assert isinstance(op, array.DepthwiseGradient)
    source, result = tensor_type(op.source), tensor_type(op.result)
    batch, *spatial, channels = tensor_type(op.cotangent).shape
    lines = (batch, *spatial[:-1])
    dtype = wide(source.dtype)

    def of_a_line(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        picture, cotangent = arrays
        line, steps, channel = indices[: len(lines)], indices[len(lines) : -1], indices[-1]

        def element(deep: Builder, folded: list[Value]) -> Value:
            at = [*line[1:], *folded]
            places, conditions = _taps(deep, op, at, steps, source.shape[1:-1])
            x = load(deep, picture, [line[0], *places, channel])
            product = deep(scalar.Multiply(x, load(deep, cotangent, [*line, *folded, channel])))
            return choose(deep, both(deep, conditions), product, number(deep, 0, dtype))

        return reduce(inner, (spatial[-1],), "add", element)

    def of_all(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        *steps, _, channel = indices

        def element(deep: Builder, folded: list[Value]) -> Value:
            return load(deep, arrays[0], [*folded, *steps, channel])

        return convert(inner, reduce(inner, lines, "add", element), result.dtype)

    partial = generic(emit, op.operands, (*lines, *op.window, channels), of_a_line)
    return (generic(emit, (partial,), result.shape, of_all),)


def _taps(
    emit: Builder,
    op: array.Convolution | array.DepthwiseGradient,
    indices: Sequence[Value],
    steps: Sequence[Value],
    extents: Sequence[Size],
) -> tuple[list[Value], list[Value]]:
    """Where one element of the kernel meets the source along each spatial axis, and when it does."""
    places: list[Value] = []
    conditions: list[Value] = []
    for k, (index, step, extent) in enumerate(zip(indices, steps, extents, strict=True)):
        place, inside = _tap(emit, op, k, index, step, extent)
        places.append(place)
        conditions += inside
    return places, conditions


def _tap(
    emit: Builder,
    op: array.Convolution | array.DepthwiseGradient,
    k: int,
    index: Value,
    step: Value,
    extent: Size,
) -> tuple[Value, list[Value]]:
    """Where one element of the kernel meets the source along a spatial axis, and when it does."""
    low, high = op.padding[k]
    spread = op.source_dilations[k] if isinstance(op, array.Convolution) else 1
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
    some = never_negative(extent - 1, bounds_around(op))

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        # Of no elements none is chosen: the call fails.
        last = (
            None
            if some or op.optional
            else inner(kernel.CheckIndex(size(inner, extent - 1), extent))
        )

        def at(deep: Builder, k: Value) -> Value:
            return load(deep, arrays[0], [*indices[: op.axis], k, *indices[op.axis :]])

        best = reduce(inner, (extent,), combine, lambda deep, folded: at(deep, folded[0]))

        def place(deep: Builder, folded: list[Value]) -> Value:
            value = at(deep, folded[0])
            chosen = deep(scalar.Compare(value, best, "eq"))
            if source.dtype.is_float:  # a NaN wins, and equals nothing
                is_nan = deep(scalar.Compare(value, value, "ne"))
                chosen = deep(scalar.Or(chosen, is_nan))
            here = convert(deep, folded[0], op.dtype)
            beyond = size(deep, extent) if last is None else plus(deep, last, 1)
            return deep(scalar.Select(chosen, here, convert(deep, beyond, op.dtype)))

        return reduce(inner, (extent,), "minimum", place)

    return (generic(emit, op.operands, result.shape, formula),)
