"""Residuals of a region: the values that its backward half needs from its forward half.

Both halves are first built with the backward one referring to forward values across blocks; here these
references become arguments of the backward block.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects.flow.residual_min_cut import repeated_ops
from dlc.dialects.measured import Measuring
from dlc.errors import Unsupported
from dlc.ir.clone import clone
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import names
from dlc.ir.types import TensorType


def captured(
    backward: Block, forward: Block, at_hand: Collection[Value] = frozenset()
) -> list[Value]:
    """The values of `forward` that `backward` uses, in order of use.

    What is cheaper to compute again than to keep is repeated in `backward`. Values `at_hand` need not be
    kept: arguments that are passed again, and what the forward half hands over anyway.
    Raises Unsupported (D0716) for one of a size that `forward` counts, which nobody knows outside.
    """
    _repeat(backward, forward, repeated_ops(_uses(backward, forward), at_hand))
    kept = _uses(backward, forward)
    _refuse_counted(kept, forward)
    return kept


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


def _refuse_counted(kept: Sequence[Value], forward: Block) -> None:
    counted = {op.dim_name for op in forward if isinstance(op, Measuring)}
    for value in kept if counted else ():
        assert isinstance(value.type, TensorType)
        size = min(names(value.type.size) & counted, default=None)
        if size is not None:
            raise Unsupported(
                f"the derivative needs {value.type.text}, and {size} is counted in a branch or a loop",
                code="D0716",
                place=None if value.op is None else value.op.location.place,
                help="count before it, and use in it what was counted",
            )


def _repeat(backward: Block, forward: Block, ops: set[Op]) -> None:
    if not ops:
        return
    start = backward.first
    copies: dict[Value, Value] = {}
    for op in forward:
        if op in ops:
            copy = clone(op, [copies.get(operand, operand) for operand in op.operands])
            backward.insert(copy, start)
            copies.update(zip(op.results, copy.results, strict=True))
    for value, other in copies.items():
        redirect(backward, value, other)
