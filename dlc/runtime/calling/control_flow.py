"""Where the loops and branches of a program begin and end, found in its table of steps (`dlc.runtime.abi`).

They stand in it as `dlc.codegen.program.step_table` writes them, one inside the other; what stands there
otherwise is no block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from dlc.runtime.abi import Opcode, StepWord


class Loop(NamedTuple):
    """From LOOP to NEXT."""

    begin: int
    end: int
    """The step after it, as of the others."""


class While(NamedTuple):
    """ZERO, the test, BRANCH, perhaps LIMIT, the body, and a JUMP back to the test."""

    begin: int
    branch: int
    limit: int | None
    end: int

    @property
    def test(self) -> tuple[int, int]:
        """Its first step, and the one after it."""
        return self.begin + 1, self.branch

    @property
    def body(self) -> tuple[int, int]:
        """Its first step, and the one after it."""
        return (self.branch if self.limit is None else self.limit) + 1, self.end - 1


class Choose(NamedTuple):
    """BRANCH, what is done if it is true, a JUMP behind all, what is done otherwise."""

    begin: int
    otherwise: int
    end: int


Block: TypeAlias = Loop | While | Choose


def blocks(steps: Sequence[Sequence[int]]) -> dict[int, Block]:
    """The blocks of a program, by the steps that they begin with."""
    found: dict[int, Block] = {}
    for place, step in enumerate(steps):
        if step[StepWord.OPCODE] == Opcode.LOOP:
            found[place] = Loop(place, step[StepWord.C])
        elif step[StepWord.OPCODE] == Opcode.BRANCH:
            block = _branching(steps, place)
            if block is not None:
                found[block.begin] = block
    return found


def _branching(steps: Sequence[Sequence[int]], place: int) -> While | Choose | None:
    """What a BRANCH belongs to: the JUMP before where it goes on when it is false tells."""
    _, _, otherwise, then, *_ = steps[place]
    opcode, target, *_ = steps[otherwise - 1]
    if opcode != Opcode.JUMP or not place + 1 == then < otherwise:
        return None
    if target >= otherwise:
        return Choose(place, otherwise, target)
    begin = target - 1
    if target > place or steps[begin][StepWord.OPCODE] != Opcode.ZERO:
        return None
    limit = place + 1 if steps[place + 1][StepWord.OPCODE] == Opcode.LIMIT else None
    return While(begin, place, limit, otherwise)
