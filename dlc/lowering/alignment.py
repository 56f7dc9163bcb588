"""What is known of where arrays begin: whether several elements can be moved at once."""

from __future__ import annotations

from dlc.dialects import mem
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import ViewType


def divides(number: int, size: Size) -> bool:
    """Whether a size is a multiple of a number, whatever its dims are."""
    if isinstance(size, Dim):
        return all(factor % number == 0 for _, factor in size.terms)
    return size % number == 0


def in_units(view: Value, axis: int, unit: int) -> bool:
    """Whether a view consists of units of so many bytes, whole ones, each along one axis.

    Memory that a view is in begins at a multiple of 64 bytes: on the device, in the arena, of a weight.
    """
    type, op = view.type, view.op
    assert isinstance(type, ViewType)
    count = unit // type.dtype.bytes
    moves = (op.offset, *op.steps) if isinstance(op, mem.View) else ()
    others = [stride for k, stride in enumerate(type.strides) if k != axis]
    return (
        type.strides[axis] == 1
        and divides(count, type.shape[axis])
        and all(divides(count, stride) for stride in others)
        and all(divides(unit, move) for move in moves)
    )
