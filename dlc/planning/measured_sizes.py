"""Measured sizes in the plan: which operations read the counts, and which loops cannot be planned.

A kernel that mentions a measured dim reads its count as if that were an operand: it runs in a later wave,
and the count is live until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects import flow, func, kernel
from dlc.dialects.measured import Measuring, dims_of
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, names, product, symbol


class Reads:
    """The values that an operation reads: its operands and the counts of measured dims that it mentions."""

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
    """Raises Unsupported for every loop that would advance in memory by steps of a measured size."""
    if not measured:
        return
    scans = [op for op in function.walk(formulas=False) if isinstance(op, flow.Scan)]
    reasons = [(op, _why_unplanned(op, frozenset(measured))) for op in scans]
    wrong = [_no_plan(op, *reason) for op, reason in reasons if reason is not None]
    if wrong:
        raise Unsupported(wrong)


def _no_plan(op: flow.Scan, why: str, help: str) -> Diagnostic:
    return Diagnostic("D0701", why, op.location.place, help=help)


def _why_unplanned(op: flow.Scan, measured: frozenset[str]) -> tuple[str, str] | None:
    """Why a scan cannot be planned, and a way out; None if it can."""
    walked = [*zip(op.xs, op.x_axes, strict=True)]
    walked += zip(op.results[len(op.initial) :], op.y_axes, strict=True)
    for value, axis in walked:
        type = kernel.array_type(value)
        counted = sorted(names(product(type.shape[axis + 1 :])) & measured)
        if counted:
            return (
                f"a scan goes in steps along axis {axis} of {type.text}, and {counted[0]}, the size of "
                "a step, is only known when its elements have been counted",
                "count inside the loop, or go over the axis that is counted",
            )
    if not _depends(op.length, measured):
        return None
    if all(op.length != symbol(name) for name in measured):
        return (
            f"a scan makes {op.length} steps, which is calculated from a size that is counted",
            "go over the elements that were counted themselves, or count the steps in a while",
        )
    if op.reverse:
        return (
            f"a scan over {op.length} elements, which are counted, goes forwards only",
            "go forwards over them",
        )
    return None


def _depends(size: Size, measured: frozenset[str]) -> bool:
    return not names(size).isdisjoint(measured)
