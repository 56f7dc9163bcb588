"""Making every region hand over values of its own, so that each can be written where it is wanted.

A region may hand over its arguments, constants, or one value twice, and a loop may use its index or walk
along an axis that leaves no row in one piece. Where that is so, a copying kernel comes in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import flow, func, kernel
from dlc.dialects.comm import Send
from dlc.dialects.kernel.formulas import generic
from dlc.dialects.kernel.pieces import Join
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import TensorType
from dlc.planning.aliases import computed


def insert_copies(function: func.Func) -> None:
    """Prepare a function and all loops and branches in it for the plan."""
    for op in list(function.walk(formulas=False)):
        match op:
            case flow.Scan():
                _walk_index(op)
                _copy_slices(op)
                ys = op.body.terminator.operands[len(op.initial) :]
                _own(op.body, dict(zip(ys, op.y_axes, strict=True)))
            case flow.While():
                _own(op.body, {})
            case flow.If():
                _own(op.then, {})
                _own(op.otherwise, {})
            case _:
                pass
    _own(function.body, {})


def copy(emit: Builder, value: Value) -> Value:
    """A kernel that copies an array."""
    type = kernel.array_type(value)
    return generic(emit, (value,), type.shape, lambda at, arrays: arrays[0][at])


def _own(block: Block, stacked: dict[Value, int]) -> None:
    """Copy what a block hands over but does not compute, or hands over twice."""
    terminator = block.terminator
    seen: set[Value] = set()
    results: list[Value] = []
    for value in terminator.operands:
        origin = computed(value)
        mine = origin.block is block and isinstance(
            origin.op, kernel.Kernel | flow.Scan | flow.While | flow.If | Join
        )
        if not mine or origin in seen or not _fits_stack(value, origin, stacked):
            value = origin = copy(Builder.before_op(terminator), value)
        seen.add(origin)
        results.append(value)
    terminator.set_operands(results)


def _fits_stack(value: Value, origin: Value, stacked: dict[Value, int]) -> bool:
    """Whether a value can be computed in its place in a stack, where its rows may lie apart."""
    axis = stacked.get(value, 0)
    if axis == 0:
        return True
    innermost = axis == kernel.array_type(value).rank
    made = isinstance(origin.op, kernel.Kernel) and origin.op.writes in _apart(innermost)
    if isinstance(origin.op, Send) and origin.op.crosses:
        return False  # what comes from other memory comes in one piece
    readers = [use for use in value.uses if not isinstance(use, flow.Yield)]
    return value is origin and made and _read_apart(readers, value, innermost)


def _apart(innermost: bool) -> Sequence[kernel.Access]:
    """What kernels must be able to do with an array whose rows, or else elements, lie apart."""
    some = (kernel.Access.STRIDED,)
    return some if innermost else (*some, kernel.Access.UNIT_STRIDE)


def _read_apart(readers: Sequence[Op], value: Value, innermost: bool) -> bool:
    """Whether these operations can read an array whose rows, or else elements, lie apart.

    A reshape is no other array than its source, and a nested loop takes slices: both want it dense.
    """
    return all(
        isinstance(reader, kernel.Kernel)
        and all(
            reader.reads(number) in _apart(innermost)
            for number, operand in enumerate(reader.operands)
            if operand is value
        )
        for reader in readers
    )


def _walk_index(op: flow.Scan) -> None:
    """Give the loop its index as a slice of 0, 1, 2, ..., if it uses it."""
    index = op.body.arguments[0]
    if not index.uses:
        return
    counter = index.type
    assert isinstance(counter, TensorType)

    dtype = counter.dtype
    numbers = generic(Builder.before_op(op), (), (op.length,), lambda at, _: at[0].cast(dtype))
    initial, xs, constants = op.segments
    place = initial + xs
    operands = [*op.operands[:place], numbers, *op.operands[place:]]
    op.attributes["segments"] = (initial, xs + 1, constants)
    op.attributes["x_axes"] = (*op.x_axes, 0)
    op.set_operands(operands)
    argument = op.body.insert_argument(1 + place, counter)
    index.replace_by(argument)


def _copy_slices(op: flow.Scan) -> None:
    """Copy slices whose elements lie apart where a reshape, a product or a nested loop wants them."""
    first = 1 + len(op.initial)
    for argument, source, axis in zip(
        op.body.arguments[first : first + len(op.xs)], op.xs, op.x_axes, strict=True
    ):
        rank = kernel.array_type(source).rank
        wanted = [use for use in argument.uses if not isinstance(use, kernel.Generic)]
        if axis == 0 or _read_apart(wanted, argument, axis == rank - 1):
            continue
        assert op.body.first is not None
        whole = copy(Builder(op.body, op.location, op.body.first), argument)
        for use in [use for use in wanted if use.parent is not None]:
            use.replace_operand(argument, whole)


__all__ = ["copy", "insert_copies"]
