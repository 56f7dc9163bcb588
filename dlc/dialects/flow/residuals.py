"""What the backward half of a region needs from the forward half.

Both halves are first built with the backward one referring to forward values across blocks; here these
references become arguments of the backward block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.dialects import array
from dlc.ir.clone import clone
from dlc.ir.core import Block, Op, Value

FREE = (array.Broadcast, array.Reshape, array.Transpose)
"""Rearranging is repeated in the backward half: keeping a copy of it would cost more."""


def captured(backward: Block, forward: Block) -> list[Value]:
    """The values of `forward` that `backward` uses, in order of use.

    What costs no arithmetic (constants, rearrangements) is not kept: `backward` repeats it.
    """
    _repeat(backward, forward, _free_ops(_uses(backward, forward)))
    return _uses(backward, forward)


def bind(backward: Block, value: Value) -> Value:
    """A new argument of `backward` for a forward value; `backward` uses it instead."""
    argument = backward.add_argument(value.type, value.name)
    redirect(backward, value, argument)
    return argument


def redirect(backward: Block, value: Value, other: Value) -> None:
    """Make the operations of `backward` use `other` for a forward value."""
    for user in list(value.uses):
        if user.parent is backward:
            user.replace_operand(value, other)


def arrange(block: Block, arguments: Sequence[Value]) -> None:
    """Put the arguments of a block into this order."""
    assert sorted(map(id, arguments)) == sorted(map(id, block.arguments))
    block.arguments[:] = arguments
    for index, argument in enumerate(arguments):
        argument.index = index


def _uses(backward: Block, forward: Block) -> list[Value]:
    used = (operand for op in backward for operand in op.operands)
    return list(dict.fromkeys(value for value in used if value.block is forward))


def _free_ops(values: Iterable[Value]) -> set[Op]:
    """The operations worth repeating that these values need, directly or through each other."""
    found: set[Op] = set()
    pending = list(values)
    while pending:
        op = pending.pop().op
        if op is None or op in found or not _is_free(op):
            continue
        found.add(op)
        pending += op.operands
    return found


def _is_free(op: Op) -> bool:
    return op.pure and not op.regions and (not op.operands or isinstance(op, FREE))


def _repeat(backward: Block, forward: Block, ops: set[Op]) -> None:
    if not ops:
        return
    start = backward.first
    known: dict[Value, Value] = {}
    for op in forward:
        if op in ops:
            copy = clone(op, [known.get(operand, operand) for operand in op.operands])
            backward.insert(copy, start)
            known.update(zip(op.results, copy.results, strict=True))
    for value, other in known.items():
        redirect(backward, value, other)
