"""Limits of the integers of an entry point that index an axis, so that random numbers are valid indices.

An input is followed through what only moves and converts its elements, into loops, to the operations that
take it as an index. Below the graph nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import array, flow, func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.driver.compile.build_artifact import EntryPoint
from dlc.driver.compile.entries import find_entry
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size
from dlc.ir.types import TensorType

Limits = dict[str, str]
"""By input: a size, as an expression, below which all of its elements must be."""
MOVES = (
    *(array.Cast, array.Reshape, array.Broadcast, array.Transpose, array.Slice, array.Reverse),
    *(array.Concatenate, array.Select, array.Pad, array.Gather, array.DynamicSlice),
)
"""Operations whose results have elements of their operands."""


def limits_of(module: Module, entry: str | None) -> Limits:
    """The limits of the inputs of the entry point that is meant."""
    return index_limits(find_entry(module, entry))


def index_limits(function: EntryPoint) -> Limits:
    """The least limit of each integer input; those that are numbers come before those with names."""
    if not isinstance(function, func.Func):
        return {}
    found: Limits = {}
    for name, value in zip(function.input_names, function.body.arguments, strict=True):
        if isinstance(value.type, TensorType) and value.type.dtype.is_integer:
            limits = list(_limits(value))
            numbers = [limit for limit in limits if isinstance(limit, int)]
            if limits:
                found[name] = str(min(numbers) if numbers else limits[0])
    return found


def _limits(value: Value) -> Iterator[Size]:
    """All sizes that elements of a value must be below."""
    pending, seen = [value], {value}
    while pending:
        each = pending.pop()
        for user in each.uses:
            yield from _asked(user, each)
            for moved in _moved(user, each):
                if moved not in seen:
                    seen.add(moved)
                    pending.append(moved)


def _asked(user: Op, index: Value) -> Iterator[Size]:
    """The sizes that an operation asks an index to be below."""
    match user:
        case array.Gather(source=source) | array.Scatter(target=source):
            shape = tensor_type(source).shape
            for axis, other in zip(user.axes, user.indices, strict=True):
                if other is index:
                    yield shape[axis]
        case array.CheckIndex(extent=extent, part=part):
            yield extent - part + 1
        case array.DynamicSlice(source=source, sizes=sizes):
            for start, whole, part in zip(
                user.starts, tensor_type(source).shape, sizes, strict=True
            ):
                if start is index:
                    yield whole - part + 1
        case _:
            pass


def _moved(user: Op, value: Value) -> Iterator[Value]:
    """The values that have the elements of one that an operation takes."""
    if isinstance(user, MOVES):
        is_index = (
            isinstance(user, array.Gather | array.DynamicSlice) and user.operands[0] is not value
        )
        if not is_index:
            yield from user.results
    for region in user.regions:
        first = 1 if isinstance(user, flow.Scan) else 0  # the number of the step
        if len(region.arguments) == len(user.operands) + first:
            for argument, operand in zip(region.arguments[first:], user.operands, strict=True):
                if operand is value:
                    yield argument
