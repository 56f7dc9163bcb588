"""Operators that compute each element alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import reciprocal, square, times
from dlc.dialects.nn.rows import in_dtype, widened
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.facts import Ref
from dlc.importers.torch.node_context import Importer, NodeContext, Operand, computed_dtype
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Dim
from dlc.ir.types import BOOL, F32, F64, I64, DType, TensorType


def _unary(make: Callable[[Value], Op], name: str = "self") -> Importer:
    """A function of the operand in the dtype of the result."""
    return lambda context: context.emit(make(context.value(name, context.dtype)))


def formula(function: Callable[[Builder, Value], Value]) -> Importer:
    """A formula, which is computed in at least f32 and rounded once."""

    def apply(context: NodeContext) -> Operand:
        x = widened(context.emit, context.value("self", context.dtype))
        return in_dtype(context.emit, function(context.emit, x), context.dtype)

    return apply


def _pair(context: NodeContext, dtype: DType | None = None) -> tuple[Value, Value]:
    """Both operands in the shape of the result, and in its dtype or another."""
    return (
        context.stretched("self", dtype=dtype),
        context.stretched("other", dtype=dtype),
    )


def _binary(make: Callable[[Value, Value], Op]) -> Importer:
    return lambda context: context.emit(make(*_pair(context)))


def _sum(make: Callable[[Value, Value], Op]) -> Importer:
    """`self + alpha * other`, or the difference."""

    def apply(context: NodeContext) -> Operand:
        x, y = _pair(context)
        alpha = context.number("alpha", 1)
        return context.emit(make(x, y if alpha == 1 else times(context.emit, y, alpha)))

    return apply


def _reversed_difference(context: NodeContext) -> Operand:
    x, y = _pair(context)
    alpha = context.number("alpha", 1)
    return context.emit(array.Subtract(y, x if alpha == 1 else times(context.emit, x, alpha)))


def _operand_types(context: NodeContext, *names: str) -> list[TensorType]:
    """The types of operands; a number counts as one without axes."""
    found: list[TensorType] = []
    for name in names:
        given = context.given(name)
        if isinstance(given, Ref):
            found.append(context.tensor(name))
        elif isinstance(given, float):
            found.append(TensorType(F32))
        else:
            found.append(TensorType(BOOL if isinstance(given, bool) else I64))
    return found


def _compare(predicate: str) -> Importer:
    """Compared in the dtype that holds both operands."""

    def apply(context: NodeContext) -> Operand:
        dtype = computed_dtype(*_operand_types(context, "self", "other"))
        return context.emit(array.Compare(*_pair(context, dtype), predicate))

    return apply


def _divide(context: NodeContext) -> Operand:
    x, y = _pair(context)
    match context.text("rounding_mode"):
        case "floor":
            return context.emit(array.FloorDivide(x, y))
        case "trunc":
            return _truncated_quotient(context.emit, x, y)
        case _:
            return context.emit(array.Divide(x, y))


def _hypot(context: NodeContext) -> Operand:
    """The root of the sum of two squares, neither of which overflows."""
    emit = context.emit
    x, y = (emit(array.Abs(each)) for each in _pair(context))
    large, small = emit(array.Maximum(x, y)), emit(array.Minimum(x, y))
    zero = array.constant_like(emit, 0, large)
    one = array.constant_like(emit, 1, large)
    is_plain = emit(array.Compare(large, zero, "gt"))
    is_plain = emit(
        array.And(
            is_plain, emit(array.Compare(large, array.constant_like(emit, math.inf, large), "lt"))
        )
    )
    ratio = emit(array.Divide(small, emit(array.Select(is_plain, large, one))))
    root = emit(array.Sqrt(emit(array.Add(one, square(emit, ratio)))))
    return emit(array.Select(is_plain, emit(array.Multiply(large, root)), large))


def _truncated_quotient(emit: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded toward 0, in integers without a detour through floats."""
    if tensor_type(x).dtype.is_float:
        return emit(array.Trunc(emit(array.Divide(x, y))))
    rest = emit(array.TruncatedRemainder(x, y))
    return emit(array.FloorDivide(emit(array.Subtract(x, rest)), y))


def _power(context: NodeContext) -> Operand:
    emit, exponent = context.emit, context.given("exponent")
    if isinstance(exponent, int | float) and isinstance(context.given("self"), Ref):
        x = context.value("self", context.dtype)
        special = SPECIAL_POWERS.get(float(exponent)) if context.dtype.is_float else None
        if special is not None:
            return special(emit, x)
        if exponent == 2:
            return square(emit, x)
    x, y = context.stretched("self"), context.stretched("exponent")
    return emit(array.Power(x, y))


SPECIAL_POWERS: dict[float, Callable[[Builder, Value], Value]] = {
    0.5: lambda emit, x: emit(array.Sqrt(x)),
    -0.5: lambda emit, x: emit(array.Rsqrt(x)),
    1.0: lambda emit, x: x,
    -1.0: reciprocal,
    3.0: lambda emit, x: emit(array.Multiply(square(emit, x), x)),
}
"""Powers that are other functions."""


def _logical(make: Callable[[Value, Value], Op]) -> Importer:
    """Of operands that count as true where they are not 0."""

    def apply(context: NodeContext) -> Operand:
        x, y = (_truth(context.emit, context.value(name)) for name in ("self", "other"))
        shape = context.type.shape
        return context.emit(make(*[stretched(context.emit, each, shape) for each in (x, y)]))

    return apply


def _truth(emit: Builder, x: Value) -> Value:
    if tensor_type(x).dtype is BOOL:
        return x
    return emit(array.Compare(x, array.constant_like(emit, 0, x), "ne"))


def _logical_not(context: NodeContext) -> Operand:
    return context.emit(array.Not(_truth(context.emit, context.value("self"))))


def _where(context: NodeContext) -> Operand:
    condition = context.stretched("condition", dtype=BOOL)
    return context.emit(
        array.Select(condition, context.stretched("self"), context.stretched("other"))
    )


def _masked_fill(context: NodeContext) -> Operand:
    mask = context.stretched("mask", dtype=BOOL)
    x, value = context.stretched("self"), context.stretched("value")
    return context.emit(array.Select(mask, value, x))


def _clamp(context: NodeContext) -> Operand:
    x = context.stretched("self")
    for name, bound in (("min", array.Maximum), ("max", array.Minimum)):
        if context.given(name) is not None:
            x = context.emit(bound(x, context.stretched(name)))
    return x


def _clamp_one(name: str, bound: type[array.Maximum | array.Minimum]) -> Importer:
    return lambda context: context.emit(bound(context.stretched("self"), context.stretched(name)))


def _cast(context: NodeContext) -> Operand:
    """Another dtype; a number that is cast to bool is true where it is not 0."""
    x = context.value("self")
    if context.dtype is BOOL:
        return _truth(context.emit, x)
    return in_dtype(context.emit, x, context.dtype)


def _cast_of(name: str) -> Importer:
    def apply(context: NodeContext) -> Operand:
        x = context.value(name)
        return _truth(context.emit, x) if context.dtype is BOOL else in_dtype(
            context.emit, x, context.dtype
        )  # fmt: skip

    return apply


def _is_infinite(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    if not tensor_type(x).dtype.is_float:
        return array.fill(emit, False, context.type)
    size = emit(array.Abs(x))
    return emit(array.Compare(size, array.constant_like(emit, math.inf, size), "eq"))


def _is_nan(context: NodeContext) -> Operand:
    x = context.value("self")
    return context.emit(array.Compare(x, x, "ne"))


def _log(base: float) -> Importer:
    """The logarithm to another base."""
    return formula(lambda emit, x: times(emit, emit(array.Log(x)), 1 / math.log(base)))


def _exp2(emit: Builder, x: Value) -> Value:
    return emit(array.Power(array.constant_like(emit, 2, x), x))


def _erfc(emit: Builder, x: Value) -> Value:
    return emit(array.Subtract(array.constant_like(emit, 1, x), emit(array.Erf(x))))


def _logit(context: NodeContext) -> Operand:
    """`log(x / (1 - x))` of numbers that are kept `eps` away from 0 and 1."""
    emit, x = context.emit, context.value("self")
    if context.given("eps") is not None:
        eps = context.number("eps")
        x = nn.clip(emit, x, eps, 1 - eps)
    rest = emit(array.Subtract(array.constant_like(emit, 1, x), x))
    return emit(array.Log(emit(array.Divide(x, rest))))


def _frac(emit: Builder, x: Value) -> Value:
    return emit(array.Subtract(x, emit(array.Trunc(x))))


def _round(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    if not context.dtype.is_float:
        return x
    decimals = context.integer("decimals", 0)
    if not decimals:
        return emit(array.Round(x))
    return times(emit, emit(array.Round(times(emit, x, 10.0**decimals))), 10.0**-decimals)


def _unless_integer(make: Callable[[Value], Op]) -> Importer:
    """A rounding, which leaves integers as they are."""

    def apply(context: NodeContext) -> Operand:
        x = context.value("self")
        return context.emit(make(x)) if context.dtype.is_float else x

    return apply


def _add_products(make: Callable[[Value, Value], Op]) -> Importer:
    """`self + value * (tensor1 op tensor2)`."""

    def apply(context: NodeContext) -> Operand:
        emit = context.emit
        x, one, other = (context.stretched(name) for name in ("self", "tensor1", "tensor2"))
        value = context.number("value", 1)
        whole = emit(make(one, other))
        return emit(array.Add(x, whole if value == 1 else times(emit, whole, value)))

    return apply


def _lerp(context: NodeContext) -> Operand:
    """`self + weight * (end - self)`."""
    emit = context.emit
    x, end, weight = (context.stretched(name) for name in ("self", "end", "weight"))
    apart = emit(array.Subtract(end, x))
    return emit(array.Add(x, emit(array.Multiply(weight, apart))))


def _copy_sign(context: NodeContext) -> Operand:
    emit = context.emit
    x, y = _pair(context)
    size = emit(array.Abs(x))
    negative = emit(array.Compare(y, array.constant_like(emit, 0, y), "lt"))
    return emit(array.Select(negative, emit(array.Negate(size)), size))


def _scalar_tensor(context: NodeContext) -> Operand:
    """A number as a tensor without axes; a size of the call is one too."""
    given = context.given("s")
    if isinstance(given, Dim):
        return in_dtype(context.emit, context.emit(array.Extent(given)), context.dtype)
    return array.fill(context.emit, context.number("s"), context.type)


def _identity(context: NodeContext) -> Operand:
    return context.value(next(iter(context.node.arguments)))


def _bitwise_not(context: NodeContext) -> Operand:
    return context.emit(array.Not(context.value("self")))


def _nan_to_num(context: NodeContext) -> Operand:
    """NaN and the infinities become numbers: by default 0 and the farthest that the dtype has."""
    emit, x = context.emit, context.value("self")
    farthest = FARTHEST.get(context.dtype.name, 3.4028234663852886e38)
    for name, special, usual in (("posinf", math.inf, farthest), ("neginf", -math.inf, -farthest)):
        number = context.number(name, usual)
        is_special = emit(array.Compare(x, array.constant_like(emit, special, x), "eq"))
        x = emit(array.Select(is_special, array.constant_like(emit, number, x), x))
    is_nan = emit(array.Compare(x, x, "ne"))
    return emit(array.Select(is_nan, array.constant_like(emit, context.number("nan", 0), x), x))


FARTHEST = {F64.name: 1.7976931348623157e308, "f16": 65504.0, "bf16": 3.3895313892515355e38}
"""The largest finite numbers of dtypes other than f32."""


def _x_log_y(context: NodeContext) -> Operand:
    """`x * log(y)`, which is 0 where x is."""
    emit = context.emit
    x, y = _pair(context)
    zero = array.constant_like(emit, 0, x)
    whole = emit(array.Multiply(x, emit(array.Log(y))))
    found = emit(array.Select(emit(array.Compare(x, zero, "eq")), zero, whole))
    is_nan = emit(array.Compare(y, y, "ne"))
    return emit(array.Select(is_nan, y, found))


IMPORTERS: dict[str, Importer] = {
    "aten._to_copy": _cast,
    "aten.abs": _unary(array.Abs),
    "aten.acos": _unary(array.Acos),
    "aten.acosh": _unary(array.Acosh),
    "aten.add": _sum(array.Add),
    "aten.addcdiv": _add_products(array.Divide),
    "aten.addcmul": _add_products(array.Multiply),
    "aten.alias": _identity,
    "aten.asin": _unary(array.Asin),
    "aten.asinh": _unary(array.Asinh),
    "aten.atan": _unary(array.Atan),
    "aten.atan2": _binary(array.Atan2),
    "aten.atanh": _unary(array.Atanh),
    "aten.bitwise_and": _binary(array.And),
    "aten.bitwise_left_shift": _binary(array.ShiftLeft),
    "aten.bitwise_not": _bitwise_not,
    "aten.bitwise_or": _binary(array.Or),
    "aten.bitwise_right_shift": _binary(array.ShiftRight),
    "aten.bitwise_xor": _binary(array.Xor),
    "aten.ceil": _unless_integer(array.Ceil),
    "aten.clamp": _clamp,
    "aten.clamp_max": _clamp_one("max", array.Minimum),
    "aten.clamp_min": _clamp_one("min", array.Maximum),
    "aten.clone": _identity,
    "aten.contiguous": _identity,
    "aten.copy": lambda context: context.stretched("src"),
    "aten.copysign": _copy_sign,
    "aten.cos": _unary(array.Cos),
    "aten.cosh": _unary(array.Cosh),
    "aten.detach": _identity,
    "aten.div": _divide,
    "aten.eq": _compare("eq"),
    "aten.erf": _unary(array.Erf),
    "aten.erfc": formula(_erfc),
    "aten.exp": _unary(array.Exp),
    "aten.exp2": formula(_exp2),
    "aten.expm1": _unary(array.Expm1),
    "aten.floor": _unless_integer(array.Floor),
    "aten.floor_divide": _binary(array.FloorDivide),
    "aten.fmod": _binary(array.TruncatedRemainder),
    "aten.frac": formula(_frac),
    "aten.ge": _compare("ge"),
    "aten.gt": _compare("gt"),
    "aten.isinf": _is_infinite,
    "aten.isnan": _is_nan,
    "aten.le": _compare("le"),
    "aten.lerp": _lerp,
    "aten.lift_fresh_copy": _identity,
    "aten.log": _unary(array.Log),
    "aten.log10": _log(10),
    "aten.log1p": _unary(array.Log1p),
    "aten.log2": _log(2),
    "aten.logical_and": _logical(array.And),
    "aten.logical_not": _logical_not,
    "aten.logical_or": _logical(array.Or),
    "aten.logical_xor": _logical(array.Xor),
    "aten.logit": _logit,
    "aten.lt": _compare("lt"),
    "aten.masked_fill": _masked_fill,
    "aten.max.other": _binary(array.Maximum),
    "aten.hypot": _hypot,
    "aten.maximum": _binary(array.Maximum),
    "aten.min.other": _binary(array.Minimum),
    "aten.minimum": _binary(array.Minimum),
    "aten.mul": _binary(array.Multiply),
    "aten.nan_to_num": _nan_to_num,
    "aten.ne": _compare("ne"),
    "aten.neg": _unary(array.Negate),
    "aten.pow": _power,
    "aten.reciprocal": formula(reciprocal),
    "aten.remainder": _binary(array.Remainder),
    "aten.round": _round,
    "aten.rsqrt": _unary(array.Rsqrt),
    "aten.rsub": _reversed_difference,
    "aten.scalar_tensor": _scalar_tensor,
    "aten.sigmoid": _unary(array.Sigmoid),
    "aten.sign": _unary(array.Sign),
    "aten.sin": _unary(array.Sin),
    "aten.sinh": _unary(array.Sinh),
    "aten.sqrt": _unary(array.Sqrt),
    "aten.sub": _sum(array.Subtract),
    "aten.tan": _unary(array.Tan),
    "aten.tanh": _unary(array.Tanh),
    "aten.trunc": _unless_integer(array.Trunc),
    "aten.where": _where,
    "aten.xlogy": _x_log_y,
    "prims.convert_element_type": _cast_of("a"),
}
