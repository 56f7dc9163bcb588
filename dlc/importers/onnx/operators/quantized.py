"""Quantised operators: a real number is `(q - zero_point) * scale`, q being an integer of 8 or 16 bits.

Products are sums of integers in i32, which nothing rounds. A result that is quantised again is multiplied
by one factor, rounded to the nearest integer, halves to the even one, and saturated.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, widened
from dlc.importers.onnx.node_context import (
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    stretched,
)
from dlc.importers.onnx.operators.products import matmul
from dlc.importers.onnx.operators.windows import convolution
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import F32, I32, U8, DType, TensorType


@dataclass(frozen=True, slots=True)
class Quantization:
    """How numbers are quantised: scale in f32 and zero point in i32, each None where it is 1 or 0.

    Both have shapes that stretch to that of the quantised tensor; `dtype` is its dtype.
    """

    dtype: DType
    scale: Value
    zero: Value | None


def quantization(
    context: NodeContext,
    index: int,
    like: TensorType,
    axis: int | None = None,
    *,
    zero: int | None = None,
) -> Quantization:
    """That which the operands `index` (scale) and `zero` (by default the next one) of a node say.

    Lists of them are along an axis of the type `like`, by default its last one.
    """
    scale = _placed(context, widened(context.emit, context.value(index)), like, axis)
    zero = index + 1 if zero is None else zero
    return Quantization(like.dtype, scale, zero_point(context, zero, like, axis))


def zero_point(
    context: NodeContext, index: int, like: TensorType, axis: int | None = None
) -> Value | None:
    """The zero point in i32; None where it is 0 or left out."""
    operand = context.operand(index)
    if operand is None or (isinstance(operand, Constant) and _is_zero(operand)):
        return None
    return _placed(context, in_dtype(context.emit, context.value(index), I32), like, axis)


def _is_zero(constant: Constant) -> bool:
    return not constant.is_symbolic and not constant.array.any()


def _placed(context: NodeContext, part: Value, like: TensorType, axis: int | None) -> Value:
    """A number for all, a list along an axis, or a number for each block, so that it stretches."""
    type = array.tensor_type(part)
    if type.size == 1:
        return reshape(context.emit, part, ())
    if type.rank == 1 and axis is not None:
        behind = like.rank - 1 - context.axis(axis, like.rank)
        return reshape(context.emit, part, (*type.shape, *[1] * behind))
    return part


def dequantized(emit: Builder, q: Value, by: Quantization) -> Value:
    """The real numbers in f32."""
    real = in_dtype(emit, centered(emit, q, by.zero), F32)
    return emit(array.Multiply(real, stretched(emit, by.scale, array.tensor_type(q).shape)))


def centered(emit: Builder, q: Value, zero: Value | None) -> Value:
    """`q - zero_point` in i32."""
    wide = in_dtype(emit, q, I32)
    if zero is None:
        return wide
    return emit(array.Subtract(wide, stretched(emit, zero, array.tensor_type(q).shape)))


def quantized(emit: Builder, real: Value, by: Quantization, *, zero_first: bool = False) -> Value:
    """Real numbers in f32, quantised."""
    scale = stretched(emit, by.scale, array.tensor_type(real).shape)
    return _saturated(emit, emit(array.Divide(real, scale)), by, zero_first=zero_first)


def requantized(
    emit: Builder, sums: Value, factor: Value, by: Quantization, *, zero_first: bool = False
) -> Value:
    """Sums in i32 by their factor, the scales of what was multiplied over that of the result."""
    factor = stretched(emit, factor, array.tensor_type(sums).shape)
    real = emit(array.Multiply(in_dtype(emit, sums, F32), factor))
    return _saturated(emit, real, by, zero_first=zero_first)


def _saturated(emit: Builder, steps: Value, by: Quantization, *, zero_first: bool) -> Value:
    """Numbers of steps, rounded, moved by the zero point and brought to the quantised dtype.

    With `zero_first` they are moved before they are rounded: halves go the other way if it is odd.
    """
    if by.zero is None:
        return emit(array.Cast(emit(array.Round(steps)), by.dtype))
    zero = stretched(emit, in_dtype(emit, by.zero, F32), array.tensor_type(steps).shape)
    if zero_first:
        moved = emit(array.Round(emit(array.Add(steps, zero))))
    else:
        # Exact: beyond 2^24 the result saturates anyway.
        moved = emit(array.Add(emit(array.Round(steps)), zero))
    return emit(array.Cast(moved, by.dtype))


# To and from integers -----------------------------------------------------------------------------


def _quantize_linear(context: NodeContext) -> NodeResults:
    x = context.value(0)
    by = _blocked(context, array.tensor_type(x).with_dtype(_target(context)))
    return quantized(context.emit, in_dtype(context.emit, x, F32), by)


def _target(context: NodeContext) -> DType:
    """The dtype to quantise to: that of the zero point, or `output_dtype`, or u8."""
    if context.operand(2) is not None:
        return context.type(2).dtype
    return context.dtype("output_dtype") if context.integer("output_dtype", 0) else U8


def _dequantize_linear(context: NodeContext) -> NodeResults:
    q = context.value(0)
    real = dequantized(context.emit, q, _blocked(context, array.tensor_type(q)))
    named = context.integer("output_dtype", 0)
    dtype = context.dtype("output_dtype") if named else context.type(1).dtype
    return in_dtype(context.emit, real, dtype)


def _blocked(context: NodeContext, like: TensorType) -> Quantization:
    """The quantisation that operands 1 and 2 say, for each `block_size` elements of an axis."""
    axis, size = context.integer("axis", 1), context.integer("block_size", 0)
    by = quantization(context, 1, like, axis)
    if not size:
        return by
    axis = context.axis(axis, like.rank)
    _check_blocks(context, like, axis, size)
    scale, zero = (
        None if part is None else _repeated(context.emit, part, axis, size, like.shape[axis])
        for part in (by.scale, by.zero)
    )
    assert scale is not None
    return Quantization(by.dtype, scale, zero)


def _check_blocks(context: NodeContext, like: TensorType, axis: int, size: int) -> None:
    """Raises ModelError where scale or zero point have not one element for each block of an axis."""
    extent = like.shape[axis]
    if size < 1 or (isinstance(extent, int) and size > max(1, extent)):
        raise context.wrong(f"has blocks of {size} elements along an axis of {extent}")
    blocks = (*like.shape[:axis], (extent + size - 1) // size, *like.shape[axis + 1 :])
    for index in (1, 2):
        if context.operand(index) is not None and context.type(index).shape != blocks:
            told = TensorType(context.type(index).dtype, blocks).text
            raise context.wrong(
                f"takes {told} as its input {index}, found {context.type(index).text}"
            )


def _repeated(emit: Builder, part: Value, axis: int, times: int, size: Size) -> Value:
    """Each element `times` times in a row along an axis, of which `size` elements are left."""
    shape = array.tensor_type(part).shape
    if not shape:
        return part
    split = (*shape[: axis + 1], times, *shape[axis + 1 :])
    axes = tuple([number for number in range(len(split)) if number != axis + 1])
    whole = emit(array.Broadcast(part, split, axes))
    merged = (*shape[:axis], shape[axis] * times, *shape[axis + 1 :])
    return slice_axis(emit, reshape(emit, whole, merged), axis, 0, size)


def dynamic_quantization(emit: Builder, x: Value) -> Quantization:
    """The quantisation of a tensor in f32 to u8 that just holds its numbers and 0.

    The scale is 1 where all are 0, which ONNX leaves open and onnxruntime does.
    """
    axes = tuple(range(array.tensor_type(x).rank))
    low, high = emit(array.ReduceMin(x, axes)), emit(array.ReduceMax(x, axes))
    zero = array.constant_like(emit, 0, low)
    low, high = emit(array.Minimum(low, zero)), emit(array.Maximum(high, zero))
    steps = array.constant_like(emit, 255, low)
    scale = emit(array.Divide(emit(array.Subtract(high, low)), steps))
    is_zero = emit(array.Compare(low, high, "eq"))
    scale = emit(array.Select(is_zero, array.constant_like(emit, 1, scale), scale))
    below = emit(array.Divide(emit(array.Negate(low)), scale))
    offset = emit(array.Cast(emit(array.Round(below)), U8))
    return Quantization(U8, scale, emit(array.Cast(offset, I32)))


def _dynamic_quantize_linear(context: NodeContext) -> NodeResults:
    emit, x = context.emit, context.value(0)
    by = dynamic_quantization(emit, x)
    assert by.zero is not None
    return quantized(emit, x, by), by.scale, emit(array.Cast(by.zero, U8))


# Products -----------------------------------------------------------------------------------------


def of_rows(emit: Builder, part: Value | None) -> Value | None:
    """A number for each row of a matrix, which stretches along the columns."""
    if part is None or array.tensor_type(part).rank != 1:
        return part
    return reshape(emit, part, (*array.tensor_type(part).shape, 1))


def _matmul_integer(context: NodeContext) -> NodeResults:
    emit, x, y = context.emit, context.value(0), context.value(1)
    zero_of_x = of_rows(emit, zero_point(context, 2, context.type(0)))
    zero_of_y = zero_point(context, 3, context.type(1))
    return matmul(context, centered(emit, x, zero_of_x), centered(emit, y, zero_of_y))


def _qlinear_matmul(context: NodeContext) -> NodeResults:
    emit, x, y = context.emit, context.value(0), context.value(3)
    rows, columns = (quantization(context, index + 1, context.type(index)) for index in (0, 3))
    sums = matmul(
        context,
        centered(emit, x, of_rows(emit, rows.zero)),
        centered(emit, y, columns.zero),
    )
    by = quantization(context, 6, array.tensor_type(sums).with_dtype(context.type(7).dtype))
    row_scale, scale = of_rows(emit, rows.scale), of_rows(emit, by.scale)
    assert row_scale is not None
    assert scale is not None
    factor = scale_ratio(emit, row_scale, columns.scale, scale)
    return requantized(emit, sums, factor, Quantization(by.dtype, scale, of_rows(emit, by.zero)))


def scale_ratio(emit: Builder, x: Value, y: Value, z: Value) -> Value:
    """`x * y / z` of scales whose shapes stretch to each other."""
    shapes = [array.tensor_type(value).shape for value in (x, y, z)]
    rank = max(map(len, shapes))
    shape: list[Size] = []
    for axis in range(-rank, 0):
        sizes = {one[axis] for one in shapes if len(one) >= -axis} - {1}
        shape.append(sizes.pop() if sizes else 1)
    x, y, z = (stretched(emit, value, tuple(shape)) for value in (x, y, z))
    return emit(array.Divide(emit(array.Multiply(x, y)), z))


def _conv_integer(context: NodeContext) -> NodeResults:
    emit, x, kernel = context.emit, context.value(0), context.value(1)
    x = centered(emit, x, zero_point(context, 2, context.type(0)))
    return convolution(
        context, x, centered(emit, kernel, zero_point(context, 3, context.type(1), 0)), None
    )


def _qlinear_conv(context: NodeContext) -> NodeResults:
    """The bias has the scale of the sums and the zero point 0, so it is added to them."""
    emit, x, kernel = context.emit, context.value(0), context.value(3)
    of_x = quantization(context, 1, context.type(0))
    of_kernel = quantization(context, 4, context.type(3), 0)
    sums = convolution(
        context,
        centered(emit, x, of_x.zero),
        centered(emit, kernel, of_kernel.zero),
        context.optional(8),
    )
    type = array.tensor_type(sums)
    by = quantization(context, 6, type.with_dtype(context.type(7).dtype))
    scale = of_kernel.scale
    if array.tensor_type(scale).rank:
        # A number for each kernel, which makes a channel.
        scale = reshape(emit, scale, (type.shape[1], *[1] * (type.rank - 2)))
    return requantized(emit, sums, scale_ratio(emit, of_x.scale, scale, by.scale), by)


IMPORTERS: dict[str, Importer] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize_linear,
}
