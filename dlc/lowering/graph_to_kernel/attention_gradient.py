"""Gradients of attention become kernels of their own for a GPU, which never hold all scores.

A CPU computes what they are made of. So does a GPU where the mask is to receive something: that is as
large as all scores.
"""

from __future__ import annotations

from dlc.dialects import array, nn
from dlc.dialects.kernel.attention import MOST_NARROW, AttentionGradient
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import BF16, F16, F32
from dlc.ir.value_map import Gone
from dlc.passes.graph.device_placement import ops_of


@define_pass("fuse_attention_gradients")
def fuse_attention_gradients(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Compute what the operands of attention receive by two walks, along keys and along queries.

    `gpu_only` leaves the kernels alone that are not placed on a GPU.
    """
    for op in ops_of(module, gpu_only=gpu_only):
        if isinstance(op, nn.AttentionGradient):
            reason = _why_not(op)
            if reason:
                context.log.refused(reason, op)
                continue
            context.log.did("walk along keys and queries", op)
            made = _kernels(op, context.rewriter.before(op))
            for old, new in zip(op.results, made, strict=False):
                context.values.replaced(old, new, EQUAL)
                old.replace_by(new)
            context.rewriter.erase(op, Gone("it is computed by kernels"))


def _why_not(op: nn.AttentionGradient) -> str:
    """Why it is computed by what it is made of; empty if kernels of their own do it."""
    query, values = array.tensor_type(op.query), array.tensor_type(op.values)
    sizes = query.shape[-1], values.shape[-1]
    if any(result.uses for result in op.results[3:]):
        return "the mask is to receive something, which is as large as all scores"
    if query.dtype not in (F32, F16, BF16):
        return f"there is no kernel for {query.dtype}"
    moderate = all(isinstance(size, int) and 0 < size <= MOST_NARROW for size in sizes)
    return "" if moderate else f"sums of rows longer than {MOST_NARROW} do not fit into registers"


def _kernels(op: nn.AttentionGradient, emit: Builder) -> list[Value]:
    """What queries, keys and values receive."""
    given = op.query, op.keys, op.values, op.dy, (op.logarithms, op.means), op.mask
    parts = [
        AttentionGradient(*given, (), op.scale, op.causal, by_keys) for by_keys in (False, True)
    ]
    return [result for part in parts for result in emit.all(part)]
