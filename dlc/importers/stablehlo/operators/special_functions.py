"""Functions of CHLO that have no StableHLO operation."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.elementwise import (
    evened,
    in_single,
    total_order,
    unsigned_of,
)
from dlc.importers.stablehlo.operators.formulas import formulas
from dlc.ir.core import Op, Value
from dlc.ir.dims import Dim


def _simple(kind: Callable[[Value], Op]) -> Importer:
    return in_single(lambda emit, x: emit(kind(x)))


def _is_infinite(number: float) -> Importer:
    def apply(context: NodeContext) -> Made:
        emit, x = context.emit, context.value(0)
        return emit(array.Compare(x, array.constant_like(emit, number, x), "eq"))

    return apply


def _is_inf(context: NodeContext) -> Made:
    emit, size = context.emit, context.emit(array.Abs(context.value(0)))
    return emit(array.Compare(size, array.constant_like(emit, float("inf"), size), "eq"))


def _square(context: NodeContext) -> Made:
    x = context.value(0)
    return context.emit(array.Multiply(x, x))


def _next_after(context: NodeContext) -> Made:
    """The float next to x in the direction of y, by counting its bits up or down."""
    emit = context.emit
    x, y = evened(emit, context.operands)
    dtype = tensor_type(x).dtype
    unsigned = unsigned_of(dtype)
    bits, other = (emit(array.Bitcast(value, unsigned)) for value in (x, y))

    def number(value: int) -> Value:
        return array.constant_like(emit, value, bits)

    sign = number(1 << (dtype.bits - 1))
    size = emit(array.And(bits, number((1 << (dtype.bits - 1)) - 1)))
    other_size = emit(array.And(other, number((1 << (dtype.bits - 1)) - 1)))
    signs, other_sign = emit(array.And(bits, sign)), emit(array.And(other, sign))
    least = emit(array.Or(other_sign, number(1)))
    differ = emit(array.Compare(signs, other_sign, "ne"))
    larger = emit(array.Compare(size, other_size, "gt"))
    down = emit(array.Or(differ, larger))
    step = emit(array.Select(down, number((1 << dtype.bits) - 1), number(1)))
    moved = emit(array.Add(bits, step))
    is_zero = emit(array.Compare(size, number(0), "eq"))
    found = emit(array.Select(is_zero, least, moved))
    equal = emit(array.Compare(x, y, "eq"))
    found = emit(array.Select(equal, other, found))
    nan = emit(array.Add(x, y))
    unordered = emit(array.Or(emit(array.Compare(x, x, "ne")), emit(array.Compare(y, y, "ne"))))
    return emit(array.Select(unordered, nan, emit(array.Bitcast(found, dtype))))


def _top_k(context: NodeContext) -> Made:
    """The k largest along the last axis and their places; as many as the result has."""
    last = context.type(0).rank - 1
    return top_k(context, last, context.shape()[last], largest=True)


def top_k(context: NodeContext, axis: int, k: int | Dim, *, largest: bool) -> list[Value]:
    """The k best along an axis and their places, in the total order of floats: -NaN, -inf, .., inf, NaN."""
    emit, x = context.emit, context.value(0)
    keys = total_order(emit, x) if tensor_type(x).dtype.is_float else x
    best, places = emit.all(array.TopK(keys, axis, k, largest))
    if keys is not x:
        best = array.take_along(emit, x, places, axis)
    return [best, in_dtype(emit, places, context.dtype_of(1))]


def _approximate_top_k(context: NodeContext) -> Made:
    """As XLA computes it without hardware for it: exactly."""
    config = dict(context.pairs_of("mhlo.backend_config"))
    axis, called = config.get("reduction_dim", 0), context.given("called_computations")
    assert isinstance(axis, int)
    if context.shape()[axis] != config.get("top_k") or not isinstance(called, tuple):
        raise context.unsupported("without the best of all parts is not imported")
    (compared,) = formulas(context.regions.function(str(called[0])))
    return top_k(context, axis, context.shape()[axis], largest=compared[1] == "GT")


IMPORTERS: dict[str, Importer] = {
    "chlo.acos": _simple(array.Acos),
    "chlo.acosh": _simple(array.Acosh),
    "chlo.asin": _simple(array.Asin),
    "chlo.asinh": _simple(array.Asinh),
    "chlo.atan": _simple(array.Atan),
    "chlo.atanh": _simple(array.Atanh),
    "chlo.cosh": _simple(array.Cosh),
    "chlo.erf": _simple(array.Erf),
    "chlo.is_inf": _is_inf,
    "chlo.is_neg_inf": _is_infinite(float("-inf")),
    "chlo.is_pos_inf": _is_infinite(float("inf")),
    "chlo.next_after": _next_after,
    "chlo.sinh": _simple(array.Sinh),
    "chlo.square": _square,
    "chlo.tan": _simple(array.Tan),
    "chlo.top_k": _top_k,
    "stablehlo.custom_call @ApproxTopK": _approximate_top_k,
}
