"""Products of small integers in floats: each sum is an integer that the float holds exactly.

There are fast kernels for products of floats alone, and a float computes with integers without rounding
as long as no partial sum is larger than its significand. Quantised networks multiply numbers of 9 bits
at most: a sum of 258 such products fits into f32, one of 2^37 into f64.

Factors that fit into i16 pass through it, so that `fold_integers` may multiply them in pairs; an odd number
of channels gets one of zeros beside it. A convolution that is not multiplied in pairs takes f64: in f32 it
might take Winograd's form, whose transforms round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dlc.dialects import array, nn
from dlc.dialects.array.elementwise import MANTISSA, tensor_type
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.ir.types import F32, F64, I16, I64, DType
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.graph.integer_range import integer_range
from dlc.target import cpu_of

__all__ = ["fits_pairs", "largest_sum", "products_to_float"]

LONGEST = 1 << 36
"""Terms of a sum whose number only a call knows: more factors than any memory holds."""


TOO_LARGE = "its sums may be too large for f64"


@define_pass("products_to_float")
def products_to_float(module: Op, context: Context) -> None:
    """Compute products of small integers in floats that hold every sum exactly."""
    convolution = partial(_convolution, has_pairs=cpu_of(context.options).dot_pairs)
    rules: dict[type[Op], list[Pattern[Any]]] = {
        array.MatMul: [_matmul],
        array.Convolution: [convolution],
        nn.Conv: [convolution],
    }
    context.rewriter.run(graph_blocks(module), rules)


def _matmul(op: array.MatMul, rewriter: Rewriter) -> bool:
    """A matrix product of integers is one of floats."""
    most = largest_sum(op.lhs, op.rhs, tensor_type(op.lhs).shape[-1])
    if most is None:
        return False
    dtype = _dtype_for(most)
    if dtype is None:
        rewriter.log.refused(TOO_LARGE, op, largest=most)
        return False
    emit = rewriter.before(op)
    factors = [op.lhs, op.rhs]
    if fits_pairs(factors, most):
        factors = [emit(array.Cast(factor, I16)) for factor in factors]
    lhs, rhs = (emit(array.Cast(factor, dtype)) for factor in factors)
    sums = emit(array.MatMul(lhs, rhs))
    rewriter.replace(op, _as_integers(emit, sums, op, most), relation=EQUAL)
    return True


def _convolution(op: array.Convolution | nn.Conv, rewriter: Rewriter, *, has_pairs: bool) -> bool:
    """A convolution of integers is one of floats; a bias is added to the integers."""
    layout, shape = array.LAYOUTS[op.dims], tensor_type(op.kernel).shape
    terms = product(size for axis, size in enumerate(shape) if axis != layout.kernel_out)
    most = largest_sum(op.source, op.kernel, terms)
    if most is None:
        return False
    dtype = _dtype_for(most)
    if dtype is None:
        rewriter.log.refused(TOO_LARGE, op, largest=most)
        return False
    emit = rewriter.before(op)
    factors = [op.source, op.kernel]
    if has_pairs and fits_pairs(factors, most):
        factors = [emit(array.Cast(factor, I16)) for factor in factors]
        if op.groups == 1 and shape[layout.kernel_in] % 2 == 1:
            axes = layout.channel, layout.kernel_in
            factors = [_one_longer(emit, *pair) for pair in zip(factors, axes, strict=True)]
    else:
        dtype = F64
    source, kernel = (emit(array.Cast(factor, dtype)) for factor in factors)
    steps = op.strides, op.padding, op.dilations, op.source_dilations, op.groups, op.dims
    if isinstance(op, nn.Conv):
        y = _as_integers(emit, emit(nn.Conv(source, kernel, (), *steps)), op, most)
        for bias in op.bias:
            row = array.Broadcast(bias, tensor_type(y).shape, (layout.channel,))
            y = emit(array.Add(y, emit(row)))
    else:
        y = _as_integers(emit, emit(array.Convolution(source, kernel, *steps)), op, most)
    rewriter.replace(op, y, relation=EQUAL)
    return True


def largest_sum(lhs: Value, rhs: Value, terms: Size) -> int | None:
    """A bound on the magnitude of partial sums of `terms` products; None where factors are not integers."""
    if not tensor_type(lhs).dtype.is_integer:
        return None
    count = terms if isinstance(terms, int) else LONGEST
    return count * _farthest(lhs) * _farthest(rhs)


def _farthest(value: Value) -> int:
    low, high = integer_range(value)
    return max(-low, high)


def _dtype_for(most: int) -> DType | None:
    """The float that holds every integer up to `most`; None where there is none."""
    fitting = [dtype for dtype in (F32, F64) if most <= 1 << MANTISSA[dtype.name]]
    return fitting[0] if fitting else None


def fits_pairs(factors: Sequence[Value], most: int) -> bool:
    """Whether i16 holds the factors, and i32 each sum up to `most`."""
    return most < 1 << 31 and all(_farthest(factor) < 1 << 15 for factor in factors)


def _one_longer(emit: Builder, value: Value, axis: int) -> Value:
    """A zero behind each row along an axis."""
    type = tensor_type(value)
    none = (0,) * type.rank
    high = (*none[:axis], 1, *none[axis + 1 :])
    zero = array.fill(emit, 0, type.with_shape(()))
    return emit(array.Pad(value, zero, none, high, none))


def _as_integers(emit: Builder, sums: Value, op: Op, most: int) -> Value:
    """Sums in the dtype of the operation; those that it does not hold wrap, by way of i64."""
    dtype = tensor_type(op.results[0]).dtype
    signed = dtype.kind == "int" and most < 1 << (dtype.bits - 1)
    return emit(array.Cast(sums if signed else emit(array.Cast(sums, I64)), dtype))
