"""Failures of calls: where one may fail, after which results that update an argument in place are written.

The engine ends a call after the wave in which a kernel failed, so that later waves write nothing. Once an
argument has changed a call is no longer cancelled; a loop that may be endless therefore comes before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlc.dialects import flow, kernel
from dlc.ir.core import Op, Value
from dlc.ir.types import INDEX
from dlc.planning.waves import Choice, Item, Loop, Wave

__all__ = ["NEVER", "LastFailure", "last_failure", "may_fail"]


class LastFailure(NamedTuple):
    """The last wave in which a call may fail, and what does."""

    last: int
    why: str


NEVER = LastFailure(-1, "")


def last_failure(items: Iterable[Item]) -> LastFailure:
    """The last failure of a call. A loop that fails in any iteration fails in its last wave."""
    found = NEVER
    for item in items:
        match item:
            case Wave(number, kernels):
                op = next(filter(may_fail, kernels), None)
                if op is not None:
                    found = LastFailure(number, _told(op, "an index is checked"))
            case Loop(op=op):
                inside = last_failure([*item.test, *item.body])
                if isinstance(op, flow.While) and op.limit is None:
                    inside = LastFailure(
                        item.leave, _told(op, "a loop without a limit is cancelled")
                    )
                elif isinstance(op, flow.While) and not op.decided:
                    inside = LastFailure(item.leave, _told(op, "a loop has a limit"))
                if inside is not NEVER:
                    found = LastFailure(item.leave, inside.why)
            case Choice():
                found = max(found, last_failure([*item.then, *item.otherwise]))
    return found


def _told(op: Op, what: str) -> str:
    place = op.location.own.place
    return what if place is None else f"{what} in {place.file}:{place.line}"


def may_fail(op: kernel.Kernel) -> bool:
    """Whether a kernel may fail in a call whose sizes are as they should be."""
    match op:
        case kernel.Update(decided=decided) | kernel.Scatter(decided=decided):
            return not decided
        case kernel.NonZero():
            return True
        case _:
            return any(
                isinstance(inner, kernel.CheckIndex)
                and not inner.decided
                and _is_loaded(inner.index)
                for inner in op.walk()
            )


def _is_loaded(index: Value) -> bool:
    """Whether an index depends on an element of an array, and not on places and sizes alone.

    The sizes of a call have been checked before it begins.
    """
    pending, seen = [index], set[Value]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.op, kernel.Load) or (value.op is None and value.type is not INDEX):
            return True
        if value.op is not None:
            pending.extend(value.op.operands)
    return False
