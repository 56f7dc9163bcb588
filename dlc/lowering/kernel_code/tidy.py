"""Cleanup of a lowered kernel: common subexpression elimination, loop-invariant code motion, dead code."""

from __future__ import annotations

from dlc.dialects import loop
from dlc.ir.core import Block, Op, Value
from dlc.lowering.kernel_code.writer import Function


def tidy(function: Function) -> None:
    """Move loop-invariant pure operations out of loops, merge equal ones, erase unused ones."""
    blocks = _inner_first(function.body)
    for block in blocks:
        if isinstance(block.parent, loop.For | loop.While):
            _hoist(block, block.parent)
    for block in reversed(blocks):
        _merge(block)
    for block in blocks:
        _erase_unused(block)


def _inner_first(block: Block) -> list[Block]:
    """The block and all in it, those inside before those around them."""
    found = [block]
    for current in found:
        found.extend(region for op in current for region in op.regions)
    return found[::-1]


def _merge(block: Block) -> None:
    first: dict[tuple[object, ...], Op] = {}
    for op in block:
        if not op.pure or op.regions or len(op.results) != 1:
            continue
        earlier = first.setdefault(op.equivalent, op)
        if earlier is not op:
            op.result.replace_by(earlier.result)
            op.erase()


def _hoist(block: Block, around: Op) -> None:
    """Move pure operations whose operands come from outside the loop to just before it."""
    target = around.parent
    assert target is not None
    inside: set[Value] = set(block.arguments)
    for region in around.regions:
        inside.update(region.arguments)
    for op in block:
        movable = op.pure and not op.regions
        if movable and not any(operand in inside for operand in op.operands):
            target.move(op, around)
        else:
            inside.update(op.results)


def _erase_unused(block: Block) -> None:
    op = block.last
    while op is not None:
        previous = op.previous
        if op.pure and op.results and op.is_unused:
            op.erase()
        op = previous
