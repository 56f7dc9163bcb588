"""Folding of scales: products of dequantized numbers multiply the integers, and scale their sums.

`(q * s) @ (w * t)` is `(q @ w) * (s * t)` where s is one number and t is one, or one for each column. The
sums of integers are exact, so the results differ from those of the text by fewer roundings; ONNX Runtime
does the same with networks that have QuantizeLinear and DequantizeLinear around their operators (QDQ).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlc.dialects import array, nn
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.ir.types import F32, I32
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.graph.products_to_float import fits_pairs, largest_sum
from dlc.target import cpu_of


@define_pass("fold_dequantize")
def fold_dequantize(module: Op, context: Context) -> None:
    """Multiply quantized numbers as integers and scale the sums, where the target has products of pairs."""
    if cpu_of(context.options).dot_pairs:
        context.rewriter.run(graph_blocks(module), RULES)


@dataclass(frozen=True, slots=True)
class _Dequantized:
    """Integers, and the scale that makes them real: one number, or one for each index of an `axis`."""

    integers: Value
    scale: Value
    axis: int | None


def _dequantized(value: Value) -> _Dequantized | None:
    """What a value is made of; None if it is not made of integers and a scale."""
    match value.op:
        case array.Multiply(lhs=lhs, rhs=rhs):
            return _scaled(lhs, rhs) or _scaled(rhs, lhs)
        case array.Transpose(source=source, axes=axes) as op:
            found = _dequantized(source)
            if found is None:
                return None
            moved = Builder.before_op(op)(array.Transpose(found.integers, axes))
            axis = None if found.axis is None else axes.index(found.axis)
            return _Dequantized(moved, found.scale, axis)
        case _:
            return None


def _scaled(real: Value, by: Value) -> _Dequantized | None:
    """Integers in f32 times a scale; in f16 their sums could overflow."""
    cast = real.op
    if tensor_type(real).dtype is not F32:
        return None
    if not isinstance(cast, array.Cast) or not tensor_type(cast.source).dtype.is_integer:
        return None
    match by.op:
        case array.Fill(value=number) as op:
            scale = array.fill(Builder.before_op(op), number, tensor_type(by).with_shape(()))
            return _Dequantized(cast.source, scale, None)
        case array.Broadcast(source=scale, axes=()):
            return _Dequantized(cast.source, scale, None)
        case array.Broadcast(source=scale, axes=(axis,)):
            return _Dequantized(cast.source, scale, axis)
        case _:
            return None


def _matmul(op: array.MatMul, rewriter: Rewriter) -> bool:
    """A matrix product."""
    lhs, rhs = _dequantized(op.lhs), _dequantized(op.rhs)
    columns, terms = tensor_type(op.rhs).rank - 1, tensor_type(op.lhs).shape[-1]
    if lhs is None or rhs is None or not _fits(lhs, rhs, columns, terms):
        return False
    emit = rewriter.before(op)
    sums = emit(array.MatMul(_wide(emit, lhs), _wide(emit, rhs)))
    result = _real(emit, sums, lhs, rhs, tensor_type(op.result).rank - 1)
    rewriter.replace(op, result, relation=EQUAL)
    return True


def _convolution(op: nn.Conv, rewriter: Rewriter) -> bool:
    """A convolution; a bias is added to the scaled sums."""
    lhs, rhs = _dequantized(op.source), _dequantized(op.kernel)
    layout, shape = array.LAYOUTS[op.dims], tensor_type(op.kernel).shape
    outputs = layout.kernel_out
    terms = product(size for axis, size in enumerate(shape) if axis != outputs)
    if op.groups > 1 or lhs is None or rhs is None or not _fits(lhs, rhs, outputs, terms):
        return False
    emit = rewriter.before(op)
    steps = op.strides, op.padding, op.dilations, op.source_dilations, op.groups, op.dims
    sums = emit(nn.Conv(_wide(emit, lhs), _wide(emit, rhs), (), *steps))
    result = _real(emit, sums, lhs, rhs, layout.channel)
    for bias in op.bias:
        row = emit(array.Broadcast(bias, tensor_type(result).shape, (layout.channel,)))
        result = emit(array.Add(result, row))
    rewriter.replace(op, result, relation=EQUAL)
    return True


def _fits(lhs: _Dequantized, rhs: _Dequantized, columns: int, terms: Size) -> bool:
    """Whether the sums have one scale, or one for each column, and are of products that make pairs."""
    if lhs.axis is not None or rhs.axis not in (None, columns):
        return False
    most = largest_sum(lhs.integers, rhs.integers, terms)
    return most is not None and fits_pairs([lhs.integers, rhs.integers], most)


def _wide(emit: Builder, factor: _Dequantized) -> Value:
    """The integers in i32, as the sums are."""
    integers = factor.integers
    return integers if tensor_type(integers).dtype is I32 else emit(array.Cast(integers, I32))


def _real(emit: Builder, sums: Value, lhs: _Dequantized, rhs: _Dequantized, columns: int) -> Value:
    """The sums by the scales of their factors."""
    type = tensor_type(rhs.scale)
    scale = emit(array.Multiply(emit(array.Broadcast(lhs.scale, type.shape, ())), rhs.scale))
    axes = () if rhs.axis is None else (columns,)
    real = emit(array.Cast(sums, type.dtype))
    return emit(array.Multiply(real, emit(array.Broadcast(scale, tensor_type(real).shape, axes))))


RULES: dict[type[Op], list[Pattern[Any]]] = {
    array.MatMul: [_matmul],
    nn.Conv: [_convolution],
}
"""The rules of this pass, by the operation that they look at."""
