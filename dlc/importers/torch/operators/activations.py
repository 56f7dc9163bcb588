"""Activation functions of networks."""

from __future__ import annotations

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, widened
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.elementwise import formula
from dlc.ir.core import Builder, Value


def _relu6(emit: Builder, x: Value) -> Value:
    return nn.clip(emit, x, 0, 6)


def _hardtanh(context: NodeContext) -> Operand:
    low, high = context.number("min_val", -1), context.number("max_val", 1)
    return nn.clip(context.emit, context.value("self"), low, high)


def _gelu(context: NodeContext) -> Operand:
    tanh = context.text("approximate", "none") == "tanh"
    return nn.gelu(context.emit, context.value("self"), tanh=tanh)


def _leaky_relu(context: NodeContext) -> Operand:
    slope = context.number("negative_slope", 0.01)
    return nn.leaky_relu(context.emit, context.value("self"), slope)


def _prelu(context: NodeContext) -> Operand:
    x = context.value("self")
    slope = context.value("weight")
    type = tensor_type(x)
    if tensor_type(slope).size != 1 and type.rank > 1:
        shape = (1, tensor_type(slope).size, *[1] * (type.rank - 2))
        slope = reshape(context.emit, slope, shape)
    return nn.prelu(context.emit, x, stretched(context.emit, slope, type.shape))


def _elu(context: NodeContext) -> Operand:
    """`scale * (max(0, x) + min(0, alpha * (exp(input_scale * x) - 1)))`."""
    emit, x = context.emit, widened(context.emit, context.value("self"))
    alpha, scale = context.number("alpha", 1), context.number("scale", 1)
    inner = context.number("input_scale", 1)
    zero = array.constant_like(emit, 0, x)
    low = emit(array.Expm1(x if inner == 1 else times(emit, x, inner)))
    low = times(emit, low, alpha) if alpha != 1 else low
    chosen = emit(array.Select(emit(array.Compare(x, zero, "gt")), x, low))
    return in_dtype(emit, chosen if scale == 1 else times(emit, chosen, scale), context.dtype)


def _softplus(context: NodeContext) -> Operand:
    """`log(1 + exp(beta * x)) / beta`, and x itself above the threshold."""
    emit, x = context.emit, widened(context.emit, context.value("self"))
    beta, threshold = context.number("beta", 1), context.number("threshold", 20)
    scaled = x if beta == 1 else times(emit, x, beta)
    smooth = nn.softplus(emit, scaled)
    smooth = smooth if beta == 1 else times(emit, smooth, 1 / beta)
    above = emit(array.Compare(scaled, array.constant_like(emit, threshold, x), "gt"))
    return in_dtype(emit, emit(array.Select(above, x, smooth)), context.dtype)


def _threshold(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    above = emit(array.Compare(x, context.stretched("threshold"), "gt"))
    return emit(array.Select(above, x, context.stretched("value")))


def _sigmoid_log(emit: Builder, x: Value) -> Value:
    """`-log(1 + exp(-x))`."""
    return emit(array.Negate(nn.softplus(emit, emit(array.Negate(x)))))


IMPORTERS: dict[str, Importer] = {
    "aten.elu": _elu,
    "aten.gelu": _gelu,
    "aten.hardtanh": _hardtanh,
    "aten.leaky_relu": _leaky_relu,
    "aten.log_sigmoid": formula(_sigmoid_log),
    "aten.prelu": _prelu,
    "aten._prelu_kernel": _prelu,
    "aten.relu6": formula(_relu6),
    "aten.softplus": _softplus,
    "aten.threshold": _threshold,
    "aten.hardsigmoid": formula(nn.hardsigmoid),
    "aten.hardswish": formula(nn.hardswish),
    "aten.mish": formula(nn.mish),
    "aten.relu": formula(nn.relu),
    "aten.silu": formula(nn.silu),
}
