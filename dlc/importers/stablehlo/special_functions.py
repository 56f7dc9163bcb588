"""Functions of CHLO, which StableHLO has no operations for."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.elementwise import evened, in_single, unsigned_of
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.ir.core import Builder, Op, Value


def _simple(kind: Callable[[Value], Op]) -> Importer:
    return in_single(lambda emit, x: emit(kind(x)))


def _complement(emit: Builder, x: Value) -> Value:
    """`1 - erf(x)`."""
    return emit(array.Subtract(array.constant_like(emit, 1, x), emit(array.Erf(x))))


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
    best, places = context.emit.all(array.TopK(context.value(0), last, context.shape()[last]))
    return [best, in_dtype(context.emit, places, context.dtype_of(1))]


IMPORTERS: dict[str, Importer] = {
    "chlo.acos": _simple(array.Acos),
    "chlo.acosh": _simple(array.Acosh),
    "chlo.asin": _simple(array.Asin),
    "chlo.asinh": _simple(array.Asinh),
    "chlo.atan": _simple(array.Atan),
    "chlo.atanh": _simple(array.Atanh),
    "chlo.cosh": _simple(array.Cosh),
    "chlo.erf": _simple(array.Erf),
    "chlo.erfc": in_single(_complement),
    "chlo.is_inf": _is_inf,
    "chlo.is_neg_inf": _is_infinite(float("-inf")),
    "chlo.is_pos_inf": _is_infinite(float("inf")),
    "chlo.next_after": _next_after,
    "chlo.sinh": _simple(array.Sinh),
    "chlo.square": _square,
    "chlo.tan": _simple(array.Tan),
    "chlo.top_k": _top_k,
}
