"""Quantised operators of com.microsoft, in the terms of `dlc.importers.onnx.operators.quantized`.

Products and sums that ONNX Runtime makes of integers are sums in i32. Functions of an element go through
real numbers in f32, which is what its tables hold. Sums, products and means of elements are moved by the
zero point before they are rounded, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers, total
from dlc.importers.onnx.node_context import (
    Importer,
    NodeContext,
    NodeResults,
    broadcast,
    stretched,
)
from dlc.importers.onnx.operators import quantized as onnx
from dlc.importers.onnx.operators.pooling import average_pool
from dlc.importers.onnx.operators.products import matmul
from dlc.importers.onnx.operators.quantized import (
    Quantization,
    centered,
    dequantized,
    of_rows,
    quantization,
    quantized,
    requantized,
    scale_ratio,
)
from dlc.ir.core import Builder, Value
from dlc.ir.dims import product
from dlc.ir.types import F32


def _real(context: NodeContext, index: int) -> Value:
    """The real numbers of operand `index`, whose scale and zero point follow it."""
    q = context.value(index)
    by = quantization(context, index + 1, array.tensor_type(q))
    return dequantized(context.emit, q, by)


def _result(context: NodeContext, real: Value, index: int, *, zero_first: bool = False) -> Value:
    """Real numbers, quantised by operands `index` and `index + 1`, in the dtype of operand 0."""
    type = array.tensor_type(real).with_dtype(context.type(0).dtype)
    by = quantization(context, index, type)
    return quantized(context.emit, real, by, zero_first=zero_first)


# Of each element ----------------------------------------------------------------------------------


def _unary(function: Callable[[NodeContext, Value], Value]) -> Importer:
    """A function of the real numbers; operands 3 and 4 quantise its result."""
    return lambda context: _result(context, function(context, _real(context, 0)), 3)


def _leaky_relu(context: NodeContext, real: Value) -> Value:
    return nn.leaky_relu(context.emit, real, context.number("alpha", 0.01))


def _sigmoid(context: NodeContext, real: Value) -> Value:
    return context.emit(array.Sigmoid(real))


def _softmax(context: NodeContext, real: Value) -> Value:
    """Since opset 13 along one axis, before over all from `axis` on."""
    shape, opset = array.tensor_type(real).shape, context.integer("opset", 13)
    axis = context.axis(context.integer("axis", -1 if opset >= 13 else 1), len(shape))
    if opset >= 13:
        return context.emit(nn.Softmax(real, axis))
    rows = reshape(context.emit, real, (*shape[:axis], product(shape[axis:])))
    return reshape(context.emit, context.emit(nn.Softmax(rows, axis)), shape)


def _add(context: NodeContext) -> NodeResults:
    lhs, rhs = broadcast(context, _real(context, 0), _real(context, 3))
    return _result(context, context.emit(array.Add(lhs, rhs)), 6, zero_first=True)


def _multiply(context: NodeContext) -> NodeResults:
    emit = context.emit
    by = [quantization(context, index + 1, context.type(index)) for index in (0, 3)]
    steps = [
        centered(emit, context.value(index), one.zero)
        for index, one in zip((0, 3), by, strict=True)
    ]
    steps = emit(array.Multiply(*broadcast(context, *steps)))
    type = array.tensor_type(steps).with_dtype(context.type(0).dtype)
    target = quantization(context, 6, type)
    factor = scale_ratio(emit, by[0].scale, by[1].scale, target.scale)
    return requantized(emit, steps, factor, target, zero_first=True)


def _where(context: NodeContext) -> NodeResults:
    condition, yes, no = broadcast(context, context.value(0), _real(context, 1), _real(context, 4))
    real = context.emit(array.Select(condition, yes, no))
    type = array.tensor_type(real).with_dtype(context.type(1).dtype)
    return quantized(context.emit, real, quantization(context, 7, type))


def _concat(context: NodeContext) -> NodeResults:
    """Scale and zero point of the result come first; then each part with its own."""
    emit, dtype = context.emit, context.type(2).dtype
    parts: list[Value] = []
    for index in range(2, len(context.operands), 3):
        by = quantization(context, 0, context.type(index).with_dtype(dtype))
        parts.append(quantized(emit, _real(context, index), by))
    axis = context.axis(context.integer("axis"), array.tensor_type(parts[0]).rank)
    return emit(array.Concatenate(tuple(parts), axis))


# Pooling ------------------------------------------------------------------------------------------


def _channels_second(context: NodeContext, x: Value) -> Value:
    """A picture with its channels second, where the node has them last."""
    rank = array.tensor_type(x).rank
    if not context.flag("channels_last"):
        return x
    return transpose(context.emit, x, (0, rank - 1, *range(1, rank - 1)))


def _as_given(context: NodeContext, y: Value) -> Value:
    """A picture with its channels where the node has them."""
    rank = array.tensor_type(y).rank
    if not context.flag("channels_last"):
        return y
    return transpose(context.emit, y, (0, *range(2, rank), 1))


def _average_pool(context: NodeContext) -> NodeResults:
    pooled = average_pool(context, _channels_second(context, _real(context, 0)))
    return _as_given(context, _result(context, pooled, 3, zero_first=True))


def _global_average_pool(context: NodeContext) -> NodeResults:
    """The sum of the steps, by one factor."""
    emit, x = context.emit, context.value(0)
    by = quantization(context, 1, array.tensor_type(x))
    steps = _channels_second(context, centered(emit, x, by.zero))
    shape = array.tensor_type(steps).shape
    sums = total(emit, steps, range(2, len(shape)))
    sums = reshape(emit, sums, (*shape[:2], *[1] * (len(shape) - 2)))
    target = quantization(context, 3, array.tensor_type(sums).with_dtype(by.dtype))
    count = numbers(emit, product(shape[2:]), array.tensor_type(target.scale))
    factor = emit(array.Divide(by.scale, emit(array.Multiply(target.scale, count))))
    return _as_given(context, requantized(emit, sums, factor, target))


# Products -----------------------------------------------------------------------------------------


def real_sums(context: NodeContext, sums: Value, scale: Value, bias: Value | None) -> Value:
    """Sums in i32 times their scale, and a bias of floats."""
    emit, shape = context.emit, array.tensor_type(sums).shape
    real = emit(array.Multiply(in_dtype(emit, sums, F32), stretched(emit, scale, shape)))
    if bias is None:
        return real
    return emit(array.Add(real, stretched(emit, in_dtype(emit, bias, F32), shape)))


def _scales(emit: Builder, x: Value, y: Value) -> Value:
    """The scale of sums of products."""
    return scale_ratio(emit, x, y, array.fill(emit, 1, array.tensor_type(x).with_shape(())))


def _qgemm(context: NodeContext) -> NodeResults:
    """With a scale for the result its quantised numbers, else the real ones."""
    emit = context.emit
    x, y = context.value(0), context.value(3)
    if context.flag("transA"):
        x = transpose(emit, x, (1, 0))
    if context.flag("transB"):
        y = transpose(emit, y, (1, 0))
    rows = quantization(context, 1, array.tensor_type(x))
    columns = quantization(context, 4, array.tensor_type(y))
    sums = emit(array.MatMul(centered(emit, x, rows.zero), centered(emit, y, columns.zero)))
    type = array.tensor_type(sums)
    bias = context.optional(6)
    if bias is not None:
        sums = emit(array.Add(sums, stretched(emit, bias, type.shape)))
    scale = times(emit, rows.scale, context.number("alpha", 1.0))
    if context.operand(7) is None:
        return real_sums(context, sums, _scales(emit, scale, columns.scale), None)
    zero = context.operand(8)
    dtype = context.type(0).dtype if zero is None else context.type(8).dtype
    target = quantization(context, 7, type.with_dtype(dtype))
    factor = scale_ratio(emit, scale, columns.scale, target.scale)
    return requantized(emit, sums, factor, target)


def integer_product(
    context: NodeContext, x: Value, rows: Quantization, y: Value, columns: Quantization
) -> tuple[Value, Value]:
    """The product of two quantised matrices: its sums in i32, and their scale."""
    emit = context.emit
    lhs = centered(emit, x, of_rows(emit, rows.zero))
    sums = matmul(context, lhs, centered(emit, y, columns.zero))
    scale = of_rows(emit, rows.scale)
    assert scale is not None
    return sums, _scales(emit, scale, columns.scale)


def _matmul_integer_to_float(context: NodeContext) -> NodeResults:
    rows, columns = (
        quantization(context, index + 2, context.type(index), zero=index + 4) for index in (0, 1)
    )
    found = integer_product(context, context.value(0), rows, context.value(1), columns)
    return in_dtype(
        context.emit, real_sums(context, *found, context.optional(6)), context.type(2).dtype
    )


def dynamic_product(
    context: NodeContext, x: Value, y: Value, columns: Quantization, bias: Value | None = None
) -> Value:
    """The product of floats, quantised as they are in a call, and a quantised matrix, in floats."""
    emit = context.emit
    rows = onnx.dynamic_quantization(emit, x)
    found = integer_product(context, quantized(emit, x, rows), rows, y, columns)
    return real_sums(context, *found, bias)


def _dynamic_quantize_matmul(context: NodeContext) -> NodeResults:
    columns = quantization(context, 2, context.type(1))
    return dynamic_product(
        context, context.value(0), context.value(1), columns, context.optional(4)
    )


IMPORTERS: dict[str, Importer] = {
    "DequantizeLinear": onnx.IMPORTERS["DequantizeLinear"],
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QGemm": _qgemm,
    "QLinearAdd": _add,
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_average_pool,
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearMul": _multiply,
    "QLinearSigmoid": _unary(_sigmoid),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearWhere": _where,
    "QuantizeLinear": onnx.IMPORTERS["QuantizeLinear"],
}
