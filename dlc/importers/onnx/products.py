"""Operators on rows and matrices: products, reductions, softmax and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.normalize import normalized
from dlc.dialects.nn.rows import in_dtype, mean, numbers, spread, total, widened
from dlc.importers.onnx.step import Importer, NodeResults, Step, common_shape, stretched
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import product
from dlc.ir.types import F32, I64


def _matmul(step: Step) -> NodeResults:
    """As NumPy's `@`: vectors count as one row or one column, leading axes are stretched."""
    x, y, emit = step.value(0), step.value(1), step.emit
    left, right = array.tensor_type(x).shape, array.tensor_type(y).shape
    if not left or not right:
        raise step.wrong("takes tensors with at least one axis")
    if len(left) == 1:
        x = reshape(emit, x, (1, *left))
    if len(right) == 1:
        y = reshape(emit, y, (*right, 1))
    rows, columns = array.tensor_type(x).shape, array.tensor_type(y).shape
    if len(columns) == 2 and len(rows) > 2:
        flat = reshape(emit, x, (product(rows[:-1]), rows[-1]))
        whole = reshape(emit, emit(array.MatMul(flat, y)), (*rows[:-1], columns[-1]))
    else:
        batch = common_shape(step, [rows[:-2], columns[:-2]])
        x = stretched(emit, x, (*batch, *rows[-2:]))
        y = stretched(emit, y, (*batch, *columns[-2:]))
        whole = emit(array.MatMul(x, y))
    shape = list(array.tensor_type(whole).shape)
    if len(left) == 1:
        del shape[-2]
    if len(right) == 1:
        del shape[-1]
    return reshape(emit, whole, tuple(shape))


def _gemm(step: Step) -> NodeResults:
    x, y, emit = step.value(0), step.value(1), step.emit
    if step.flag("transA"):
        x = transpose(emit, x, (1, 0))
    if step.flag("transB"):
        y = transpose(emit, y, (1, 0))
    whole = emit(array.MatMul(x, y))
    alpha, beta = step.number("alpha", 1.0), step.number("beta", 1.0)
    if alpha != 1:
        whole = times(emit, whole, alpha)
    extra = step.optional(2)
    if extra is None or beta == 0:
        return whole
    if beta != 1:
        extra = times(emit, extra, beta)
    return emit(array.Add(whole, stretched(emit, extra, array.tensor_type(whole).shape)))


def _einsum(step: Step) -> NodeResults:
    return array.einsum(step.emit, step.text("equation", ""), step.values())


# Softmax ------------------------------------------------------------------------------------------


def _softmax(make: Callable[[Value, int], Op]) -> Importer:
    def apply(step: Step) -> NodeResults:
        x, emit = step.value(0), step.emit
        shape = array.tensor_type(x).shape
        if step.opset >= 13:
            return emit(make(x, step.axis(step.integer("axis", -1), len(shape))))
        # All axes from `axis` on are one row.
        axis = step.axis(step.integer("axis", 1), len(shape)) if shape else 0
        rows = reshape(emit, x, (*shape[:axis], product(shape[axis:])))
        return reshape(emit, emit(make(rows, axis)), shape)

    return apply


def _layer_normalization(step: Step) -> NodeResults:
    x, emit = step.value(0), step.emit
    type = array.tensor_type(x)
    axis = step.axis(step.integer("axis", -1), type.rank)
    row = type.shape[axis:]
    scale = stretched(emit, step.value(1), row)
    shift = step.optional(2)
    if shift is not None:
        shift = stretched(emit, shift, row)
    eps = step.number("epsilon", 1e-5)
    whole = nn.layer_norm(emit, x, scale, shift, axis=axis, eps=eps)
    return [whole, *_moments(step, x, axis, eps)] if len(step.node.outputs) > 1 else whole


def _moments(step: Step, x: Value, axis: int, eps: float) -> list[Value]:
    """The mean of each row and the inverse of its deviation, in the dtype `stash_type`."""
    emit = step.emit
    x = in_dtype(emit, x, step.dtype("stash_type") if "stash_type" in step.node.attributes else F32)
    shape = array.tensor_type(x).shape
    axes = tuple(range(axis, len(shape)))
    kept = (*shape[:axis], *[1] * len(axes))
    middle = _mean(emit, x, axes)
    apart = emit(array.Subtract(x, spread(emit, middle, x, axes)))
    variance = _mean(emit, emit(array.Multiply(apart, apart)), axes)
    inverse = emit(array.Rsqrt(plus(emit, variance, eps)))
    return [reshape(emit, middle, kept), reshape(emit, inverse, kept)]


def _rms_normalization(step: Step) -> NodeResults:
    x = step.value(0)
    type = array.tensor_type(x)
    axis = step.axis(step.integer("axis", -1), type.rank)
    scale = stretched(step.emit, step.value(1), type.shape[axis:])
    return nn.rms_norm(step.emit, x, scale, axis=axis, eps=step.number("epsilon", 1e-5))


def _hardmax(step: Step) -> NodeResults:
    """1 at the first largest element of each row, elsewhere 0."""
    x, emit = step.value(0), step.emit
    type = array.tensor_type(x)
    if step.opset < 13:
        raise step.unsupported("before opset 13 is not imported")
    axis = step.axis(step.integer("axis", -1), type.rank)
    places = array.iota(emit, type, axis)
    best = emit(array.Cast(emit(array.ArgMax(x, axis)), I64))
    here = emit(array.Compare(places, spread(emit, best, places, (axis,)), "eq"))
    return emit(array.Cast(here, type.dtype))


def _lp_normalization(step: Step) -> NodeResults:
    """Each row divided by its norm; a row of zeros stays."""
    x, emit = step.value(0), step.emit
    axis = step.axis(step.integer("axis", -1), array.tensor_type(x).rank)
    norm = _norm1 if step.integer("p", 2) == 1 else _norm2
    whole = spread(emit, norm(emit, x, (axis,)), x, (axis,))
    zero = array.constant_like(emit, 0, x)
    empty = emit(array.Compare(whole, zero, "eq"))
    return emit(array.Select(empty, zero, emit(array.Divide(x, whole))))


def _mean_variance(step: Step) -> NodeResults:
    axes = step.axes(step.list("axes") or (0, 2, 3), step.type(0).rank)
    return normalized(step.emit, step.value(0), axes, 1e-9)


# Reductions ---------------------------------------------------------------------------------------

Reduce = Callable[[Builder, Value, Sequence[int]], Value]


def _reduction(function: Reduce, axes_as_input: int) -> Importer:
    """From opset `axes_as_input` on the axes are an operand."""

    def apply(step: Step) -> NodeResults:
        x = step.value(0)
        type = array.tensor_type(x)
        given = step.list("axes")
        if step.opset >= axes_as_input and step.operand(1) is not None:
            given = tuple(step.integers(1))
        if not given and step.flag("noop_with_empty_axes"):
            return function(step.emit, x, ())
        axes = step.axes(given, type.rank) if given else tuple(range(type.rank))
        reduced = function(step.emit, x, axes)
        if not step.flag("keepdims", default=True):
            return reduced
        kept = [1 if axis in axes else size for axis, size in enumerate(type.shape)]
        return reshape(step.emit, reduced, tuple(kept))

    return apply


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
    def apply(step: Step) -> NodeResults:
        x, emit = step.value(0), step.emit
        type = array.tensor_type(x)
        axis = step.axis(step.integer("axis", 0), type.rank)
        last = step.flag("select_last_index")  # the first one from the other end
        place = emit(make(emit(array.Reverse(x, (axis,))) if last else x, axis))
        found = emit(array.Cast(place, I64))
        if last:
            end = plus(emit, numbers(emit, type.shape[axis], array.tensor_type(found)), -1)
            found = emit(array.Subtract(end, found))
        if not step.flag("keepdims", default=True):
            return found
        return reshape(emit, found, (*type.shape[:axis], 1, *type.shape[axis + 1 :]))

    return apply


IMPORTERS: dict[str, Importer] = {
    "ArgMax": _arg(array.ArgMax),
    "ArgMin": _arg(array.ArgMin),
    "Einsum": _einsum,
    "Gemm": _gemm,
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
    "ReduceSum": _reduction(_plain(array.ReduceSum), 13),
    "ReduceSumSquare": _reduction(_sum_square, 18),
    "Softmax": _softmax(nn.Softmax),
}
