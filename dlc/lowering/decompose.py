"""Operations that no kernel computes as they are become simpler ones."""

from __future__ import annotations

from dlc.dialects import kernel, nn
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.lowering.array_to_kernel import find_lowering
from dlc.lowering.nn_to_kernel import attends_at_once


@define_pass("decompose", required=True)
def decompose(module: Op, context: Context) -> None:
    """Replace every operation that has no kernel by what it consists of."""
    rewriter = context.rewriter
    pending = list(module.walk())
    while pending:
        op = pending.pop()
        if op.parent is None or isinstance(op, kernel.Kernel) or _has_kernel(op):
            continue
        block, before = op.parent, op.previous
        results = op.decompose(rewriter.before(op))
        if results is None:
            continue
        new = before.next if before is not None else block.first
        while new is not None and new is not op:
            pending.extend(new.walk())
            new = new.next
        rewriter.replace(op, results, relation=EQUAL)


def _has_kernel(op: Op) -> bool:
    if isinstance(op, nn.Attention) and not attends_at_once(op):
        return False
    return find_lowering(type(op)) is not None
