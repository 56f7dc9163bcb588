"""Copy insertion: every region yields distinct values that it computed, so each can be written in place.

A region may yield its arguments, constants, or one value twice, and a loop may use its index or walk along
an axis whose slices are not contiguous. Copies are inserted there, as in XLA's pass of this name.
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
                _own_results(op.body, dict(zip(ys, op.y_axes, strict=True)))
            case flow.While():
                _own_results(op.body, {})
            case flow.If():
                _own_results(op.then, {})
                _own_results(op.otherwise, {})
            case _:
                pass
    _own_results(function.body, {})


def copy(emit: Builder, value: Value) -> Value:
    """A kernel that copies an array."""
    type = kernel.array_type(value)
    return generic(emit, (value,), type.shape, lambda at, arrays: arrays[0][at])


def _own_results(block: Block, stacked: dict[Value, int]) -> None:
    """Copy values that a block yields without computing them, or yields twice."""
    terminator = block.terminator
    seen: set[Value] = set()
    results: list[Value] = []
    for value in terminator.operands:
        origin = computed(value)
        is_own = origin.block is block and isinstance(
            origin.op, kernel.Kernel | flow.Scan | flow.While | flow.If | Join
        )
        if not is_own or origin in seen or not _fits_stack(value, origin, stacked):
            value = origin = copy(Builder.before_op(terminator), value)
        seen.add(origin)
        results.append(value)
    terminator.set_operands(results)


def _fits_stack(value: Value, origin: Value, stacked: dict[Value, int]) -> bool:
    """Whether a value can be computed in its slice of a stack, where it may be strided."""
    axis = stacked.get(value, 0)
    if axis == 0:
        return True
    innermost = axis == kernel.array_type(value).rank
    is_written = isinstance(origin.op, kernel.Kernel) and origin.op.writes in _strided_accesses(
        innermost
    )
    if isinstance(origin.op, Send) and origin.op.crosses:
        return False  # a transfer between memories is contiguous
    readers = [use for use in value.uses if not isinstance(use, flow.Yield)]
    return value is origin and is_written and _can_read_strided(readers, value, innermost)


def _strided_accesses(innermost: bool) -> Sequence[kernel.Access]:
    """The accesses of kernels that allow strided rows, or with `innermost` strided elements."""
    strided = (kernel.Access.STRIDED,)
    return strided if innermost else (*strided, kernel.Access.UNIT_STRIDE)


def _can_read_strided(readers: Sequence[Op], value: Value, innermost: bool) -> bool:
    """Whether these operations can read an array whose rows, or with `innermost` elements, are strided.

    A reshape is a view of its source, and a nested loop takes slices: both need it dense.
    """
    return all(
        isinstance(reader, kernel.Kernel)
        and all(
            reader.reads(number) in _strided_accesses(innermost)
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
    position = initial + xs
    operands = [*op.operands[:position], numbers, *op.operands[position:]]
    op.attributes["segments"] = (initial, xs + 1, constants)
    op.attributes["x_axes"] = (*op.x_axes, 0)
    op.set_operands(operands)
    argument = op.body.insert_argument(1 + position, counter)
    index.replace_by(argument)


def _copy_slices(op: flow.Scan) -> None:
    """Copy strided slices that a reshape, a product or a nested loop needs dense."""
    first = 1 + len(op.initial)
    for argument, source, axis in zip(
        op.body.arguments[first : first + len(op.xs)], op.xs, op.x_axes, strict=True
    ):
        rank = kernel.array_type(source).rank
        readers = [use for use in argument.uses if not isinstance(use, kernel.Generic)]
        if axis == 0 or _can_read_strided(readers, argument, axis == rank - 1):
            continue
        assert op.body.first is not None
        whole = copy(Builder(op.body, op.location, op.body.first), argument)
        for use in [use for use in readers if use.parent is not None]:
            use.replace_operand(argument, whole)


__all__ = ["copy", "insert_copies"]
