"""Errors of calls on a GPU: refusals of the driver, and failures that kernels report.

A refusal of the driver names the kernel where that is known, and says how to find it where it is not.
Failures that kernels and the host recorded become one outcome, in the words of `CallWord`: the first
failure in program order.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final

import numpy as np

from dlc.errors import CallError, Diagnostic
from dlc.runtime.abi import CallWord, FaultWord, Status
from dlc.runtime.calling.frames import Words
from dlc.runtime.gpu.steps import EndWord, StepTable
from dlc.runtime.system.switches import is_switched_on

# Refusals of the driver ---------------------------------------------------------------------------

WAIT = "DLC_GPU_WAIT"
"""The environment variable that makes launches synchronous, so that the failing kernel is known."""


class KernelFailed(CallError):
    """A kernel failed, or the driver refused it; `op` is its op id."""

    def __init__(self, message: str | Sequence[Diagnostic], op: int = 0) -> None:
        super().__init__(message)
        self.op = op


def waits_for_each_kernel() -> bool:
    """Whether launches are synchronous; then no graphs are made either."""
    return is_switched_on(WAIT)


@contextmanager
def attributed_to(op: int) -> Generator[None]:
    """Raise errors of the driver meanwhile as KernelFailed of this op."""
    try:
        yield
    except CallError as error:
        raise KernelFailed(error.diagnostics, op) from error


class _WithWaitHint:
    """Adds to errors of the driver meanwhile how to find the kernel, where that is not known.

    Every call passes through it, so it is not a generator, which takes eight times as long.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, CallError) and not isinstance(error, KernelFailed):
            help = f"with {WAIT}=1 in the environment it names the operation that failed"
            hinted = [replace(each, help=each.help or help) for each in error.diagnostics]
            raise CallError(hinted) from error


with_wait_hint: Final = _WithWaitHint()


# Outcomes of calls --------------------------------------------------------------------------------

SUCCESS: Final = [0] * CallWord.COUNT
"""The words of a call that has succeeded."""
_ENDED_BY_HOST = (Status.CANCELLED, Status.LIMIT)
"""With these statuses the host ends a call after all that it has launched."""


def outcome_words(status: int, op: int = 0, tile: int = 0, a: int = 0, b: int = 0) -> list[int]:
    """The words of a call that ended with this status at an op, by id."""
    words = [0] * CallWord.COUNT
    words[CallWord.STATUS], words[CallWord.STATUS_STEP] = int(status), op
    words[CallWord.STATUS_TILE], words[CallWord.STATUS_A], words[CallWord.STATUS_B] = tile, a, b
    return words


def first_failure(faults: Words, ops: Sequence[int], by_host: list[int] | None) -> list[int]:
    """The words of a call: its first failure in program order, or success.

    `faults` has a row for each call of a kernel, `ops` its op id; `by_host` are the words with which
    the host ended the call early, if it did.
    """
    failed = np.flatnonzero(faults[:, FaultWord.STATUS])
    if not len(failed):
        return by_host or SUCCESS
    first = int(failed[0])
    if (
        by_host is not None
        and by_host[CallWord.STATUS] not in _ENDED_BY_HOST
        and by_host[CallWord.STATUS_STEP] < ops[first]
    ):
        return by_host
    return _kernel_outcome(faults, ops, first)


def _kernel_outcome(faults: Words, ops: Sequence[int], row: int) -> list[int]:
    """The words of a call that ended with the failure in this row."""
    words: list[int] = faults[row].tolist()
    return outcome_words(words[FaultWord.STATUS], ops[row], *words[FaultWord.TILE :])


def call_outcome(notes: Words, steps: StepTable, by_host: list[int] | None) -> list[int]:
    """The words of a call that a condition on the device may have ended.

    `notes` is the whole fault root.
    """
    count = FaultWord.COUNT * steps.fault_rows
    rows, rest = notes[:count].reshape(-1, FaultWord.COUNT), notes[count:]
    status, earlier, limit, op = (
        rest[: EndWord.COUNT].tolist() if steps.may_end_on_device else (0, 0, 0, 0)
    )
    if earlier:
        return _kernel_outcome(rows, steps.ops, earlier - 1)
    match status:
        case Status.OK:
            return first_failure(rows, steps.ops, by_host)
        case Status.LIMIT:
            return outcome_words(status, op, 0, limit)
        case _:
            return outcome_words(status)
