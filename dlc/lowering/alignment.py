"""What is known of where arrays begin: whether several elements can be moved at once."""

from __future__ import annotations

from dlc.dialects import mem
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import ViewType

ROOT_BYTES = 64
"""Memory that views are in begins at a multiple of it: on a device, in the arena, of a weight."""


def divides(number: int, size: Size) -> bool:
    """Whether a size is a multiple of a number, whatever its dims are."""
    if isinstance(size, Dim):
        return all(factor % number == 0 for _, factor in size.terms)
    return size % number == 0


def alignment(view: Value) -> int:
    """The most bytes, a power of two up to `ROOT_BYTES`, of which a view begins at a multiple."""
    op = view.op
    moves = (op.offset, *op.steps) if isinstance(op, mem.View) else ()
    known = ROOT_BYTES
    while not all(divides(known, move) for move in moves):
        known //= 2
    return known


def in_units(view: Value, axis: int, unit: int) -> bool:
    """Whether a view consists of units of so many bytes, whole ones, each along one axis."""
    type = view.type
    assert isinstance(type, ViewType)
    count = unit // type.dtype.bytes
    others = [stride for k, stride in enumerate(type.strides) if k != axis]
    return (
        type.strides[axis] == 1
        and divides(count, type.shape[axis])
        and all(divides(count, stride) for stride in others)
        and alignment(view) % unit == 0
    )
