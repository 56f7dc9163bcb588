"""Measured sizes in the plan: who reads the counts, and what has no plan.

A kernel that mentions a measured dim reads its count, as if that were an operand: it runs in a later wave,
and the count keeps its memory until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects import flow, func, kernel
from dlc.dialects.measured import Measuring, dims_of
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, names, product, symbol


class Reads:
    """What each operation reads: its operands, and the counts of the measured dims that it mentions."""

    def __init__(self, measured: Mapping[str, Measuring]) -> None:
        self._counts = {name: op.count for name, op in measured.items()}

    def __call__(self, op: Op) -> Sequence[Value]:
        return (*op.operands, *self.counts(op))

    def counts(self, op: Op) -> Sequence[Value]:
        """The counts that an operation reads without having them as operands."""
        if not self._counts:
            return ()
        mentioned = dims_of(op)
        return [
            count
            for name, count in self._counts.items()
            if name in mentioned and count.op is not op
        ]

    def is_count(self, value: Value) -> bool:
        """Whether a value is the count of a measured dim."""
        return any(value is count for count in self._counts.values())


def refuse_unplanned(function: func.Func, measured: Mapping[str, Measuring]) -> None:
    """Raises Unsupported, naming every loop that would walk memory in steps of a measured size."""
    if not measured:
        return
    scans = [op for op in function.walk() if isinstance(op, flow.Scan)]
    wrong = [op for op in scans if not _is_planned(op, frozenset(measured))]
    if wrong:
        raise Unsupported([_no_plan(op) for op in wrong])


def _no_plan(op: flow.Scan) -> Diagnostic:
    return Diagnostic(
        "D0701",
        "a scan over a measured size goes forwards over the first axis, and the sizes behind the axis that "
        "a scan goes over are not measured",
        op.location.place,
    )


def _is_planned(op: flow.Scan, measured: frozenset[str]) -> bool:
    walked = [*zip(op.xs, op.x_axes, strict=True)]
    walked += zip(op.results[len(op.initial) :], op.y_axes, strict=True)
    steps = [product(kernel.array_type(value).shape[axis + 1 :]) for value, axis in walked]
    if any(_depends(step, measured) for step in steps):
        return False
    if not _depends(op.length, measured):
        return True
    return not op.reverse and any(op.length == symbol(name) for name in measured)


def _depends(size: Size, measured: frozenset[str]) -> bool:
    return not names(size).isdisjoint(measured)
