"""Copying operations and blocks, and putting the contents of a block in the place of a call of it.

Copies keep names, attributes and locations. Regions within regions are copied without recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.ir.core import Block, Builder, Op, Value


def clone(op: Op, operands: Sequence[Value], regions: Sequence[Block] = ()) -> Op:
    """A new operation, not yet placed, that is like `op` but has these operands and regions."""
    new = changed(op, operands, regions)
    for result, original in zip(new.results, op.results, strict=True):
        result.name = original.name
    return new


def changed(op: Op, operands: Sequence[Value], regions: Sequence[Block] = ()) -> Op:
    """The same, but what it results in may differ in number and types."""
    new = object.__new__(type(op))
    Op.__init__(new, tuple(operands), dict(op.attributes), tuple(regions), op.location)
    return new


def clone_into(block: Block, emit: Builder, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """Copy the operations of a block but its terminator to where `emit` stands.

    The arguments stand for those of the block; what the terminator hands over comes back.
    """
    known = dict(zip(block.arguments, arguments, strict=True))
    _copy(_Place(block.first, emit.block, emit.before), known)
    return tuple([known.get(value, value) for value in block.terminator.operands])


def clone_block(block: Block) -> Block:
    """A block of its own with the same arguments and operations, the terminator included."""
    known: dict[Value, Value] = {}
    copy = _like(block, known)
    _copy(_Place(block.first, copy, None), known)
    copy.append(clone(block.terminator, [known.get(v, v) for v in block.terminator.operands]))
    return copy


def move_into(block: Block, emit: Builder, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """As `clone_into`, but the operations leave their block, which has no further use."""
    for argument, value in zip(block.arguments, arguments, strict=True):
        argument.replace_by(value)
    terminator = block.terminator
    results = terminator.operands
    terminator.erase()
    for op in block:
        emit.block.move(op, emit.before)
    return results


@dataclass(slots=True)
class _Place:
    """How far the copy of one block has come: the operation to copy next and its finished regions."""

    next: Op | None
    target: Block
    before: Op | None
    regions: list[Block] = field(default_factory=list[Block])


def _copy(place: _Place, known: dict[Value, Value]) -> None:
    """Copy up to the terminator of the outermost block; regions are finished before their owner."""
    pending = [place]
    while pending:
        place = pending[-1]
        op = place.next
        if op is None or (op.terminator and len(pending) == 1):
            pending.pop()
        elif len(place.regions) < len(op.regions):
            region = op.regions[len(place.regions)]
            place.regions.append(_like(region, known))
            pending.append(_Place(region.first, place.regions[-1], None))
        else:
            new = clone(op, [known.get(value, value) for value in op.operands], place.regions)
            place.target.insert(new, place.before)
            known.update(zip(op.results, new.results, strict=True))
            place.next, place.regions = op.next, []


def _like(block: Block, known: dict[Value, Value]) -> Block:
    """An empty block with the same arguments."""
    arguments = block.arguments
    copy = Block([a.type for a in arguments], [a.name for a in arguments])
    known.update(zip(arguments, copy.arguments, strict=True))
    return copy
