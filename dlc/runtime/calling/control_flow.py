"""Structured control flow, recovered from a step table (`dlc.runtime.abi`): its loops and branches.

Blocks have the form in which `dlc.codegen.program.step_table` writes them, properly nested; jumps of
another form are not blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from dlc.runtime.abi import Opcode, StepWord


class Loop(NamedTuple):
    """A counted loop, from LOOP to NEXT."""

    begin: int
    end: int
    """The step after the block, here and below."""


class While(NamedTuple):
    """A while loop: ZERO, the test, BRANCH, optionally LIMIT, the body, and a JUMP back to the test."""

    begin: int
    branch: int
    limit: int | None
    end: int

    @property
    def test(self) -> tuple[int, int]:
        """Its first step and its end."""
        return self.begin + 1, self.branch

    @property
    def body(self) -> tuple[int, int]:
        """Its first step and its end."""
        return (self.branch if self.limit is None else self.limit) + 1, self.end - 1


class Choose(NamedTuple):
    """An if: BRANCH, the true side, a JUMP to the end, the false side."""

    begin: int
    otherwise: int
    end: int


Block: TypeAlias = Loop | While | Choose


def blocks(steps: Sequence[Sequence[int]]) -> dict[int, Block]:
    """The blocks of a program, by first step."""
    block_at: dict[int, Block] = {}
    for pc, step in enumerate(steps):
        if step[StepWord.OPCODE] == Opcode.LOOP:
            block_at[pc] = Loop(pc, step[StepWord.C])
        elif step[StepWord.OPCODE] == Opcode.BRANCH:
            block = _branching(steps, pc)
            if block is not None:
                block_at[block.begin] = block
    return block_at


def _branching(steps: Sequence[Sequence[int]], pc: int) -> While | Choose | None:
    """The block of a BRANCH: the JUMP before the target of its false side tells a loop from an if."""
    _, _, otherwise, then, *_ = steps[pc]
    opcode, target, *_ = steps[otherwise - 1]
    if opcode != Opcode.JUMP or not pc + 1 == then < otherwise:
        return None
    if target >= otherwise:
        return Choose(pc, otherwise, target)
    begin = target - 1
    if target > pc or steps[begin][StepWord.OPCODE] != Opcode.ZERO:
        return None
    limit = pc + 1 if steps[pc + 1][StepWord.OPCODE] == Opcode.LIMIT else None
    return While(begin, pc, limit, otherwise)
