"""Fused operators of com.microsoft, each equal to several ONNX operators.

Products and convolutions with what follows them, normalisation with what is added before it, activations
with a bias.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.node_context import (
    Importer,
    NodeContext,
    NodeResults,
    broadcast,
    stretched,
)
from dlc.importers.onnx.operators.products import gemm, matmul, moments
from dlc.importers.onnx.operators.windows import convolution
from dlc.ir.core import Builder, Value
from dlc.ir.types import I32, I64

# Products and convolutions ------------------------------------------------------------------------


def _matmul(context: NodeContext) -> NodeResults:
    """`alpha * x @ y`. `transBatch` moves the first axis of a factor before its last two."""
    x, y = (_factor(context, index, side) for index, side in ((0, "A"), (1, "B")))
    whole, alpha = matmul(context, x, y), context.number("alpha", 1.0)
    return whole if alpha == 1 else times(context.emit, whole, alpha)


def _factor(context: NodeContext, index: int, side: str) -> Value:
    value = context.value(index)
    order = list(range(array.tensor_type(value).rank))
    if len(order) < 2:
        return value
    if context.flag(f"transBatch{side}"):
        order = [*order[1:-1], 0, order[-1]]
    if context.flag(f"trans{side}"):
        order = [*order[:-2], order[-1], order[-2]]
    return transpose(context.emit, value, tuple(order))


def _gemm(context: NodeContext) -> NodeResults:
    alpha, beta = (context.number(f"activation_{name}", 0.0) for name in ("alpha", "beta"))
    return _activated(context, gemm(context), alpha, beta)


def _conv(context: NodeContext) -> NodeResults:
    """A convolution; then operand 3 is added, then comes the activation."""
    emit = context.emit
    y = convolution(context, context.value(0), context.value(1), context.optional(2))
    added = context.optional(3)
    if added is not None:
        y = emit(array.Add(y, stretched(emit, added, array.tensor_type(y).shape)))
    named = "activation_params" in context.node.attributes
    first, second, *_ = [*(context.numbers("activation_params") if named else ()), 0.0, 0.0]
    return _activated(context, y, first, second)


def _activated(context: NodeContext, y: Value, first: float, second: float) -> Value:
    """The activation that the node names, with its two numbers."""
    name, emit = context.text("activation", ""), context.emit
    match name:
        case "":
            return y
        case "Relu":
            return nn.relu(emit, y)
        case "Sigmoid":
            return emit(array.Sigmoid(y))
        case "Tanh":
            return emit(array.Tanh(y))
        case "LeakyRelu":
            return nn.leaky_relu(emit, y, first)
        case "Elu":
            return nn.elu(emit, y, first)
        case "Clip":
            return nn.clip(emit, y, first, second)
        case "HardSigmoid":
            return nn.clip(emit, plus(emit, times(emit, y, first), second), 0, 1)
        case _:
            raise context.unsupported(f"with the activation {name} is not imported")


# Activations --------------------------------------------------------------------------------------


def _biased(function: Callable[[Builder, Value], Value]) -> Importer:
    """A function of `x + bias`, operands 0 and 1; a bias that is left out is 0."""

    def apply(context: NodeContext) -> NodeResults:
        x, bias = context.value(0), context.optional(1)
        if bias is not None:
            x = context.emit(array.Add(*broadcast(context, x, bias)))
        return function(context.emit, x)

    return apply


def _quick_gelu(context: NodeContext) -> NodeResults:
    """`x * sigmoid(alpha * x)`."""
    emit, x = context.emit, context.value(0)
    gate = emit(array.Sigmoid(times(emit, x, context.number("alpha", 1.702))))
    return emit(array.Multiply(x, gate))


def _fast_gelu(emit: Builder, x: Value) -> Value:
    return nn.gelu(emit, x, tanh=True)


# Normalisation ------------------------------------------------------------------------------------


def _skip_layer_normalization(context: NodeContext) -> NodeResults:
    """Operands: x, skip, scale, shift, bias; the last result is the sum that is normalised."""
    summed = _sum_of(context, (0, 1, 4))
    y = nn.layer_norm(
        context.emit,
        summed,
        context.value(2),
        context.optional(3),
        axis=array.tensor_type(summed).rank - 1,
        eps=_epsilon(context),
    )
    return _with_sum(context, y, summed)


def _skip_rms_normalization(context: NodeContext) -> NodeResults:
    """Operands: x, skip, scale, bias; the last result is the sum that is normalised."""
    if any(context.node.outputs[1:3]):
        raise context.unsupported("with results about each row is not imported")
    summed = _sum_of(context, (0, 1, 3))
    axis = array.tensor_type(summed).rank - 1
    y = nn.rms_norm(context.emit, summed, context.value(2), axis=axis, eps=_epsilon(context))
    return [y, y, y, summed]


def _epsilon(context: NodeContext) -> float:
    return context.number("epsilon", 1e-12)


def _sum_of(context: NodeContext, indices: tuple[int, ...]) -> Value:
    """The sum of operands, in the shape of the first; those that are left out are 0."""
    summed = context.value(indices[0])
    shape = array.tensor_type(summed).shape
    for index in indices[1:]:
        other = context.optional(index)
        if other is not None:
            other = stretched(context.emit, other, shape)
            summed = context.emit(array.Add(summed, other))
    return summed


def _with_sum(context: NodeContext, y: Value, summed: Value) -> NodeResults:
    """The results of a normalisation: y, mean and inverse deviation of each row, what was normalised."""
    if len(context.node.outputs) < 2:
        return y
    axis = array.tensor_type(summed).rank - 1
    return [y, *moments(context, summed, axis, _epsilon(context)), summed]


def _embed_layer_normalization(context: NodeContext) -> NodeResults:
    """The rows of words, positions and segments, added and normalised.

    Operands: word and segment numbers [b, s], tables of words, positions and segments, scale, shift, the
    mask [b, s], positions [b or 1, s]. The second result counts the words that the mask keeps.
    """
    emit, words = context.emit, context.value(0)
    type = array.tensor_type(words)
    rows = _rows(emit, context.value(2), words)
    places = context.optional(8)
    if places is None:
        places = array.iota(emit, type.with_dtype(I64), 1)
    else:
        places = stretched(emit, places, type.shape)
    whole = emit(array.Add(rows, _rows(emit, context.value(3), places)))
    segments = context.optional(1)
    if segments is not None and context.operand(4) is not None:
        whole = emit(array.Add(whole, _rows(emit, context.value(4), segments)))
    y = nn.layer_norm(
        emit, whole, context.value(5), context.value(6), axis=2, eps=_epsilon(context)
    )
    if len(context.node.outputs) < 2:
        return y
    mask = context.optional(7)
    if mask is None:
        count = array.fill(emit, 0, type.with_shape(type.shape[:1]).with_dtype(I32))
    else:
        count = emit(array.ReduceSum(in_dtype(emit, mask, I32), (1,)))
    return [y, count, whole]


def _rows(emit: Builder, table: Value, numbers: Value) -> Value:
    return emit(array.Gather(table, (numbers,), (0,)))


def _bias_softmax(context: NodeContext) -> NodeResults:
    """A softmax over the axes from `axis` on, which count as one row, after a bias was added."""
    if context.integer("axis", 1) not in (-1, context.type(0).rank - 1):
        raise context.unsupported("over several axes is not imported")
    emit = context.emit
    summed = emit(array.Add(*broadcast(context, context.value(0), context.value(1))))
    return emit(nn.Softmax(summed, array.tensor_type(summed).rank - 1))


def _bias_add(context: NodeContext) -> NodeResults:
    return _sum_of(context, (0, 1, 2))


IMPORTERS: dict[str, Importer] = {
    "BiasAdd": _bias_add,
    "BiasGelu": _biased(nn.gelu),
    "BiasSoftmax": _bias_softmax,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _biased(_fast_gelu),
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _biased(nn.gelu),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_rms_normalization,
    "TransposeMatMul": _matmul,
}
