"""Decomposition: operations without a kernel of their own are replaced by simpler ones."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel, nn
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import BF16, BOOL, F16, F32
from dlc.lowering.graph_to_kernel.convolution import split_convolution
from dlc.lowering.graph_to_kernel.lower import find_lowering
from dlc.lowering.graph_to_kernel.normalizers import (
    attends_at_once,
    has_moderate_rows,
    has_moderate_values,
)


@define_pass("decompose", required=True)
def decompose(module: Op, context: Context) -> None:
    """Replace every operation that has no kernel by what it consists of."""
    rewriter = context.rewriter
    pending = list(module.walk())
    while pending:
        op = pending.pop()
        if op.parent is None or isinstance(op, kernel.Kernel):
            continue
        block, before = op.parent, op.previous
        results = _simpler(op, rewriter.before(op))
        if results is None:
            continue
        new = before.next if before is not None else block.first
        while new is not None and new is not op:
            pending.extend(new.walk())
            new = new.next
        rewriter.replace(op, results, relation=EQUAL)


@define_pass("decompose_caches", required=True)
def decompose_caches(module: Op, context: Context) -> None:
    """Replace attention over a cache by attention with a mask: its kernel is one of processors."""
    rewriter = context.rewriter
    for op in list(module.walk()):
        if isinstance(op, nn.CachedAttention):
            rewriter.replace(op, op.decompose(rewriter.before(op)), relation=EQUAL)


def _simpler(op: Op, emit: Builder) -> Sequence[Value] | None:
    """What an operation is made of; None if a kernel computes it as it is."""
    match op:
        case array.Convolution():
            made = split_convolution(op, emit)
            return None if made is None else (made,)
        case nn.Attention() if not attends_at_once(op):
            narrow = tensor_type(op.query).dtype in (F16, BF16) and has_moderate_values(op)
            return _attention_in_single(op, emit) if narrow else op.decompose(emit)
        case nn.CachedAttention() if not has_moderate_rows(op):
            return op.decompose(emit)
        case _ if find_lowering(type(op)) is not None:
            return None
        case _:
            return op.decompose(emit)


def _attention_in_single(op: nn.Attention, emit: Builder) -> Sequence[Value]:
    """Attention of f16 and bf16 is computed in f32 anyway, and rounded once."""
    wide = [
        value if tensor_type(value).dtype is BOOL else emit(array.Cast(value, F32))
        for value in op.operands
    ]
    query, keys, values, *mask = wide
    made = nn.Attention(query, keys, values, mask, op.scale, op.causal, op.logarithms)
    result, *logarithms = emit.all(made)
    return (emit(array.Cast(result, tensor_type(op.query).dtype)), *logarithms)
