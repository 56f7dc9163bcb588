"""Operators on rows and matrices: products, reductions, softmax and related ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.normalize import normalized
from dlc.dialects.nn.rows import in_dtype, mean, numbers, spread, total, widened
from dlc.importers.onnx.node_context import (
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    common_shape,
    stretched,
)
from dlc.importers.onnx.operators.counting import known_count
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import product
from dlc.ir.types import F32, I64, TensorType


def _matmul(context: NodeContext) -> NodeResults:
    return matmul(context, context.value(0), context.value(1))


def matmul(context: NodeContext, x: Value, y: Value) -> Value:
    """As NumPy's `@`: vectors count as one row or one column, leading axes are stretched."""
    emit = context.emit
    left, right = array.tensor_type(x).shape, array.tensor_type(y).shape
    if not left or not right:
        raise context.wrong("takes tensors with at least one axis")
    if len(left) == 1:
        x = reshape(emit, x, (1, *left))
    if len(right) == 1:
        y = reshape(emit, y, (*right, 1))
    x, y = context.with_common_axis((x, -1), (y, -2))
    rows, columns = array.tensor_type(x).shape, array.tensor_type(y).shape
    if len(columns) == 2 and len(rows) > 2:
        flat = reshape(emit, x, (product(rows[:-1]), rows[-1]))
        whole = reshape(emit, emit(array.MatMul(flat, y)), (*rows[:-1], columns[-1]))
    else:
        batch = common_shape(context, [rows[:-2], columns[:-2]])
        x = stretched(emit, x, (*batch, *rows[-2:]))
        y = stretched(emit, y, (*batch, *columns[-2:]))
        whole = emit(array.MatMul(x, y))
    shape = list(array.tensor_type(whole).shape)
    if len(left) == 1:
        del shape[-2]
    if len(right) == 1:
        del shape[-1]
    return reshape(emit, whole, tuple(shape))


def gemm(context: NodeContext) -> Value:
    """`alpha * x @ y + beta * c`, with x and y transposed where the attributes say so."""
    x, y, emit = context.value(0), context.value(1), context.emit
    if context.flag("transA"):
        x = transpose(emit, x, (1, 0))
    if context.flag("transB"):
        y = transpose(emit, y, (1, 0))
    x, y = context.with_common_axis((x, -1), (y, -2))
    whole = emit(array.MatMul(x, y))
    alpha, beta = context.number("alpha", 1.0), context.number("beta", 1.0)
    if alpha != 1:
        whole = times(emit, whole, alpha)
    extra = context.optional(2)
    if extra is None or beta == 0:
        return whole
    if beta != 1:
        extra = times(emit, extra, beta)
    return emit(array.Add(whole, stretched(emit, extra, array.tensor_type(whole).shape)))


def _einsum(context: NodeContext) -> NodeResults:
    return array.einsum(context.emit, context.text("equation", ""), context.values())


# Softmax ------------------------------------------------------------------------------------------


def _softmax(make: Callable[[Value, int], Op]) -> Importer:
    def apply(context: NodeContext) -> NodeResults:
        x, emit = context.value(0), context.emit
        shape = array.tensor_type(x).shape
        if context.opset >= 13:
            return emit(make(x, context.axis(context.integer("axis", -1), len(shape))))
        # All axes from `axis` on are one row.
        axis = context.axis(context.integer("axis", 1), len(shape)) if shape else 0
        rows = reshape(emit, x, (*shape[:axis], product(shape[axis:])))
        return reshape(emit, emit(make(rows, axis)), shape)

    return apply


def _layer_normalization(context: NodeContext) -> NodeResults:
    x, emit = context.value(0), context.emit
    type = array.tensor_type(x)
    axis = context.axis(context.integer("axis", -1), type.rank)
    row = type.shape[axis:]
    scale = stretched(emit, context.value(1), row)
    shift = context.optional(2)
    if shift is not None:
        shift = stretched(emit, shift, row)
    eps = context.number("epsilon", 1e-5)
    whole = nn.layer_norm(emit, x, scale, shift, axis=axis, eps=eps)
    return [whole, *moments(context, x, axis, eps)] if len(context.node.outputs) > 1 else whole


def moments(context: NodeContext, x: Value, axis: int, eps: float) -> list[Value]:
    """The mean of each row and the inverse of its deviation, in the dtype `stash_type`."""
    emit = context.emit
    x = in_dtype(
        emit, x, context.dtype("stash_type") if "stash_type" in context.node.attributes else F32
    )
    shape = array.tensor_type(x).shape
    axes = tuple(range(axis, len(shape)))
    kept = (*shape[:axis], *[1] * len(axes))
    middle = _mean(emit, x, axes)
    apart = emit(array.Subtract(x, spread(emit, middle, x, axes)))
    variance = _mean(emit, emit(array.Multiply(apart, apart)), axes)
    inverse = emit(array.Rsqrt(plus(emit, variance, eps)))
    return [reshape(emit, middle, kept), reshape(emit, inverse, kept)]


def _rms_normalization(context: NodeContext) -> NodeResults:
    x = context.value(0)
    type = array.tensor_type(x)
    axis = context.axis(context.integer("axis", -1), type.rank)
    scale = stretched(context.emit, context.value(1), type.shape[axis:])
    return nn.rms_norm(context.emit, x, scale, axis=axis, eps=context.number("epsilon", 1e-5))


def _hardmax(context: NodeContext) -> NodeResults:
    """1 at the first largest element of each row, elsewhere 0."""
    x, emit = context.value(0), context.emit
    type = array.tensor_type(x)
    shape = type.shape
    if context.opset < 13:
        # All axes from `axis` on are one row.
        axis = context.axis(context.integer("axis", 1), type.rank) if shape else 0
        x = reshape(emit, x, (*shape[:axis], product(shape[axis:])))
        type = array.tensor_type(x)
    else:
        axis = context.axis(context.integer("axis", -1), type.rank)
    index = array.iota(emit, type, axis)
    best = emit(array.Cast(emit(array.ArgMax(x, axis)), I64))
    is_best = emit(array.Compare(index, spread(emit, best, index, (axis,)), "eq"))
    return reshape(emit, emit(array.Cast(is_best, type.dtype)), shape)


def _determinant(context: NodeContext) -> NodeResults:
    """By elimination with the largest pivot of each column, written out for each row."""
    emit, type = context.emit, context.type(0)
    size = type.shape[-1] if type.rank > 1 else None
    if type.rank < 2 or size != type.shape[-2]:
        raise context.wrong(f"takes square matrices, found {type.text}")
    if not isinstance(size, int) or not 0 < size <= LARGEST:
        raise context.unsupported(f"of matrices of {size} rows; 1 to {LARGEST} are imported")
    batch = product(type.shape[:-2])
    left = widened(emit, reshape(emit, context.value(0), (batch, size, size)))
    found: Value | None = None
    for rows in range(size, 0, -1):
        pivot, left = _eliminated(emit, left, rows)
        found = pivot if found is None else emit(array.Multiply(found, pivot))
    assert found is not None
    return in_dtype(emit, reshape(emit, found, type.shape[:-2]), type.dtype)


LARGEST = 16
"""Rows of the largest matrix whose determinant is written out."""


def _eliminated(emit: Builder, x: Value, rows: int) -> tuple[Value, Value]:
    """The signed pivot of the first column of matrices `[batch, rows, rows]`, and what is left of them."""
    batch = array.tensor_type(x).shape[0]
    first = reshape(emit, array.slice_axis(emit, x, 2, 0, 1), (batch, rows))
    place = emit(array.Cast(emit(array.ArgMax(emit(array.Abs(first)), 1)), I64))
    every = array.iota(emit, array.tensor_type(place), 0)
    best = emit(array.Gather(x, (every, place), (0, 1)))
    # The row of the pivot changes places with the first, which turns the sign.
    zero = array.constant_like(emit, 0, place)
    moves = emit(array.Compare(place, zero, "ne"))
    pivot = reshape(emit, array.slice_axis(emit, best, 1, 0, 1), (batch,))
    signed = emit(array.Select(moves, emit(array.Negate(pivot)), pivot))
    if rows == 1:
        return signed, x
    order = array.iota(emit, TensorType(I64, (batch, rows - 1)), 1)
    behind = plus(emit, order, 1)
    is_pivot = emit(array.Compare(behind, spread(emit, place, behind, (1,)), "eq"))
    source = emit(array.Select(is_pivot, array.constant_like(emit, 0, behind), behind))
    wide = array.iota(emit, array.tensor_type(source), 0)
    rest = emit(array.Gather(x, (wide, source), (0, 1)))
    column = array.slice_axis(emit, rest, 2, 0, 1)
    # A column of zeros has the pivot 0, and nothing to eliminate.
    empty = emit(array.Compare(pivot, array.constant_like(emit, 0, pivot), "eq"))
    divisor = emit(array.Select(empty, array.constant_like(emit, 1, pivot), pivot))
    factor = reshape(emit, column, (batch, rows - 1))
    factor = emit(array.Divide(factor, spread(emit, divisor, factor, (1,))))
    row = array.slice_axis(emit, best, 1, 1, rows)
    rest = array.slice_axis(emit, rest, 2, 1, rows)
    shape = array.tensor_type(rest).shape
    taken = emit(
        array.Multiply(
            emit(array.Broadcast(factor, shape, (0, 1))), emit(array.Broadcast(row, shape, (0, 2)))
        )
    )
    return signed, emit(array.Subtract(rest, taken))


def _lp_normalization(context: NodeContext) -> NodeResults:
    """Each row divided by its norm; a row of zeros stays."""
    x, emit = context.value(0), context.emit
    axis = context.axis(context.integer("axis", -1), array.tensor_type(x).rank)
    norm = _norm1 if context.integer("p", 2) == 1 else _norm2
    whole = spread(emit, norm(emit, x, (axis,)), x, (axis,))
    zero = array.constant_like(emit, 0, x)
    empty = emit(array.Compare(whole, zero, "eq"))
    return emit(array.Select(empty, zero, emit(array.Divide(x, whole))))


def _mean_variance(context: NodeContext) -> NodeResults:
    axes = context.axes(context.list("axes") or (0, 2, 3), context.type(0).rank)
    return normalized(context.emit, context.value(0), axes, 1e-9)


# Reductions ---------------------------------------------------------------------------------------

Reduce = Callable[[Builder, Value, Sequence[int]], Value]


def _reduction(function: Reduce, axes_as_input: int) -> Importer:
    """From opset `axes_as_input` on the axes are an operand."""

    def apply(context: NodeContext) -> NodeResults:
        x = context.value(0)
        type = array.tensor_type(x)
        named_axes = context.list("axes")
        if context.opset >= axes_as_input and context.operand(1) is not None:
            named_axes = tuple(context.integers(1))
        if not named_axes and context.flag("noop_with_empty_axes"):
            return function(context.emit, x, ())
        axes = context.axes(named_axes, type.rank) if named_axes else tuple(range(type.rank))
        reduced = function(context.emit, x, axes)
        if not context.flag("keepdims", default=True):
            return reduced
        kept = [1 if axis in axes else size for axis, size in enumerate(type.shape)]
        return reshape(context.emit, reduced, tuple(kept))

    return apply


def _sum(context: NodeContext) -> NodeResults:
    """Of a mask that is counted in all, the size that it counts."""
    count = known_count(context.emit, context.operand(0))
    total = _total(context)
    if count is None or not isinstance(total, Value) or array.tensor_type(total).size != 1:
        return total
    return Constant.of_sizes([count], (1,) * array.tensor_type(total).rank)


def _plain(make: Callable[[Value, tuple[int, ...]], Op]) -> Reduce:
    return lambda emit, x, axes: emit(make(x, tuple(axes)))


def _mean(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    return in_dtype(emit, mean(emit, widened(emit, x), axes), array.tensor_type(x).dtype)


def _sum_square(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    return in_dtype(
        emit, total(emit, square(emit, widened(emit, x)), axes), array.tensor_type(x).dtype
    )


def _norm1(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    return total(emit, emit(array.Abs(x)), axes)


def _norm2(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    summed = total(emit, square(emit, widened(emit, x)), axes)
    return in_dtype(emit, emit(array.Sqrt(summed)), array.tensor_type(x).dtype)


def _log_sum(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    return emit(array.Log(total(emit, x, axes)))


def _log_sum_exp(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    """With the largest element taken out, so that no exponential overflows."""
    largest = emit(array.ReduceMax(x, tuple(axes)))
    finite = emit(
        array.Compare(emit(array.Abs(largest)), array.constant_like(emit, math.inf, largest), "lt")
    )
    base = emit(array.Select(finite, largest, array.constant_like(emit, 0, largest)))
    apart = emit(array.Subtract(x, spread(emit, base, x, axes)))
    return emit(array.Add(emit(array.Log(total(emit, emit(array.Exp(apart)), axes))), base))


def _arg(make: Callable[[Value, int], Op]) -> Importer:
    def apply(context: NodeContext) -> NodeResults:
        x, emit = context.value(0), context.emit
        type = array.tensor_type(x)
        axis = context.axis(context.integer("axis", 0), type.rank)
        last = context.flag("select_last_index")  # the first one from the other end
        index = emit(make(emit(array.Reverse(x, (axis,))) if last else x, axis))
        index = emit(array.Cast(index, I64))
        if last:
            end = plus(emit, numbers(emit, type.shape[axis], array.tensor_type(index)), -1)
            index = emit(array.Subtract(end, index))
        if not context.flag("keepdims", default=True):
            return index
        return reshape(emit, index, (*type.shape[:axis], 1, *type.shape[axis + 1 :]))

    return apply


_total = _reduction(_plain(array.ReduceSum), 13)
IMPORTERS: dict[str, Importer] = {
    "ArgMax": _arg(array.ArgMax),
    "ArgMin": _arg(array.ArgMin),
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": gemm,
    "Hardmax": _hardmax,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax(nn.LogSoftmax),
    "LpNormalization": _lp_normalization,
    "MatMul": _matmul,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_normalization,
    "ReduceL1": _reduction(_norm1, 18),
    "ReduceL2": _reduction(_norm2, 18),
    "ReduceLogSum": _reduction(_log_sum, 18),
    "ReduceLogSumExp": _reduction(_log_sum_exp, 18),
    "ReduceMax": _reduction(_plain(array.ReduceMax), 18),
    "ReduceMean": _reduction(_mean, 18),
    "ReduceMin": _reduction(_plain(array.ReduceMin), 18),
    "ReduceProd": _reduction(_plain(array.ReduceProduct), 18),
    "ReduceSum": _sum,
    "ReduceSumSquare": _reduction(_sum_square, 18),
    "SimplifiedLayerNormalization": _rms_normalization,
    "Softmax": _softmax(nn.Softmax),
}
