"""Operations that compute each element alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Shape
from dlc.ir.types import BF16, BOOL, F16, F32, DType

PREDICATES = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


def evened(emit: Builder, values: Sequence[Value]) -> list[Value]:
    """Values in one shape: single numbers are repeated, sizes are the same in every call."""
    shape = max((tensor_type(value).shape for value in values), key=len)
    return [_stretched(emit, value, shape) for value in values]


def _stretched(emit: Builder, value: Value, shape: Shape) -> Value:
    own = tensor_type(value).shape
    if own == shape:
        return value
    return with_sizes(emit, value, shape) if own else emit(array.Broadcast(value, shape, ()))


def _unary(kind: Callable[[Value], Op]) -> Importer:
    return lambda context: context.emit(kind(context.value(0)))


def _binary(kind: Callable[[Value, Value], Op]) -> Importer:
    def apply(context: NodeContext) -> Made:
        lhs, rhs = evened(context.emit, context.operands)
        return context.emit(kind(lhs, rhs))

    return apply


def _on_bools(on_numbers: Importer, kind: Callable[[Value, Value], Op]) -> Importer:
    """An operation of numbers that is one of logic for bools."""

    def apply(context: NodeContext) -> Made:
        if context.type(0).dtype is not BOOL:
            return on_numbers(context)
        return context.emit(kind(*evened(context.emit, context.operands)))

    return apply


# Integers -----------------------------------------------------------------------------------------


def _divide(context: NodeContext) -> Made:
    """Toward zero for integers; by 0 that is -1, all bits set, as XLA computes it."""
    emit = context.emit
    lhs, rhs = evened(emit, context.operands)
    quotient = emit(array.Divide(lhs, rhs))
    if tensor_type(lhs).dtype.is_float or _is_never_zero(context, rhs):
        return quotient
    zero = array.constant_like(emit, 0, rhs)
    ones = emit(array.Not(zero))
    return emit(array.Select(emit(array.Compare(rhs, zero, "eq")), ones, quotient))


def _is_never_zero(context: NodeContext, divisor: Value) -> bool:
    numbers = context.known.integers(divisor)
    if numbers is not None:
        return bool(numbers.all())
    sizes = context.known.sizes(divisor)
    return sizes is not None and all(context.known.sign(size) for size in sizes)


def _shift(kind: Callable[[Value, Value], Op], *, logical: bool) -> Importer:
    """A shift by a number that counts as unsigned; a logical one fills with zeros."""

    def apply(context: NodeContext) -> Made:
        emit = context.emit
        lhs, rhs = evened(emit, context.operands)
        dtype = tensor_type(lhs).dtype
        if logical:
            unsigned = unsigned_of(dtype)
            lhs, rhs = (emit(array.Bitcast(value, unsigned)) for value in (lhs, rhs))
        return emit(array.Bitcast(emit(kind(lhs, rhs)), dtype))

    return apply


def _shift_right_arithmetic(context: NodeContext) -> Made:
    """The sign fills; a shift by the width or more, or by a number below 0, leaves the sign alone."""
    emit = context.emit
    lhs, rhs = evened(emit, context.operands)
    dtype = tensor_type(lhs).dtype
    signed = signed_of(dtype)
    lhs = emit(array.Bitcast(lhs, signed))
    amount = emit(array.Bitcast(rhs, unsigned_of(dtype)))
    last = array.constant_like(emit, dtype.bits - 1, amount)
    amount = emit(array.Bitcast(emit(array.Minimum(amount, last)), signed))
    return emit(array.Bitcast(emit(array.ShiftRight(lhs, amount)), dtype))


def unsigned_of(dtype: DType) -> DType:
    """The unsigned integer of the same width."""
    return DType.named[f"u{dtype.bits}"]


def signed_of(dtype: DType) -> DType:
    """The signed integer of the same width."""
    return DType.named[f"i{dtype.bits}"]


def _abs(context: NodeContext) -> Made:
    x = context.value(0)
    return x if tensor_type(x).dtype.kind == "uint" else context.emit(array.Abs(x))


def _sign(context: NodeContext) -> Made:
    """-1, 0 or 1; NaN and the zeros are themselves."""
    emit, x = context.emit, context.value(0)
    sign = emit(array.Sign(x))
    if not tensor_type(x).dtype.is_float:
        return sign
    zero = array.constant_like(emit, 0, x)
    return emit(array.Select(emit(array.Compare(x, zero, "eq")), x, sign))


def _power(context: NodeContext) -> Made:
    """Integers to a power below 0 are 0 but for 1 and -1."""
    emit = context.emit
    x, y = evened(emit, context.operands)
    if tensor_type(x).dtype.is_float:
        return emit(array.Power(x, y))
    return _integer_power(emit, x, y)


def _integer_power(emit: Builder, x: Value, y: Value) -> Value:
    """By squaring: the bits of the exponent from the lowest on."""
    dtype = tensor_type(x).dtype
    one, zero = array.constant_like(emit, 1, x), array.constant_like(emit, 0, x)
    power, factor = one, x
    for bit in range(dtype.bits):
        shifted = emit(array.ShiftRight(y, array.constant_like(emit, bit, y)))
        odd = emit(array.Compare(emit(array.And(shifted, one)), zero, "ne"))
        power = emit(array.Select(odd, emit(array.Multiply(power, factor)), power))
        factor = emit(array.Multiply(factor, factor))
    if dtype.kind == "uint":
        return power
    parity = emit(array.Compare(emit(array.And(y, one)), zero, "eq"))
    minus = emit(array.Negate(one))
    alternating = emit(array.Select(parity, one, minus))
    small = emit(array.Select(emit(array.Compare(x, minus, "eq")), alternating, zero))
    small = emit(array.Select(emit(array.Compare(x, one, "eq")), one, small))
    return emit(array.Select(emit(array.Compare(y, zero, "lt")), small, power))


# Comparison and selection -------------------------------------------------------------------------


def _compare(context: NodeContext) -> Made:
    emit = context.emit
    lhs, rhs = evened(emit, context.operands)
    if context.text("compare_type") == "TOTALORDER" and tensor_type(lhs).dtype.is_float:
        lhs, rhs = (total_order(emit, value) for value in (lhs, rhs))
    return emit(array.Compare(lhs, rhs, PREDICATES[context.text("comparison_direction")]))


def total_order(emit: Builder, x: Value) -> Value:
    """Integers in the order of the floats, with -NaN < -inf < .. < -0 < 0 < .. < inf < NaN."""
    signed = signed_of(tensor_type(x).dtype)
    bits = emit(array.Bitcast(x, signed))
    zero = array.constant_like(emit, 0, bits)
    lowest = array.constant_like(emit, -(1 << (signed.bits - 1)), bits)
    turned = emit(array.Xor(emit(array.Not(bits)), lowest))
    return emit(array.Select(emit(array.Compare(bits, zero, "lt")), turned, bits))


def _select(context: NodeContext) -> Made:
    condition, yes, no = evened(context.emit, context.operands)
    return context.emit(array.Select(condition, yes, no))


def _clamp(context: NodeContext) -> Made:
    """`min(max(x, low), high)`, with limits for each element or for all of them."""
    emit = context.emit
    low, x, high = evened(emit, context.operands)
    return emit(array.Minimum(emit(array.Maximum(x, low)), high))


def _is_finite(context: NodeContext) -> Made:
    emit, x = context.emit, context.value(0)
    infinity = array.constant_like(emit, float("inf"), x)
    return emit(array.Compare(emit(array.Abs(x)), infinity, "lt"))


def _convert(context: NodeContext) -> Made:
    return in_dtype(context.emit, context.value(0), context.dtype)


# Floats -------------------------------------------------------------------------------------------


def in_single(kind: Callable[[Builder, Value], Value]) -> Importer:
    """A formula in floats, which computes f16 and bf16 in f32."""

    def apply(context: NodeContext) -> Made:
        emit, x = context.emit, context.value(0)
        dtype = tensor_type(x).dtype
        wide = F32 if dtype in (F16, BF16) else dtype
        return in_dtype(emit, kind(emit, in_dtype(emit, x, wide)), dtype)

    return apply


def _round_away(emit: Builder, x: Value) -> Value:
    """Halves away from 0: `trunc(x)`, and one more where at least a half is left."""
    whole = emit(array.Trunc(x))
    left = emit(array.Abs(emit(array.Subtract(x, whole))))
    half = array.constant_like(emit, 0.5, x)
    away = emit(array.Add(whole, emit(array.Sign(x))))
    rounded = emit(array.Select(emit(array.Compare(left, half, "ge")), away, whole))
    infinite = emit(array.Compare(emit(array.Trunc(x)), x, "eq"))
    return emit(array.Select(infinite, x, rounded))


def _cube_root(emit: Builder, x: Value) -> Value:
    """`sign(x) |x|^(1/3)`, with one step of Newton's method: `r - (r - a / r^2) / 3`."""
    size = emit(array.Abs(x))
    root = emit(array.Power(size, array.constant_like(emit, 1 / 3, x)))
    quotient = emit(array.Divide(size, emit(array.Multiply(root, root))))
    third = array.constant_like(emit, 1 / 3, x)
    step = emit(array.Multiply(emit(array.Subtract(root, quotient)), third))
    better = emit(array.Subtract(root, step))
    infinity = array.constant_like(emit, float("inf"), x)
    fits = emit(array.Compare(emit(array.Abs(better)), infinity, "lt"))  # at 0 the quotient is NaN
    return emit(array.Multiply(emit(array.Sign(x)), emit(array.Select(fits, better, root))))


def _identity(context: NodeContext) -> Made:
    return list(context.operands)


def _map(context: NodeContext) -> Made:
    """A region for each element: applied to whole tensors."""
    made = context.regions.applied(context.region(), context.operands, context.emit)
    return evened(context.emit, [*made, *context.operands])[: len(made)]


IMPORTERS: dict[str, Importer] = {
    "stablehlo.abs": _abs,
    "stablehlo.add": _on_bools(_binary(array.Add), array.Or),
    "stablehlo.and": _binary(array.And),
    "stablehlo.atan2": _binary(array.Atan2),
    "stablehlo.cbrt": in_single(_cube_root),
    "stablehlo.ceil": _unary(array.Ceil),
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.cosine": _unary(array.Cos),
    "stablehlo.divide": _divide,
    "stablehlo.exponential": _unary(array.Exp),
    "stablehlo.exponential_minus_one": _unary(array.Expm1),
    "stablehlo.floor": _unary(array.Floor),
    "stablehlo.is_finite": _is_finite,
    "stablehlo.log": _unary(array.Log),
    "stablehlo.log_plus_one": _unary(array.Log1p),
    "stablehlo.logistic": _unary(array.Sigmoid),
    "stablehlo.map": _map,
    "stablehlo.maximum": _binary(array.Maximum),
    "stablehlo.minimum": _binary(array.Minimum),
    "stablehlo.multiply": _on_bools(_binary(array.Multiply), array.And),
    "stablehlo.negate": _unary(array.Negate),
    "stablehlo.not": _unary(array.Not),
    "stablehlo.optimization_barrier": _identity,
    "stablehlo.or": _binary(array.Or),
    "stablehlo.power": _power,
    "stablehlo.remainder": _binary(array.TruncatedRemainder),
    "stablehlo.round_nearest_afz": in_single(_round_away),
    "stablehlo.round_nearest_even": _unary(array.Round),
    "stablehlo.rsqrt": _unary(array.Rsqrt),
    "stablehlo.select": _select,
    "stablehlo.shift_left": _shift(array.ShiftLeft, logical=True),
    "stablehlo.shift_right_arithmetic": _shift_right_arithmetic,
    "stablehlo.shift_right_logical": _shift(array.ShiftRight, logical=True),
    "stablehlo.sign": _sign,
    "stablehlo.sine": _unary(array.Sin),
    "stablehlo.sqrt": _unary(array.Sqrt),
    "stablehlo.subtract": _binary(array.Subtract),
    "stablehlo.tan": _unary(array.Tan),
    "stablehlo.tanh": _unary(array.Tanh),
    "stablehlo.xor": _binary(array.Xor),
}
