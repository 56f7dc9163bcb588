"""Cloning of operations and blocks, and inlining of blocks.

Copies keep names, attributes and locations. Regions within regions are copied without recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.ir.core import Block, Builder, Op, Value


def clone(op: Op, operands: Sequence[Value], regions: Sequence[Block] = ()) -> Op:
    """A copy of an operation with these operands and regions, not inserted yet."""
    new = changed(op, operands, regions)
    for result, original in zip(new.results, op.results, strict=True):
        result.name = original.name
    return new


def changed(op: Op, operands: Sequence[Value], regions: Sequence[Block] = ()) -> Op:
    """As `clone`, where the results may differ from those of `op` in number and types."""
    new = object.__new__(type(op))
    Op.__init__(new, tuple(operands), dict(op.attributes), tuple(regions), op.location)
    return new


def clone_into(block: Block, emit: Builder, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """Inline a copy of a block at the insertion point of `emit`, with these values for its arguments.

    Returns the copies of the values that the terminator yields.
    """
    copies = dict(zip(block.arguments, arguments, strict=True))
    _copy(_Progress(block.first, emit.block, emit.before), copies)
    return tuple([copies.get(value, value) for value in block.terminator.operands])


def clone_block(block: Block) -> Block:
    """A copy of a block, its arguments and its terminator included."""
    copies: dict[Value, Value] = {}
    copy = _empty_copy(block, copies)
    _copy(_Progress(block.first, copy, None), copies)
    copy.append(clone(block.terminator, [copies.get(v, v) for v in block.terminator.operands]))
    return copy


def move_into(block: Block, emit: Builder, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """As `clone_into`, but moves the operations; the block must not be used afterwards."""
    for argument, value in zip(block.arguments, arguments, strict=True):
        argument.replace_by(value)
    terminator = block.terminator
    results = terminator.operands
    terminator.erase()
    for op in block:
        emit.block.move(op, emit.before)
    return results


@dataclass(slots=True)
class _Progress:
    """The state of copying one block: the operation to copy next, and the copies of its regions so far."""

    next: Op | None
    target: Block
    before: Op | None
    regions: list[Block] = field(default_factory=list[Block])


def _copy(progress: _Progress, copies: dict[Value, Value]) -> None:
    """Copy up to the terminator of the outermost block; an operation is copied after its regions."""
    pending = [progress]
    while pending:
        progress = pending[-1]
        op = progress.next
        if op is None or (op.terminator and len(pending) == 1):
            pending.pop()
        elif len(progress.regions) < len(op.regions):
            region = op.regions[len(progress.regions)]
            progress.regions.append(_empty_copy(region, copies))
            pending.append(_Progress(region.first, progress.regions[-1], None))
        else:
            new = clone(op, [copies.get(value, value) for value in op.operands], progress.regions)
            progress.target.insert(new, progress.before)
            copies.update(zip(op.results, new.results, strict=True))
            progress.next, progress.regions = op.next, []


def _empty_copy(block: Block, copies: dict[Value, Value]) -> Block:
    """An empty block with the same arguments, which are added to `copies`."""
    arguments = block.arguments
    copy = Block([a.type for a in arguments], [a.name for a in arguments])
    copies.update(zip(arguments, copy.arguments, strict=True))
    return copy
