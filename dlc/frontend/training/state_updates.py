"""`set NAME = value` in loops, branches and functions: what it comes to at the end of a training step.

While a step is elaborated every `set` is an operation in the block where it stands. Here they leave their
regions: a loop over stacked blocks stacks what each block sets, any other loop hands over what the last
round sets, a choice the state itself where its branch sets nothing. Of two that set the same state the
later one holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, flow, weight
from dlc.dialects.array.shape import reshape
from dlc.dialects.flow.regions import grow, yielded
from dlc.errors import ModelError
from dlc.frontend.elaboration.tensors import tensor_type
from dlc.ir.core import Block, Builder, Op, Value

__all__ = ["lift_sets"]

States = dict[Value, Value]
"""For each state, as a block sees it, what it becomes."""


def lift_sets(block: Block) -> States:
    """Take every `set` out of a block and the regions in it.

    Raises ModelError for a `set` that could take effect any number of times.
    """
    states: States = {}
    for op in list(block):
        if isinstance(op, weight.Set):
            _set(states, op.state, op.value, Builder.before_op(op))
            op.erase()
            continue
        inner = [lift_sets(region) for region in op.regions]
        if any(inner):
            after = Builder(block, op.location, op.next)
            for state, value in _handed_over(op, inner).items():
                _set(states, state, value, after)
    return states


def _set(states: States, state: Value, value: Value, emit: Builder) -> None:
    """Note what a state becomes; one of stacked blocks, `blocks[0]`, is a part of one."""
    part = _part(state)
    if part is None:
        states[state] = value
        return
    whole = part.source
    (first, *_), (limit, *_) = part.starts, part.limits
    now = _now(states, whole, emit)
    count = tensor_type(whole).shape[0]
    row = reshape(emit, value, (1, *tensor_type(value).shape))
    before = array.slice_axis(emit, now, 0, 0, first)
    after = array.slice_axis(emit, now, 0, limit, count)
    _set(states, whole, emit(array.Concatenate((before, row, after), 0)), emit)


def _now(states: States, state: Value, emit: Builder) -> Value:
    """The value of a state, or of a part of one, after the updates so far."""
    part = _part(state)
    if part is None:
        return states.get(state, state)
    (first, *_), (limit, *_) = part.starts, part.limits
    row = array.slice_axis(emit, _now(states, part.source, emit), 0, first, limit)
    return reshape(emit, row, tensor_type(state).shape)


def _part(state: Value) -> array.Slice | None:
    """The slice that picks one of stacked states."""
    match state.op:
        case array.Reshape(source=Value(op=array.Slice() as part)):
            return part
        case _:
            return None


# Out of regions -----------------------------------------------------------------------------------


def _handed_over(op: Op, inner: Sequence[States]) -> States:
    """The states set in the regions of an operation, as the surrounding block sees them."""
    match op:
        case flow.Scan():
            return dict([_from_scan(op, *update) for update in inner[0].items()])
        case flow.If():
            return _from_choice(op, inner)
        case _:
            what = (
                "a `while`" if isinstance(op, flow.While) else "a function that is differentiated"
            )
            raise ModelError(
                f"a state is set in {what}, and so any number of times in a step",
                code="D0429",
                place=op.location.place,
                help="hand the value over as a result, and set the state with it outside",
            )


def _from_scan(scan: flow.Scan, state: Value, value: Value) -> tuple[Value, Value]:
    index = scan.body.arguments.index(state) - 1
    (stack,) = scan.stack([value])
    walked_from = len(scan.initial)
    if walked_from <= index < walked_from + len(scan.xs):
        return scan.operands[index], stack
    assert scan.parent is not None
    emit = Builder(scan.parent, scan.location, scan.next)
    last = 0 if scan.reverse else scan.length - 1
    row = array.slice_axis(emit, stack, 0, last, last + 1)
    return scan.operands[index], reshape(emit, row, tensor_type(value).shape)


def _from_choice(choice: flow.If, inner: Sequence[States]) -> States:
    branches = [
        {region.arguments.index(state): value for state, value in states.items()}
        for region, states in zip(choice.regions, inner, strict=True)
    ]
    indices = sorted({index for branch in branches for index in branch})
    for region, branch in zip(choice.regions, branches, strict=True):
        values = [branch.get(index, region.arguments[index]) for index in indices]
        region.terminator.set_operands((*yielded(region), *values))
    states = [choice.inputs[index] for index in indices]
    return dict(zip(states, grow(choice), strict=True))
