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
from dlc.importers.onnx.step import (
    Constant,
    Importer,
    NodeResults,
    Operand,
    Step,
    broadcast,
    stretched,
)
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Builder, Op, Value
from dlc.ir.types import F64, DType


def _unary(make: Callable[[Value], Op]) -> Importer:
    return lambda step: step.emit(make(step.value(0)))


def _function(function: Callable[[Builder, Value], Value]) -> Importer:
    return lambda step: function(step.emit, step.value(0))


def _pair(step: Step) -> list[Value]:
    """Two operands in one shape. Before opset 7 only the second one stretches, from an axis on."""
    x, y = step.value(0), step.value(1)
    if step.opset < 7 and step.flag("broadcast") and "axis" in step.node.attributes:
        rank, shape = step.type(0).rank, step.type(1).shape
        behind = rank - step.axis(step.integer("axis"), rank) - len(shape)
        y = reshape(step.emit, y, (*shape, *[1] * behind))
    return broadcast(step, x, y)


def _binary(make: Callable[[Value, Value], Op]) -> Importer:
    return lambda step: step.emit(make(*_pair(step)))


def _compare(predicate: str) -> Importer:
    return _binary(lambda x, y: array.Compare(x, y, predicate))


def _all(make: Callable[[Value, Value], Op]) -> Importer:
    """Any number of operands, combined one after another."""

    def apply(step: Step) -> NodeResults:
        first, *rest = broadcast(step, *step.values())
        for value in rest:
            first = step.emit(make(first, value))
        return first

    return apply


def _mean(step: Step) -> NodeResults:
    whole = _all(array.Add)(step)
    assert isinstance(whole, Value)
    return times(step.emit, whole, 1 / len(step.operands))


def _power(step: Step) -> NodeResults:
    """Computed where base and exponent both fit, then brought to the base's dtype, as ONNX says."""
    x, y = _pair(step)
    base, exponent = step.type(0).dtype, step.type(1).dtype
    if base.is_integer != exponent.is_integer:
        common = F64
    else:
        common = max(base, exponent, key=lambda dtype: dtype.bits)
    if base.is_float and _holds(base, step.needed(1)):
        # The usual exponents, such as 2: nothing is gained by more bits.
        common = base
    emit = step.emit
    power = emit(array.Power(in_dtype(emit, x, common), in_dtype(emit, y, common)))
    return in_dtype(emit, power, base)


def _holds(dtype: DType, operand: Operand) -> bool:
    """Whether an operand is known and has only a few numbers, all of which this dtype has too."""
    if not isinstance(operand, Constant) or operand.is_symbolic or not operand.is_small:
        return False
    numbers = decode(operand.array, operand.dtype).astype(np.float64)
    return np.array_equal(decode(encode(numbers, dtype), dtype), numbers)


def _modulo(step: Step) -> NodeResults:
    like_c = step.flag("fmod")
    return _binary(array.TruncatedRemainder if like_c else array.Remainder)(step)


def _where(step: Step) -> NodeResults:
    condition, yes, no = broadcast(step, step.value(0), step.value(1), step.value(2))
    return step.emit(array.Select(condition, yes, no))


def _cast(step: Step) -> NodeResults:
    return in_dtype(step.emit, step.value(0), step.dtype("to"))


def _cast_like(step: Step) -> NodeResults:
    return in_dtype(step.emit, step.value(0), step.type(1).dtype)


def _clip(step: Step) -> NodeResults:
    x, emit = step.value(0), step.emit
    shape = array.tensor_type(x).shape
    if step.opset < 11:
        attributes = step.node.attributes
        if "min" in attributes:
            x = emit(array.Maximum(x, array.constant_like(emit, step.number("min"), x)))
        if "max" in attributes:
            x = emit(array.Minimum(x, array.constant_like(emit, step.number("max"), x)))
        return x
    for index, bound in ((1, array.Maximum), (2, array.Minimum)):
        limit = step.optional(index)
        if limit is not None:
            x = emit(bound(x, stretched(emit, limit, shape)))
    return x


def _gelu(step: Step) -> NodeResults:
    return nn.gelu(step.emit, step.value(0), tanh=step.text("approximate", "none") == "tanh")


def _leaky_relu(step: Step) -> NodeResults:
    return nn.leaky_relu(step.emit, step.value(0), step.number("alpha", 0.01))


def _elu(step: Step) -> NodeResults:
    return nn.elu(step.emit, step.value(0), step.number("alpha", 1.0))


def _selu(step: Step) -> NodeResults:
    alpha = step.number("alpha", 1.67326319217681884765625)
    scale = step.number("gamma", 1.05070102214813232421875)
    return times(step.emit, nn.elu(step.emit, step.value(0), alpha), scale)


def _prelu(step: Step) -> NodeResults:
    """Before opset 7 there is a slope for each channel, or one for all."""
    x, slope = step.value(0), step.value(1)
    shape, type = step.type(0).shape, step.type(1)
    if step.opset < 7 and type.rank == 1 and type.shape != (1,):
        slope = reshape(step.emit, slope, (*type.shape, *[1] * (len(shape) - 2)))
    return nn.prelu(step.emit, x, stretched(step.emit, slope, shape))


def _hard_sigmoid(step: Step) -> NodeResults:
    emit = step.emit
    scaled = times(emit, step.value(0), step.number("alpha", 0.2))
    return nn.clip(emit, plus(emit, scaled, step.number("beta", 0.5)), 0, 1)


def _celu(step: Step) -> NodeResults:
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""
    emit, alpha = step.emit, step.number("alpha", 1.0)
    scaled = nn.elu(emit, times(emit, step.value(0), 1 / alpha), 1.0)
    return times(emit, scaled, alpha)


def _thresholded_relu(step: Step) -> NodeResults:
    x, emit = step.value(0), step.emit
    limit = array.constant_like(emit, step.number("alpha", 1.0), x)
    above = emit(array.Compare(x, limit, "gt"))
    return emit(array.Select(above, x, array.constant_like(emit, 0, x)))


def _shrink(step: Step) -> NodeResults:
    """Elements nearer to 0 than `lambd` become 0, the others move towards it by `bias`."""
    x, emit = step.value(0), step.emit
    bias, limit = step.number("bias", 0.0), step.number("lambd", 0.5)
    above = emit(array.Compare(x, array.constant_like(emit, limit, x), "gt"))
    below = emit(array.Compare(x, array.constant_like(emit, -limit, x), "lt"))
    zero = array.constant_like(emit, 0, x)
    raised = emit(array.Select(below, plus(emit, x, bias), zero))
    return emit(array.Select(above, plus(emit, x, -bias), raised))


def _is_nan(step: Step) -> NodeResults:
    return step.emit(array.Compare(step.value(0), step.value(0), "ne"))


def _is_infinite(step: Step) -> NodeResults:
    x, emit = step.value(0), step.emit
    plus_infinity = array.constant_like(emit, math.inf, x)
    minus_infinity = array.constant_like(emit, -math.inf, x)
    high, low = (emit(array.Compare(x, end, "eq")) for end in (plus_infinity, minus_infinity))
    if not step.flag("detect_negative", default=True):
        return high
    return emit(array.Or(high, low)) if step.flag("detect_positive", default=True) else low


def _bit_cast(step: Step) -> NodeResults:
    """The same bits as another dtype; of another width they would make another shape."""
    x, dtype = step.value(0), step.dtype("to")
    if dtype.bits != array.tensor_type(x).dtype.bits:
        raise step.unsupported("to a dtype of another width is not imported")
    return step.emit(array.Bitcast(x, dtype))


def _bit_shift(step: Step) -> NodeResults:
    left = step.text("direction", "") == "LEFT"
    return _binary(array.ShiftLeft if left else array.ShiftRight)(step)


def _dropout(step: Step) -> NodeResults:
    """In inference nothing is dropped; the mask says that all was kept."""
    if step.opset < 7 and not step.flag("is_test"):
        raise step.unsupported("in training mode is not imported")
    if step.opset >= 12 and step.operand(2) is not None and any(step.constant(2).sizes):
        raise step.unsupported("in training mode is not imported")
    x = step.value(0)
    if len(step.node.outputs) < 2:
        return x
    dtype = array.tensor_type(x).dtype if step.opset < 10 else DTYPES[9]
    return x, array.fill(step.emit, 1, array.tensor_type(x).with_dtype(dtype))


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
    "Identity": lambda step: step.needed(0),
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
