"""Constants of a kernel that only say how far apart or how long arrays are: arguments of its function.

So kernels that differ in such constants are one function: layers that write next to each other into one
array, paddings of different widths, panels of weights with different numbers of columns.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.ir.core import Op
from dlc.ir.types import INDEX

AMOUNTS = range(2, 1 << 31)
"""What is less is a step, an end or a sign, what is more a mark that is no index."""

_USERS = (scalar.Add, scalar.Subtract, scalar.Minimum, scalar.Maximum, scalar.Compare)
"""What computes the same way with every number. Divisions and products have other instructions for some."""


class Distances:
    """Numbers the distances of kernels; equal ones of a kernel have one number."""

    def __init__(self) -> None:
        self._numbers: dict[Op, int] = {}

    def number(self, op: scalar.Constant) -> int | None:
        """The number of a constant among the distances of its kernel; None where it is no distance."""
        if not _is_distance(op):
            return None
        if op not in self._numbers:
            numbers: dict[object, int] = {}
            for other in _kernel_of(op).walk():
                if isinstance(other, scalar.Constant) and _is_distance(other):
                    self._numbers[other] = numbers.setdefault(other.value, len(numbers))
        return self._numbers[op]


def _is_distance(op: scalar.Constant) -> bool:
    return (
        op.type is INDEX
        and abs(op.value) in AMOUNTS
        and all(isinstance(user, _USERS) for user in op.result.uses)
    )


def _kernel_of(op: Op) -> Op:
    while not isinstance(op, kernel.Kernel):
        assert op.parent is not None
        assert op.parent.parent is not None
        op = op.parent.parent
    return op
