"""Blocks of a graph without modules: what lies between two places at which a single value passes.

A residual block is such a stretch: inside it at least two values are alive at any place. Element-wise
operations after it, such as the activation of its sum, belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlc.dialects import array
from dlc.driver.report.module_paths import Path
from dlc.ir.core import Op, Value

FEWEST = 40
"""Operations from which on a graph is divided."""
SMALLEST = 3
"""Operations of a block."""


def sections(ops: Sequence[Op], origin: Callable[[Value], Value]) -> Mapping[Op, Path]:
    """A path for each operation of a block, if there are many operations and at least two blocks.

    `origin` leads from a value to the one whose operation is among `ops`.
    """
    if len(ops) < FEWEST:
        return {}
    blocks: list[list[Op]] = []
    open_block: list[Op] = []
    last = _last_uses(ops, origin)
    alive: set[Value] = set()
    for number, op in enumerate(ops):
        alive |= {result for result in op.results if result in last}
        alive = {value for value in alive if last[value] > number}
        open_block.append(op)
        if len(alive) > 1:
            continue
        if len(open_block) >= SMALLEST:
            blocks.append(open_block)
        elif blocks and isinstance(op, array.Elementwise) and ops[number - 1] in blocks[-1]:
            blocks[-1].append(op)
        open_block = []
    if len(blocks) < 2:
        return {}
    return {op: (f"block {number}",) for number, block in enumerate(blocks, 1) for op in block}


def _last_uses(ops: Sequence[Op], origin: Callable[[Value], Value]) -> dict[Value, int]:
    """The number of the last operation that reads each value."""
    last: dict[Value, int] = {}
    own = set(ops)
    for number, op in enumerate(ops):
        for value in op.operands:
            last[origin(value)] = number
    return {value: number for value, number in last.items() if value.op in own}
