"""Operators that combine the elements along axes: reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import square
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, mean, numbers, spread, total, widened
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import product
from dlc.ir.types import BOOL, I64, TensorType

Reduce = Callable[[Builder, Value, tuple[int, ...]], Value]


def _reduced(context: NodeContext, x: Value, reduce: Reduce, name: str = "dim") -> Value:
    """A reduction over the axes that are named, with axes of size 1 left where they are to be kept."""
    axes = context.axes(name, tensor_type(x).rank)
    return reshape(context.emit, reduce(context.emit, x, axes), context.type.shape)


def _reduction(reduce: Reduce) -> Importer:
    return lambda context: _reduced(context, context.value("self", context.dtype), reduce)


def _wide_reduction(reduce: Reduce) -> Importer:
    """One that is computed in at least f32 and rounded once."""

    def apply(context: NodeContext) -> Operand:
        x = widened(context.emit, context.value("self", context.dtype))
        return in_dtype(context.emit, _reduced(context, x, reduce), context.dtype)

    return apply


def _plain(make: Callable[[Value, tuple[int, ...]], Op]) -> Reduce:
    return lambda emit, x, axes: emit(make(x, axes)) if axes else x


def _of_truth(make: Callable[[Value, tuple[int, ...]], Op]) -> Importer:
    """Of elements that count as true where they are not 0."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        if tensor_type(x).dtype is not BOOL:
            x = emit(array.Compare(x, array.constant_like(emit, 0, x), "ne"))
        return _reduced(context, x, _plain(make))

    return apply


def _variance(root: bool, with_mean: bool = False) -> Importer:
    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, widened(context.emit, context.value("self"))
        axes = context.axes("dim", tensor_type(x).rank)
        middle = mean(emit, x, axes)
        apart = emit(array.Subtract(x, spread(emit, middle, x, axes)))
        summed = total(emit, square(emit, apart), axes)
        count = product(tensor_type(x).shape[axis] for axis in axes)
        less = _correction(context)
        divisor = numbers(emit, count, tensor_type(summed))
        if less:
            divisor = emit(array.Subtract(divisor, array.constant_like(emit, less, divisor)))
        found = emit(array.Divide(summed, divisor))
        found = emit(array.Sqrt(found)) if root else found
        found = reshape(emit, in_dtype(emit, found, context.dtype), context.type.shape)
        if not with_mean:
            return found
        return found, reshape(emit, in_dtype(emit, middle, context.dtype), context.type.shape)

    return apply


def _correction(context: NodeContext) -> float:
    """What the number of elements is lessened by."""
    if "unbiased" in context.node.arguments:
        return float(context.flag("unbiased"))
    return context.number("correction", 1)


def _mean(emit: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    return mean(emit, x, axes)


def _norm(context: NodeContext) -> Operand:
    """The norm of order `p` or `ord` over axes."""
    emit = context.emit
    order = context.number("ord" if "ord" in context.node.arguments else "p", 2)
    x = widened(emit, context.value("self", context.dtype))
    return in_dtype(emit, _reduced(context, x, _norm_of(order)), context.dtype)


def _norm_of(order: float) -> Reduce:
    def reduce(emit: Builder, x: Value, axes: tuple[int, ...]) -> Value:
        size = emit(array.Abs(x))
        if order == 2:
            return emit(array.Sqrt(total(emit, square(emit, x), axes)))
        if order == 1:
            return total(emit, size, axes)
        if math.isinf(order):
            return emit((array.ReduceMax if order > 0 else array.ReduceMin)(size, axes))
        if order == 0:
            zero = array.constant_like(emit, 0, size)
            present = in_dtype(emit, emit(array.Compare(size, zero, "ne")), tensor_type(x).dtype)
            return total(emit, present, axes)
        powers = emit(array.Power(size, array.constant_like(emit, order, size)))
        summed = total(emit, powers, axes)
        return emit(array.Power(summed, array.constant_like(emit, 1 / order, summed)))

    return reduce


def _distances(context: NodeContext) -> Operand:
    """The norm of the difference of each row of one tensor and each row of another."""
    emit, shape = context.emit, context.type.shape
    x, y = context.value("x1"), context.value("x2")
    wide = (*shape, tensor_type(x).shape[-1])
    rows = tensor_type(x).shape
    x = stretched(emit, reshape(emit, x, (*rows[:-1], 1, rows[-1])), wide)
    rows = tensor_type(y).shape
    y = stretched(emit, reshape(emit, y, (*rows[:-2], 1, *rows[-2:])), wide)
    apart = emit(array.Subtract(x, y))
    return _norm_of(context.number("p"))(emit, apart, (len(shape),))


def log_sum_exp(emit: Builder, x: Value, axes: Sequence[int]) -> Value:
    """With the largest element taken out, so that no exponential overflows."""
    largest = emit(array.ReduceMax(x, tuple(axes)))
    size = emit(array.Abs(largest))
    finite = emit(array.Compare(size, array.constant_like(emit, math.inf, largest), "lt"))
    base = emit(array.Select(finite, largest, array.constant_like(emit, 0, largest)))
    apart = emit(array.Subtract(x, spread(emit, base, x, axes)))
    return emit(array.Add(emit(array.Log(total(emit, emit(array.Exp(apart)), axes))), base))


# Softmax ------------------------------------------------------------------------------------------


def _softmax(make: Callable[[Value, int], Op]) -> Importer:
    def apply(context: NodeContext) -> Operand:
        x = context.value("self", context.dtype)
        rank = tensor_type(x).rank
        if not rank:
            one = context.emit(make(reshape(context.emit, x, (1,)), 0))
            return reshape(context.emit, one, ())
        return context.emit(make(x, context.axis("dim", rank)))

    return apply


def _safe_softmax(context: NodeContext) -> Operand:
    """A softmax whose rows of nothing but minus infinity are 0."""
    emit, x = context.emit, context.value("self", context.dtype)
    axis = context.axis("dim", tensor_type(x).rank)
    largest = emit(array.ReduceMax(x, (axis,)))
    is_empty = emit(array.Compare(largest, array.constant_like(emit, -math.inf, largest), "eq"))
    y = emit(nn.Softmax(x, axis))
    return emit(
        array.Select(spread(emit, is_empty, x, (axis,)), array.constant_like(emit, 0, y), y)
    )


# Extremes -----------------------------------------------------------------------------------------


def _arg(make: Callable[[Value, int], Op]) -> Importer:
    """The place of an extreme along an axis, or in the whole tensor."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        if context.given("dim") is None:
            x, axis = reshape(emit, x, (tensor_type(x).size,)), 0
        else:
            axis = context.axis("dim", tensor_type(x).rank)
        found = emit(array.Cast(emit(make(x, axis)), I64))
        return reshape(emit, found, context.type.shape)

    return apply


def _extreme(
    reduce: type[array.ReduceMax | array.ReduceMin], arg: type[array.ArgMax | array.ArgMin]
) -> Importer:
    """The largest or smallest element along an axis and its place; without an axis, the element alone."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        rank = tensor_type(x).rank
        if "dim" not in context.node.arguments:
            return emit(reduce(x, tuple(range(rank)))) if rank else x
        if not rank:
            return x, array.fill(emit, 0, TensorType(I64))
        axis, shape = context.axis("dim", rank), context.any_type.shape
        place = emit(array.Cast(emit(arg(x, axis)), I64)) if context.node.types[1] else None
        value = emit(reduce(x, (axis,))) if context.node.types[0] else None
        return tuple([each and reshape(emit, each, shape) for each in (value, place)])

    return apply


def _both_extremes(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    rank = tensor_type(x).rank
    axes = tuple(range(rank)) if context.given("dim") is None else (context.axis("dim", rank),)
    low, high = emit(array.ReduceMin(x, axes)), emit(array.ReduceMax(x, axes))
    shape = context.type.shape
    return reshape(emit, low, shape), reshape(emit, high, shape)


IMPORTERS: dict[str, Importer] = {
    "aten._cdist_forward": _distances,
    "aten._log_softmax": _softmax(nn.LogSoftmax),
    "aten._safe_softmax": _safe_softmax,
    "aten._softmax": _softmax(nn.Softmax),
    "aten.all": _of_truth(array.ReduceAnd),
    "aten.amax": _reduction(_plain(array.ReduceMax)),
    "aten.amin": _reduction(_plain(array.ReduceMin)),
    "aten.aminmax": _both_extremes,
    "aten.any": _of_truth(array.ReduceOr),
    "aten.argmax": _arg(array.ArgMax),
    "aten.argmin": _arg(array.ArgMin),
    "aten.linalg_vector_norm": _norm,
    "aten.log_softmax": _softmax(nn.LogSoftmax),
    "aten.logsumexp": _wide_reduction(log_sum_exp),
    "aten.max": _extreme(array.ReduceMax, array.ArgMax),
    "aten.mean": _wide_reduction(_mean),
    "aten.min": _extreme(array.ReduceMin, array.ArgMin),
    "aten.norm": _norm,
    "aten.prod": _reduction(_plain(array.ReduceProduct)),
    "aten.softmax": _softmax(nn.Softmax),
    "aten.std": _variance(root=True),
    "aten.sum": _reduction(_plain(array.ReduceSum)),
    "aten.var": _variance(root=False),
    "aten.var_mean": _variance(root=False, with_mean=True),
}
