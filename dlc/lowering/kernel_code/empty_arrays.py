"""Which loads of a formula have no element to load where an array is empty.

A formula such as that of padding loads an element at an index that is kept inside the array, and selects
it where the index was inside without that. An empty array has no such index: nothing of it may be read.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.dialects.interface import bounds_around
from dlc.dialects.kernel.generic import array_type
from dlc.ir.bounded import never_negative
from dlc.ir.core import Value
from dlc.ir.dims import Size


def extents_perhaps_zero(op: kernel.Load) -> list[Size]:
    """The extents of a loaded array that may be 0 although the element is loaded, each once.

    Along other axes the index counts the extent, or is inside it wherever the kernel computes anything.
    """
    bounds = bounds_around(op)
    pairs = zip(array_type(op.array).shape, op.indices, strict=True)
    kept = dict.fromkeys(extent for extent, index in pairs if _is_kept_inside(index))
    return [extent for extent in kept if not never_negative(extent - 1, bounds)]


def _is_kept_inside(index: Value) -> bool:
    """Whether an index is limited or checked on the way, which no index into an empty axis passes."""
    pending, seen = [index], set[Value]()
    while pending:
        value = pending.pop()
        match value.op:
            case scalar.Minimum() | scalar.Maximum() | scalar.Select() | kernel.CheckIndex():
                return True
            case scalar.Elementary() | scalar.Cast() as op if value not in seen:
                seen.add(value)
                pending += op.operands
            case _:
                pass
    return False
