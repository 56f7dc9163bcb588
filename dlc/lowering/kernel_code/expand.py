"""Expands scalar operations without an instruction of the target into formulas of those that have one."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.ir.core import Builder, Op
from dlc.lowering.kernel_code.writer import Function
from dlc.lowering.math import Expansion, expansions
from dlc.target.cpu import CpuTarget


def expansions_for(cpu: CpuTarget) -> dict[type[Op], Expansion]:
    """The formulas that code for a processor, or for a thread of a GPU, needs."""
    return expansions(
        fma=cpu.fma, half=cpu.converts_half, brain=cpu.converts_brain, rounding=cpu.rounds
    )


def expand(function: Function, table: Mapping[type[Op], Expansion]) -> bool:
    """Put formulas into the place of operations; whether there were any.

    What a formula places is expanded in its turn; where it places the operation itself, that is basic.
    """
    pending = [op for op in function.walk() if type(op) in table]
    found = bool(pending)
    while pending:
        op = pending.pop()
        before = op.previous
        block = op.parent
        assert block is not None
        op.result.replace_by(table[type(op)](Builder.before_op(op), op))
        new = block.first if before is None else before.next
        while new is not op:
            assert new is not None
            if type(new) in table and type(new) is not type(op):
                pending.append(new)
            new = new.next
        op.erase()
    return found
