"""Loop distribution (loop fission; Kennedy and McKinley, 1990) of what a loop computes from weights alone.

The layers of a stack are a loop over slices of its weights. What the body computes from a slice alone, such
as the panels of a product or a kernel in Winograd's form, gets a loop of its own before it, whose results
are walked in place of the weights. `fold_weights` has that loop run once, when weights are loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import array, flow
from dlc.dialects.flow.regions import COUNTER
from dlc.dialects.flow.scan import ScanInput
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone
from dlc.ir.types import DType
from dlc.passes.graph.fold_weights import (
    loop_weights,
    roots,
    values_from_weights,
    widened_by_products,
)


@define_pass("distribute")
def distribute(module: Op, context: Context, *, products_widen: bool = False) -> None:
    """Compute what a loop computes from slices of weights alone in a loop of its own.

    With `products_widen` casts of their factors are left to products.
    """
    widened = widened_by_products(context) if products_widen else ()
    given = loop_weights(module)
    # Inner loops first: what leaves one may leave the loop around it, too.
    for loop in reversed([op for op in module.walk() if isinstance(op, flow.Scan)]):
        _distribute(loop, given, widened, context)


def _distribute(
    loop: flow.Scan, given: set[Value], widened: Collection[DType], context: Context
) -> None:
    body, slices = loop.body, given.intersection(loop.slices)
    if not slices:
        return
    from_weights = values_from_weights(body, given)
    found = {root: _cone(root) for root in roots(from_weights, widened) if root.op is not None}
    moved = {root: cone for root, cone in found.items() if _is_worth_moving(cone, slices)}
    if not moved:
        return
    context.log.did("compute from weights in a loop of its own", loop, values=len(moved))
    emit = context.rewriter.before(loop)
    stacks = [emit(_loop_of(loop, root, cone)) for root, cone in moved.items()]
    arguments = [body.add_argument(root.type, root.name) for root in moved]
    for root, argument in zip(moved, arguments, strict=True):
        context.values.replaced(root, argument, EQUAL)
        root.replace_by(argument)
    computed = {op for cone in moved.values() for op in cone}
    for op in reversed(list(body)):
        if op.is_unused and op in computed:
            context.rewriter.erase(op, Gone("computed from weights before the loop"))
    inputs = [each for each in loop.inputs if each.axis is None or each.argument.uses]
    inputs += [ScanInput(*pair, 0) for pair in zip(arguments, stacks, strict=True)]
    context.rewriter.replace(
        loop, context.rewriter.before(loop).all(loop.with_inputs(inputs)), relation=EQUAL
    )


def _is_worth_moving(cone: Sequence[Op], slices: set[Value]) -> bool:
    """Whether operations read a slice, and do more than to view it."""
    reads = any(value in slices for op in cone for value in op.operands)
    return reads and not all(isinstance(op, array.Reshape | array.Constant) for op in cone)


def _cone(root: Value) -> tuple[Op, ...]:
    """The operations of its block that a value depends on, in order."""
    assert root.op is not None and root.op.parent is not None
    needed = {root.op}
    for op in reversed(list(root.op.parent)):
        if op in needed:
            needed.update([value.op for value in op.operands if value.op is not None])
    return tuple([op for op in root.op.parent if op in needed])


def _loop_of(loop: flow.Scan, root: Value, cone: Sequence[Op]) -> flow.Scan:
    """A loop over the same slices that computes one value and stacks it along a first axis."""
    read = {value for op in cone for value in op.operands}
    slices = zip(loop.slices, loop.xs, loop.x_axes, strict=True)
    walked = [each for each in slices if each[0] in read]
    invariants = zip(loop.invariants, loop.constants, strict=True)
    constants = [each for each in invariants if each[0] in read]
    arguments = [argument for argument, *_ in (*walked, *constants)]
    block = Block([COUNTER, *[argument.type for argument in arguments]])
    copies = dict(zip(arguments, block.arguments[1:], strict=True))
    emit = Builder(block, loop.location)
    for op in cone:
        regions = [clone_block(region) for region in op.regions]
        copy = emit.at(op.location).place(clone(op, [copies[v] for v in op.operands], regions))
        copies.update(zip(op.results, copy.results, strict=True))
    emit.place(flow.Yield([copies[root]]))
    return flow.Scan(
        (),
        [stack for _, stack, _ in walked],
        [outside for _, outside in constants],
        block,
        loop.length,
        tuple([axis for _, _, axis in walked]),
        (0,),
    )
