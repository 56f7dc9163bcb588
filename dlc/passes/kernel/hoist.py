"""What is the same in every step of a loop is computed once, before it.

The panels of a recurrent layer's weights are the case that matters: putting them in order takes as long as
the product of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.dialects import array, flow, kernel
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Block, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.types import TensorType

Loop = flow.Scan | flow.While

MOST_GROWTH = 2
"""How many times larger than what it reads a value may be that is kept for the whole loop."""


@define_pass("hoist")
def hoist(module: Op, context: Context) -> None:
    """Move kernels out of loops in which they always compute the same."""
    # Inner loops first: what leaves one may leave the one around it, too.
    for loop in reversed([op for op in module.walk() if isinstance(op, Loop)]):
        moved = _wanted(_same_every_time(loop, context))
        if moved:
            context.log.did("compute before the loop", loop, kernels=len(moved))
            _take_out(loop, moved, context.rewriter)


def _given(loop: Loop, block: Block) -> dict[Value, Value]:
    """The arguments of a block that are the same in every step, and what they are outside."""
    count = len(loop.constants)
    inside = block.arguments[len(block.arguments) - count :]
    return dict(zip(inside, loop.constants, strict=True))


def _same_every_time(loop: Loop, context: Context) -> list[Op]:
    """The operations of the body that depend on nothing that changes, in order."""
    known = set(_given(loop, loop.body))
    found: list[Op] = []
    for op in loop.body:
        if all(value in known for value in op.operands) and _may_leave(op, context):
            known.update(op.results)
            found.append(op)
    return found


def _may_leave(op: Op, context: Context) -> bool:
    """Whether nothing is wrong with computing it where the loop takes no step at all."""
    match op:
        case array.Reshape() | array.Constant():
            return True
        case kernel.Generic() | Product() if op.operands and not op.outs:
            reason = _why_stay(op)
            if reason:
                context.log.refused(reason, op)
            return not reason
        case _:
            return False


def _why_stay(op: kernel.Generic | Product) -> str:
    """Why a kernel that is the same in every step stays in the loop; empty if it may leave."""
    if any(isinstance(inner, kernel.CheckIndex) for inner in op.walk()):
        return "it may fail, and the loop may take no step"
    return "its result is much larger than what it reads" if _grows(op) else ""


def _grows(op: Op) -> bool:
    """Whether a value is much larger than what it is made of, as far as that is known."""
    read = sum(_elements(op.operands))
    return sum(_elements(op.results)) > MOST_GROWTH * read


def _elements(values: Iterable[Value]) -> list[int]:
    types = [value.type for value in values]
    sizes = [type.size for type in types if isinstance(type, TensorType)]
    return [size for size in sizes if isinstance(size, int)]


def _wanted(ops: Sequence[Op]) -> list[Op]:
    """The kernels, and what they need: views and constants by themselves may as well stay."""
    needed: set[Op] = set()
    for op in reversed(ops):
        if isinstance(op, kernel.Kernel) or any(user in needed for user in op.result.uses):
            needed.add(op)
    return [op for op in ops if op in needed]


def _take_out(loop: Loop, moved: Sequence[Op], rewriter: Rewriter) -> None:
    known = _given(loop, loop.body)
    around = loop.parent
    assert around is not None
    results: list[Value] = []
    for op in moved:
        op.set_operands([known.get(value, value) for value in op.operands])
        around.move(op, loop)
        results += [result for result in op.results if _used_in(loop.body, result)]
    for result in results:
        _pass_in(loop, result)
    rewriter.replace(
        loop, rewriter.before(loop).all(_with_constants(loop, results)), relation=EQUAL
    )


def _used_in(block: Block, value: Value) -> bool:
    return any(user.parent is block for user in value.uses)


def _pass_in(loop: Loop, value: Value) -> None:
    """A further argument of the loop's regions, which the body uses instead of the value."""
    for block in loop.regions:
        argument = block.add_argument(value.type, value.name)
        for user in list(value.uses):
            if user.parent is block:
                user.replace_operand(value, argument)


def _with_constants(loop: Loop, values: Sequence[Value]) -> Loop:
    """The same loop with further constants; it takes over the regions."""
    constants = (*loop.constants, *values)
    match loop:
        case flow.Scan():
            body, loop.regions = loop.body, ()
            facts = (loop.length, loop.x_axes, loop.y_axes, loop.reverse)
            return flow.Scan(loop.initial, loop.xs, constants, body, *facts)
        case flow.While():
            (condition, body), loop.regions = (loop.condition, loop.body), ()
            return flow.While(loop.initial, constants, condition, body, loop.limit)
