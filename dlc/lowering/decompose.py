"""Operations that no kernel computes as they are become simpler ones."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel, nn
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.lowering.array_to_kernel import find_lowering
from dlc.lowering.nn_to_kernel import attends_at_once
from dlc.lowering.split_convolution import split_convolution


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


def _simpler(op: Op, emit: Builder) -> Sequence[Value] | None:
    """What an operation is made of; None if a kernel computes it as it is."""
    match op:
        case array.Convolution():
            made = split_convolution(op, emit)
            return None if made is None else (made,)
        case nn.Attention() if not attends_at_once(op):
            return op.decompose(emit)
        case _ if find_lowering(type(op)) is not None:
            return None
        case _:
            return op.decompose(emit)
