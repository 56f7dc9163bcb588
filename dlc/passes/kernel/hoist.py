"""Loop-invariant code motion: kernels that compute the same in every iteration move before the loop.

The case that matters is packing the weights of a recurrent layer into panels, which takes as long as the
product of one iteration.
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
"""How many times larger than its inputs a hoisted value may be, since it lives for the whole loop."""


@define_pass("hoist")
def hoist(module: Op, context: Context) -> None:
    """Move loop-invariant kernels before their loops."""
    # Inner loops first: a kernel that leaves one may leave the loop around it, too.
    for loop in reversed([op for op in module.walk() if isinstance(op, Loop)]):
        moved = _worth_hoisting(_invariant_operations(loop, context))
        if moved:
            context.log.did("compute before the loop", loop, kernels=len(moved))
            _hoist(loop, moved, context.rewriter)


def _invariant_arguments(loop: Loop, block: Block) -> dict[Value, Value]:
    """The loop-invariant arguments of a block, with the values outside."""
    count = len(loop.constants)
    inside = block.arguments[len(block.arguments) - count :]
    return dict(zip(inside, loop.constants, strict=True))


def _invariant_operations(loop: Loop, context: Context) -> list[Op]:
    """The operations of the body that depend on invariant values only, in order."""
    invariant = set(_invariant_arguments(loop, loop.body))
    operations: list[Op] = []
    for op in loop.body:
        if all(value in invariant for value in op.operands) and _may_leave(op, context):
            invariant.update(op.results)
            operations.append(op)
    return operations


def _may_leave(op: Op, context: Context) -> bool:
    """Whether an operation may run even if the loop has no iterations."""
    match op:
        case array.Reshape() | array.Constant():
            return True
        case kernel.Generic() | kernel.WinogradKernel() | Product() if op.operands and not op.outs:
            reason = _why_stay(op)
            if reason:
                context.log.refused(reason, op)
            return not reason
        case _:
            return False


def _why_stay(op: kernel.Generic | kernel.WinogradKernel | Product) -> str:
    """Why an invariant kernel stays in the loop; empty if it may leave."""
    if any(isinstance(inner, kernel.CheckIndex) for inner in op.walk()):
        return "it may fail, and the loop may have no iterations"
    return "its result is much larger than its inputs" if _grows(op) else ""


def _grows(op: Op) -> bool:
    """Whether the result is much larger than the inputs, as far as sizes are known."""
    read = sum(_elements(op.operands))
    return sum(_elements(op.results)) > MOST_GROWTH * read


def _elements(values: Iterable[Value]) -> list[int]:
    types = [value.type for value in values]
    sizes = [type.size for type in types if isinstance(type, TensorType)]
    return [size for size in sizes if isinstance(size, int)]


def _worth_hoisting(ops: Sequence[Op]) -> list[Op]:
    """The kernels and their operands: views and constants by themselves stay."""
    needed: set[Op] = set()
    for op in reversed(ops):
        if isinstance(op, kernel.Kernel) or any(user in needed for user in op.result.uses):
            needed.add(op)
    return [op for op in ops if op in needed]


def _hoist(loop: Loop, moved: Sequence[Op], rewriter: Rewriter) -> None:
    outside_of = _invariant_arguments(loop, loop.body)
    parent_block = loop.parent
    assert parent_block is not None
    results: list[Value] = []
    for op in moved:
        op.set_operands([outside_of.get(value, value) for value in op.operands])
        parent_block.move(op, loop)
        results += [result for result in op.results if _used_in(loop.body, result)]
    for result in results:
        _pass_in(loop, result)
    rewriter.replace(
        loop, rewriter.before(loop).all(_with_constants(loop, results)), relation=EQUAL
    )


def _used_in(block: Block, value: Value) -> bool:
    return any(user.parent is block for user in value.uses)


def _pass_in(loop: Loop, value: Value) -> None:
    """Pass a value as a further argument of the loop's regions, and read that instead."""
    for block in loop.regions:
        argument = block.add_argument(value.type, value.name)
        for user in list(value.uses):
            if user.parent is block:
                user.replace_operand(value, argument)


def _with_constants(loop: Loop, values: Sequence[Value]) -> Loop:
    """The same loop with further constants; takes over its regions."""
    constants = (*loop.constants, *values)
    match loop:
        case flow.Scan():
            (body,) = loop.take_regions()
            layout = (loop.length, loop.x_axes, loop.y_axes, loop.reverse)
            return flow.Scan(loop.initial, loop.xs, constants, body, *layout)
        case flow.While():
            condition, body = loop.take_regions()
            return flow.While(loop.initial, constants, condition, body, loop.limit)
