"""Operators that compute each element alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, reciprocal, times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.facts import DTYPES
from dlc.importers.onnx.node_context import (
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    Operand,
    broadcast,
    stretched,
)
from dlc.importers.onnx.operators.rounded_sizes import rounded_size
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Builder, Op, Value
from dlc.ir.types import BOOL, F64, I8, I64, U8, DType


def _unary(make: Callable[[Value], Op]) -> Importer:
    return lambda context: context.emit(make(context.value(0)))


def _function(function: Callable[[Builder, Value], Value]) -> Importer:
    return lambda context: function(context.emit, context.value(0))


def _pair(context: NodeContext) -> list[Value]:
    """Two operands in one shape. Before opset 7 only the second one stretches, from an axis on."""
    x, y = context.value(0), context.value(1)
    if context.opset < 7 and context.flag("broadcast") and "axis" in context.node.attributes:
        rank, shape = context.type(0).rank, context.type(1).shape
        behind = rank - context.axis(context.integer("axis"), rank) - len(shape)
        y = reshape(context.emit, y, (*shape, *[1] * behind))
    return broadcast(context, x, y)


def _binary(make: Callable[[Value, Value], Op]) -> Importer:
    return lambda context: context.emit(make(*_pair(context)))


def _compare(predicate: str) -> Importer:
    return _binary(lambda x, y: array.Compare(x, y, predicate))


def _all(make: Callable[[Value, Value], Op]) -> Importer:
    """Any number of operands, combined one after another."""

    def apply(context: NodeContext) -> NodeResults:
        first, *rest = broadcast(context, *context.values())
        for value in rest:
            first = context.emit(make(first, value))
        return first

    return apply


def _mean(context: NodeContext) -> NodeResults:
    whole = _all(array.Add)(context)
    assert isinstance(whole, Value)
    return times(context.emit, whole, 1 / len(context.operands))


def _power(context: NodeContext) -> NodeResults:
    """Computed where base and exponent both fit, then brought to the base's dtype, as ONNX says."""
    x, y = _pair(context)
    base, exponent = context.type(0).dtype, context.type(1).dtype
    if base.is_integer != exponent.is_integer:
        common = F64
    else:
        common = max(base, exponent, key=lambda dtype: dtype.bits)
    if base.is_float and _holds(base, context.needed(1)):
        # The usual exponents, such as 2: nothing is gained by more bits.
        common = base
    emit = context.emit
    power = emit(array.Power(in_dtype(emit, x, common), in_dtype(emit, y, common)))
    return in_dtype(emit, power, base)


def _holds(dtype: DType, operand: Operand) -> bool:
    """Whether an operand is known and has only a few numbers, all of which this dtype has too."""
    if not isinstance(operand, Constant) or operand.is_symbolic or not operand.is_small:
        return False
    numbers = decode(operand.array, operand.dtype).astype(np.float64)
    return np.array_equal(decode(encode(numbers, dtype), dtype), numbers)


def _modulo(context: NodeContext) -> NodeResults:
    like_c = context.flag("fmod")
    return _binary(array.TruncatedRemainder if like_c else array.Remainder)(context)


def _where(context: NodeContext) -> NodeResults:
    condition, yes, no = broadcast(context, context.value(0), context.value(1), context.value(2))
    return context.emit(array.Select(condition, yes, no))


def _cast(context: NodeContext) -> NodeResults:
    """A rounded quotient of sizes, cast to an integer, is a size."""
    value, dtype = context.value(0), context.dtype("to")
    size = rounded_size(context, value) if dtype is I64 else None
    return in_dtype(context.emit, value, dtype) if size is None else size


def _cast_like(context: NodeContext) -> NodeResults:
    return in_dtype(context.emit, context.value(0), context.type(1).dtype)


def _clip(context: NodeContext) -> NodeResults:
    x, emit = context.value(0), context.emit
    shape = array.tensor_type(x).shape
    if context.opset < 11:
        attributes = context.node.attributes
        if "min" in attributes:
            x = emit(array.Maximum(x, array.constant_like(emit, context.number("min"), x)))
        if "max" in attributes:
            x = emit(array.Minimum(x, array.constant_like(emit, context.number("max"), x)))
        return x
    for index, bound in ((1, array.Maximum), (2, array.Minimum)):
        limit = context.optional(index)
        if limit is not None:
            x = emit(bound(x, stretched(emit, limit, shape)))
    return x


def _gelu(context: NodeContext) -> NodeResults:
    return nn.gelu(
        context.emit, context.value(0), tanh=context.text("approximate", "none") == "tanh"
    )


def _leaky_relu(context: NodeContext) -> NodeResults:
    return nn.leaky_relu(context.emit, context.value(0), context.number("alpha", 0.01))


def _elu(context: NodeContext) -> NodeResults:
    return nn.elu(context.emit, context.value(0), context.number("alpha", 1.0))


def _selu(context: NodeContext) -> NodeResults:
    alpha = context.number("alpha", 1.67326319217681884765625)
    scale = context.number("gamma", 1.05070102214813232421875)
    return times(context.emit, nn.elu(context.emit, context.value(0), alpha), scale)


def _prelu(context: NodeContext) -> NodeResults:
    """Before opset 7 there is a slope for each channel, or one for all."""
    x, slope = context.value(0), context.value(1)
    shape, type = context.type(0).shape, context.type(1)
    if context.opset < 7 and type.rank == 1 and type.shape != (1,):
        slope = reshape(context.emit, slope, (*type.shape, *[1] * (len(shape) - 2)))
    return nn.prelu(context.emit, x, stretched(context.emit, slope, shape))


def _hard_sigmoid(context: NodeContext) -> NodeResults:
    emit = context.emit
    scaled = times(emit, context.value(0), context.number("alpha", 0.2))
    return nn.clip(emit, plus(emit, scaled, context.number("beta", 0.5)), 0, 1)


def _celu(context: NodeContext) -> NodeResults:
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""
    emit, alpha = context.emit, context.number("alpha", 1.0)
    scaled = nn.elu(emit, times(emit, context.value(0), 1 / alpha), 1.0)
    return times(emit, scaled, alpha)


def _thresholded_relu(context: NodeContext) -> NodeResults:
    x, emit = context.value(0), context.emit
    limit = array.constant_like(emit, context.number("alpha", 1.0), x)
    above = emit(array.Compare(x, limit, "gt"))
    return emit(array.Select(above, x, array.constant_like(emit, 0, x)))


def _shrink(context: NodeContext) -> NodeResults:
    """Elements nearer to 0 than `lambd` become 0, the others move towards it by `bias`."""
    x, emit = context.value(0), context.emit
    bias, limit = context.number("bias", 0.0), context.number("lambd", 0.5)
    above = emit(array.Compare(x, array.constant_like(emit, limit, x), "gt"))
    below = emit(array.Compare(x, array.constant_like(emit, -limit, x), "lt"))
    zero = array.constant_like(emit, 0, x)
    raised = emit(array.Select(below, plus(emit, x, bias), zero))
    return emit(array.Select(above, plus(emit, x, -bias), raised))


def _is_nan(context: NodeContext) -> NodeResults:
    return context.emit(array.Compare(context.value(0), context.value(0), "ne"))


def _is_infinite(context: NodeContext) -> NodeResults:
    x, emit = context.value(0), context.emit
    plus_infinity = array.constant_like(emit, math.inf, x)
    minus_infinity = array.constant_like(emit, -math.inf, x)
    high, low = (emit(array.Compare(x, end, "eq")) for end in (plus_infinity, minus_infinity))
    if not context.flag("detect_negative", default=True):
        return high
    return emit(array.Or(high, low)) if context.flag("detect_positive", default=True) else low


def _bit_cast(context: NodeContext) -> NodeResults:
    """The same bits as another dtype; of another width they would make another shape."""
    x, dtype = context.value(0), context.dtype("to")
    if array.tensor_type(x).dtype is BOOL and dtype in (U8, I8):
        # ONNX stores a bool as a byte of 0 or 1.
        return in_dtype(context.emit, x, dtype)
    if dtype.bits != array.tensor_type(x).dtype.bits:
        raise context.unsupported("to a dtype of another width is not imported")
    return context.emit(array.Bitcast(x, dtype))


def _bit_shift(context: NodeContext) -> NodeResults:
    left = context.text("direction", "") == "LEFT"
    return _binary(array.ShiftLeft if left else array.ShiftRight)(context)


def _identity(context: NodeContext) -> NodeResults:
    """Also of a sequence, or of an optional value."""
    found = context.any_value(0)
    return context.needed(0) if found is None else found


def _dropout(context: NodeContext) -> NodeResults:
    """In inference nothing is dropped; the mask says that all was kept."""
    if context.opset < 7 and not context.flag("is_test"):
        raise context.unsupported("in training mode is not imported")
    if context.opset >= 12 and context.operand(2) is not None and any(context.constant(2).sizes):
        ratio = 0.5 if context.operand(1) is None else context.floats(1)[0]
        if ratio:
            raise context.unsupported("in training mode is not imported")
    x = context.value(0)
    if len(context.node.outputs) < 2:
        return x
    dtype = array.tensor_type(x).dtype if context.opset < 10 else DTYPES[9]
    return x, array.fill(context.emit, 1, array.tensor_type(x).with_dtype(dtype))


IMPORTERS: dict[str, Importer] = {
    "Abs": _unary(array.Abs),
    "Acos": _unary(array.Acos),
    "Acosh": _unary(array.Acosh),
    "Add": _binary(array.Add),
    "And": _binary(array.And),
    "Asin": _unary(array.Asin),
    "Asinh": _unary(array.Asinh),
    "Atan": _unary(array.Atan),
    "Atanh": _unary(array.Atanh),
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "BitwiseAnd": _binary(array.And),
    "BitwiseNot": _unary(array.Not),
    "BitwiseOr": _binary(array.Or),
    "BitwiseXor": _binary(array.Xor),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(array.Ceil),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _unary(array.Cos),
    "Cosh": _unary(array.Cosh),
    "Div": _binary(array.Divide),
    "Dropout": _dropout,
    "Elu": _elu,
    "Equal": _compare("eq"),
    "Erf": _unary(array.Erf),
    "Exp": _unary(array.Exp),
    "Floor": _unary(array.Floor),
    "Gelu": _gelu,
    "Greater": _compare("gt"),
    "GreaterOrEqual": _compare("ge"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _function(nn.hardswish),
    "Identity": _identity,
    "IsInf": _is_infinite,
    "IsNaN": _is_nan,
    "LeakyRelu": _leaky_relu,
    "Less": _compare("lt"),
    "LessOrEqual": _compare("le"),
    "Log": _unary(array.Log),
    "Max": _all(array.Maximum),
    "Mean": _mean,
    "Min": _all(array.Minimum),
    "Mish": _function(nn.mish),
    "Mod": _modulo,
    "Mul": _binary(array.Multiply),
    "Neg": _unary(array.Negate),
    "Not": _unary(array.Not),
    "Or": _binary(array.Or),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _function(reciprocal),
    "Relu": _function(nn.relu),
    "Round": _unary(array.Round),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _unary(array.Sigmoid),
    "Sign": _unary(array.Sign),
    "Sin": _unary(array.Sin),
    "Sinh": _unary(array.Sinh),
    "Softplus": _function(nn.softplus),
    "Softsign": _function(nn.softsign),
    "Sqrt": _unary(array.Sqrt),
    "Sub": _binary(array.Subtract),
    "Sum": _all(array.Add),
    "Tan": _unary(array.Tan),
    "Tanh": _unary(array.Tanh),
    "ThresholdedRelu": _thresholded_relu,
    "Where": _where,
    "Xor": _binary(array.Xor),
}
