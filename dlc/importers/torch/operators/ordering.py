"""Operators that depend on order (sort, top k, median), and cumulative ones (running sums, maxima)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import array, flow
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.frontend.elaboration.trace import capture
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.reductions import log_sum_exp
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import I64, TensorType


def _cumulative(make: type[array.CumulativeSum | array.CumulativeProduct]) -> Importer:
    def apply(context: NodeContext) -> Operand:
        x = context.value("self", context.dtype)
        rank = tensor_type(x).rank
        return context.emit(make(x, context.axis("dim", rank))) if rank else x

    return apply


def _sort(context: NodeContext) -> Operand:
    return _sorted(context)


def _arg_sort(context: NodeContext) -> Operand:
    return _sorted(context)[1]


def _sorted(context: NodeContext) -> tuple[Value, Value]:
    """The elements in order, and their places."""
    emit, x = context.emit, context.value("self")
    rank = tensor_type(x).rank
    if not rank:
        return x, array.fill(emit, 0, TensorType(I64))
    return _in_order(emit, x, context.axis("dim", rank, -1), descending=context.flag("descending"))


def _in_order(emit: Builder, x: Value, axis: int, *, descending: bool) -> tuple[Value, Value]:
    """The elements in order, always a stable one, and their places."""
    place = array.iota(emit, tensor_type(x), axis)
    values, places = emit.all(array.Sort(x, (place,), axis, descending))
    return values, places


def _running_extreme(
    make: type[array.CumulativeMax | array.CumulativeMin],
) -> Importer:
    """The largest or smallest element so far, and the last place where it stood; a NaN stays."""

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        type = tensor_type(x)
        if not type.rank:
            return x, array.fill(emit, 0, TensorType(I64))
        axis = context.axis("dim", type.rank)
        running = emit(make(x, axis))
        stands = emit(array.Compare(x, running, "eq"))
        is_nan = emit(array.Compare(x, x, "ne"))
        place = array.iota(emit, type, axis)
        none = array.constant_like(emit, 0, place)
        found = emit(array.Select(emit(array.Or(stands, is_nan)), place, none))
        return running, emit(array.CumulativeMax(found, axis))

    return apply


def _running_log_sum_exp(context: NodeContext) -> Operand:
    """By a loop, each step of which adds to the sum in the logarithm, so that none overflows."""
    emit, x = context.emit, context.value("self")
    type = tensor_type(x)
    if not type.rank:
        return x
    axis = context.axis("dim", type.rank)
    row = type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))
    block = Block([flow.COUNTER, row, row], [None, "sum", "x"])
    _, before, each = block.arguments
    at = Builder(block, emit.location)
    pair = [reshape(at, value, (1, *row.shape)) for value in (before, each)]
    after = log_sum_exp(at, at(array.Concatenate(tuple(pair), 0)), (0,))
    at.place(flow.Yield((after, after)))
    none = array.fill(emit, -math.inf, row)
    used = tuple(capture([block]))
    scan = flow.Scan((none,), (x,), used, block, type.shape[axis], (axis,), (axis,))
    return emit.all(scan)[1]


def _kth(context: NodeContext) -> Operand:
    """The k-th smallest element along an axis, and a place where it stands."""
    emit, x = context.emit, context.value("self")
    rank, shape = tensor_type(x).rank, context.any_type.shape
    if not rank:
        return x, array.fill(emit, 0, TensorType(I64))
    axis, k = context.axis("dim", rank, -1), context.size("k")
    ordered = _in_order(emit, x, axis, descending=False)
    found = [array.slice_axis(emit, each, axis, k - 1, k) for each in ordered]
    return tuple([reshape(emit, each, shape) for each in found])


def _median(*, of_numbers: bool) -> Importer:
    """The lower of the middle elements, and along an axis its place.

    One that is NaN is the median, or `of_numbers` left out.
    """

    def apply(context: NodeContext) -> Operand:
        emit, x = context.emit, context.value("self")
        type = tensor_type(x)
        axis = context.axis("dim", type.rank) if "dim" in context.node.arguments else None
        if not type.rank:
            return x if axis is None else (x, array.fill(emit, 0, TensorType(I64)))
        if axis is None:
            flat = reshape(emit, x, (type.size,))
            return reshape(emit, _middle(emit, flat, 0, of_numbers=of_numbers)[0], ())
        shape = context.any_type.shape
        return tuple(
            [reshape(emit, y, shape) for y in _middle(emit, x, axis, of_numbers=of_numbers)]
        )

    return apply


def _middle(emit: Builder, x: Value, axis: int, *, of_numbers: bool) -> Sequence[Value]:
    """The median along an axis, and its place: NaNs are last in order."""
    type = tensor_type(x)
    count = type.shape[axis]
    is_nan = emit(array.Compare(x, x, "ne"))
    rows = (*type.shape[:axis], 1, *type.shape[axis + 1 :])
    missing = emit(array.ReduceSum(emit(array.Cast(is_nan, I64)), (axis,)))
    missing = reshape(emit, missing, rows)
    many = numbers(emit, count - 1, tensor_type(missing))
    if of_numbers:
        less = emit(array.Subtract(many, missing))
        zero = array.constant_like(emit, 0, less)
        middle = _halved(emit, emit(array.Maximum(less, zero)))
    else:
        none = emit(array.Compare(missing, array.constant_like(emit, 0, missing), "eq"))
        middle = emit(array.Select(none, _halved(emit, many), many))
    ordered = _in_order(emit, x, axis, descending=False)
    return [array.take_along(emit, each, middle, axis) for each in ordered]


def _halved(emit: Builder, x: Value) -> Value:
    return emit(array.FloorDivide(x, array.constant_like(emit, 2, x)))


def _top_k(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    axis = context.axis("dim", tensor_type(x).rank, -1)
    largest = context.flag("largest") if "largest" in context.node.arguments else True
    values, places = emit.all(array.TopK(x, axis, context.size("k"), largest))
    return values, in_dtype(emit, places, I64)


IMPORTERS: dict[str, Importer] = {
    "aten.argsort": _arg_sort,
    "aten.cummax": _running_extreme(array.CumulativeMax),
    "aten.cummin": _running_extreme(array.CumulativeMin),
    "aten.cumprod": _cumulative(array.CumulativeProduct),
    "aten.cumsum": _cumulative(array.CumulativeSum),
    "aten.kthvalue": _kth,
    "aten.logcumsumexp": _running_log_sum_exp,
    "aten.median": _median(of_numbers=False),
    "aten.nanmedian": _median(of_numbers=True),
    "aten.sort": _sort,
    "aten.topk": _top_k,
}
