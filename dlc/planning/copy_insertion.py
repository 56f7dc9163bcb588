"""Copy insertion: every region yields distinct values that it computed, each with a destination of its own.

A region may yield arguments, constants, or one value twice, and a loop may use its index, or slice along an
axis that leaves no row contiguous. A copying kernel is inserted there.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import flow, func, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.comm import Send
from dlc.dialects.formulas import generic
from dlc.dialects.kernel.pieces import Join
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import TensorType


def insert_copies(function: func.Func) -> None:
    """Insert the copies that a function and its loops and branches need before planning."""
    for op in list(function.walk(formulas=False)):
        match op:
            case flow.Scan():
                _materialize_index(op)
                _copy_slices(op)
                ys = op.body.terminator.operands[len(op.initial) :]
                _copy_foreign_yields(op.body, dict(zip(ys, op.y_axes, strict=True)))
            case flow.While():
                _copy_foreign_yields(op.body, {})
            case flow.If():
                _copy_foreign_yields(op.then, {})
                _copy_foreign_yields(op.otherwise, {})
            case _:
                pass
    updated = function.updates
    order = sorted(range(len(function.results_returned)), key=lambda number: number not in updated)
    _copy_foreign_yields(function.body, {}, order)


def copy(emit: Builder, value: Value) -> Value:
    """A kernel that copies an array."""
    type = kernel.array_type(value)
    return generic(emit, (value,), type.shape, lambda at, arrays: arrays[0][at])


def _copy_foreign_yields(
    block: Block, stacked: dict[Value, int], order: Sequence[int] | None = None
) -> None:
    """Copy values that a block yields but does not compute, or yields twice.

    The first in `order` (without it, that of the operands) remains the value itself.
    """
    terminator = block.terminator
    yielded_origins: set[Value] = set()
    yields = list(terminator.operands)
    for number in range(len(yields)) if order is None else order:
        value = yields[number]
        origin = without_reshapes(value)
        is_own_value = origin.block is block and isinstance(
            origin.op, kernel.Kernel | flow.Scan | flow.While | flow.If | Join
        )
        if not is_own_value or origin in yielded_origins or not _fits_stack(value, origin, stacked):
            value = origin = copy(Builder.before_op(terminator), value)
        yielded_origins.add(origin)
        yields[number] = value
    terminator.set_operands(yields)


def _fits_stack(value: Value, origin: Value, stacked: dict[Value, int]) -> bool:
    """Whether a value can be computed in its slice of a stack, where its rows may not be contiguous."""
    axis = stacked.get(value, 0)
    if axis == 0:
        return True
    innermost = axis == kernel.array_type(value).rank
    is_writable = isinstance(origin.op, kernel.Kernel) and origin.op.writes in _required_access(
        innermost
    )
    if isinstance(origin.op, Send) and origin.op.crosses:
        return False  # a transfer writes contiguous memory
    readers = [use for use in value.uses if not isinstance(use, flow.Yield)]
    return value is origin and is_writable and _allow_strides(readers, value, innermost)


def _required_access(innermost: bool) -> Sequence[kernel.Access]:
    """The access kinds that allow an array whose elements, or else rows, are not contiguous."""
    some = (kernel.Access.STRIDED,)
    return some if innermost else (*some, kernel.Access.UNIT_STRIDE)


def _allow_strides(readers: Sequence[Op], value: Value, innermost: bool) -> bool:
    """Whether these operations can read an array whose elements, or else rows, are not contiguous.

    Reshapes and nested loops, which take slices, need it contiguous.
    """
    return all(
        isinstance(reader, kernel.Kernel)
        and all(
            reader.reads(index) in _required_access(innermost)
            for index, operand in enumerate(reader.operands)
            if operand is value
        )
        for reader in readers
    )


def _materialize_index(op: flow.Scan) -> None:
    """Pass a loop its index as slices of 0, 1, 2, ..., if it uses it."""
    index = op.body.arguments[0]
    if not index.uses:
        return
    counter_type = index.type
    assert isinstance(counter_type, TensorType)

    dtype = counter_type.dtype
    iota = generic(Builder.before_op(op), (), (op.length,), lambda at, _: at[0].cast(dtype))
    initial, xs, constants = op.segments
    index_position = initial + xs
    operands = [*op.operands[:index_position], iota, *op.operands[index_position:]]
    op.attributes["segments"] = (initial, xs + 1, constants)
    op.attributes["x_axes"] = (*op.x_axes, 0)
    op.set_operands(operands)
    argument = op.body.insert_argument(1 + index_position, counter_type)
    index.replace_by(argument)


def _copy_slices(op: flow.Scan) -> None:
    """Copy slices that are not contiguous where a reshape, a product or a nested loop needs them so."""
    for argument, source, axis in zip(op.slices, op.xs, op.x_axes, strict=True):
        rank = kernel.array_type(source).rank
        users = [use for use in argument.uses if not isinstance(use, kernel.Generic)]
        if axis == 0 or _allow_strides(users, argument, axis == rank - 1):
            continue
        assert op.body.first is not None
        dense_copy = copy(Builder(op.body, op.location, op.body.first), argument)
        for use in [use for use in users if use.parent is not None]:
            use.replace_operand(argument, dense_copy)


__all__ = ["copy", "insert_copies"]
