"""Integer folding: products of integers read them in i16, in pairs, and sum in i32.

`products_to_float` computes products of small integers in floats, which hold every sum exactly. Where
the processor multiplies pairs of i16 (`pmaddwd`, VNNI's `vpdpwssd`), the same sums take half as many
instructions, and half the bytes. The right operand of a matrix product has to be a weight: only what is
packed before a product is in panels that hold two steps of k side by side.
"""

from __future__ import annotations

from dlc.dialects import array, kernel, weight
from dlc.dialects.builtin import Module
from dlc.dialects.formulas import generic
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.attributes import Dense
from dlc.ir.clone import changed, clone_block
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import I16, I32
from dlc.passes.graph.device_placement import kernels_on_gpu
from dlc.passes.kernel.fold_operands import erase_unused, is_copy, narrow_source
from dlc.target import cpu_of


@define_pass("fold_integers")
def fold_integers(module: Op, context: Context) -> None:
    """Multiply integers in i16 and sum them in i32, where they were cast to floats."""
    assert isinstance(module, Module)
    if not cpu_of(context.options).dot_pairs or context.options.matmul == "blas":
        return
    on_gpu = set(kernels_on_gpu(module))
    for op in list(module.walk()):
        if isinstance(op, Gemm | Conv) and op not in on_gpu and not op.outs:
            _fold(op, context)


def _fold(op: Gemm | Conv, context: Context) -> None:
    lhs, rhs = (narrow_source(value, (I16,)) for value in (op.lhs, op.rhs))
    reason = "" if lhs is None or rhs is None else _why_not(op, rhs)
    if lhs is not None and rhs is not None and not reason:
        context.log.did("multiply pairs of i16 and sum in i32", op)
        _replace(op, lhs, rhs)
        return
    if reason:
        context.log.refused(reason, op)
    for value in (lhs, rhs):
        if value is not None:
            erase_unused(value)


def _why_not(op: Gemm | Conv, rhs: Value) -> str:
    """Why a product cannot read pairs; empty if it can."""
    if op.epilogue.terminator.operands != (op.epilogue.arguments[len(op.domain)],):
        return "its sums are not read as they are"
    while isinstance(rhs.op, array.Reshape):
        rhs = rhs.op.source
    if isinstance(op, Gemm) and not isinstance(rhs.op, weight.Get):
        return "its right operand is not a weight"
    if isinstance(op, Gemm) and op.lhs_transposed:
        return "its left operand is transposed"
    depth = op.inner if isinstance(op, Gemm) else kernel.array_type(op.rhs).shape[-2]
    if not isinstance(depth, int) or depth % 2:
        return f"it sums over {depth} products, which make no pairs"
    return ""


def _replace(op: Gemm | Conv, lhs: Value, rhs: Value) -> None:
    """The product of integers, and its sums as floats for those that read them as such."""
    emit = Builder.before_op(op)
    operands = [lhs, rhs, *op.operands[2:]]
    if isinstance(op, Conv):
        zeros = Dense.splat(0, kernel.array_type(op.blank).with_dtype(I16))
        operands[2] = emit(array.Constant(zeros))
    epilogue = clone_block(op.epilogue)
    epilogue.arguments[len(op.domain)].type = I32
    (sums,) = emit.all(changed(op, operands, (epilogue,)))
    (result,) = op.results
    dtype = kernel.array_type(result).dtype
    _read_integers(result, sums)
    if result.uses:
        domain = kernel.array_type(sums).shape
        result.replace_by(generic(emit, [sums], domain, lambda at, x: x[0][at].cast(dtype)))
    old = op.operands[:3]
    op.erase()
    for value in old:
        erase_unused(value)


def _read_integers(floats: Value, sums: Value) -> None:
    """Let those read the sums that cast the floats to i32."""
    for reader in list(floats.uses):
        if isinstance(reader, array.Reshape):
            same = Builder.before_op(reader)(array.Reshape(sums, reader.shape))
            _read_integers(reader.result, same)
            erase_unused(reader.result)
            if not same.uses:
                erase_unused(same)
        elif isinstance(reader, kernel.Generic) and is_copy(reader):
            (copy,) = reader.results
            if kernel.array_type(copy).dtype is I32:
                copy.replace_by(sums)
                reader.erase()
