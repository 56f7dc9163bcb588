"""Errors of calls on a GPU: refusals of the driver, and failures that kernels report.

A refusal of the driver names the kernel where that is known, and says how to find it where it is not.
Failures that kernels and the host recorded become one outcome, in the words of `CallWord`: the first
failure in program order.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.errors import CallError, Diagnostic
from dlc.runtime.abi import CallWord, FaultWord, Status
from dlc.runtime.calling.frames import Words
from dlc.runtime.gpu.steps import EndWord, StepTable

# Refusals of the driver ---------------------------------------------------------------------------

WAIT = "DLC_GPU_WAIT"
"""In the environment: wait for each kernel, so that the one that fails is known, and make no graphs."""


class KernelFailed(CallError):
    """The driver refused a kernel, that of the operation `op` by its number, or it failed."""

    def __init__(self, message: str | Sequence[Diagnostic], op: int = 0) -> None:
        super().__init__(message)
        self.op = op


def waits_for_each_kernel() -> bool:
    """Whether each kernel is to be waited for before the next one."""
    return bool(os.environ.get(WAIT))


@contextmanager
def attributed_to(op: int) -> Generator[None]:
    """Let what the driver refuses meanwhile be known as that of a kernel of an operation."""
    try:
        yield
    except CallError as error:
        raise KernelFailed(error.diagnostics, op) from error


@contextmanager
def with_wait_hint() -> Generator[None]:
    """Let what the driver refuses meanwhile say how to find the kernel, where that is not known."""
    try:
        yield
    except KernelFailed:
        raise
    except CallError as error:
        help = f"with {WAIT}=1 in the environment it names the operation that failed"
        told = [replace(said, help=said.help or help) for said in error.diagnostics]
        raise CallError(told) from error


# Outcomes of calls --------------------------------------------------------------------------------

SUCCESS: Final = [0] * CallWord.COUNT
"""The words of a call that has succeeded."""
_LATER = (Status.CANCELLED, Status.LIMIT)
"""What the host decides comes after all that it had launched."""


def outcome_words(status: int, op: int = 0, tile: int = 0, a: int = 0, b: int = 0) -> list[int]:
    """The words of a call that ended like this at an operation, by its number."""
    words = [0] * CallWord.COUNT
    words[CallWord.STATUS], words[CallWord.STATUS_STEP] = int(status), op
    words[CallWord.STATUS_TILE], words[CallWord.STATUS_A], words[CallWord.STATUS_B] = tile, a, b
    return words


def first_failure(noted: Words, ops: Sequence[int], by_host: list[int] | None) -> list[int]:
    """The first failure in the order of the program, or the words of a call that has none.

    `noted` has a row for each call of a kernel, `ops` its operation; `by_host` are the words with which
    the host ended the walk.
    """
    failed = np.flatnonzero(noted[:, FaultWord.STATUS])
    if not len(failed):
        return by_host or SUCCESS
    first = int(failed[0])
    if (
        by_host is not None
        and by_host[CallWord.STATUS] not in _LATER
        and by_host[CallWord.STATUS_STEP] < ops[first]
    ):
        return by_host
    return _noted(noted, ops, first)


def _noted(noted: Words, ops: Sequence[int], row: int) -> list[int]:
    """The words of a call that ended as a kernel has noted."""
    words: list[int] = noted[row].tolist()
    return outcome_words(words[FaultWord.STATUS], ops[row], *words[FaultWord.TILE :])


def call_outcome(notes: Words, steps: StepTable, by_host: list[int] | None) -> list[int]:
    """The first failure in the order of the program, where a condition on the device may have ended it.

    `notes` are all that `steps` has room for.
    """
    count = FaultWord.COUNT * steps.fault_rows
    rows, rest = notes[:count].reshape(-1, FaultWord.COUNT), notes[count:]
    status, earlier, limit, op = (
        rest[: EndWord.COUNT].tolist() if steps.may_end_on_device else (0, 0, 0, 0)
    )
    if earlier:
        return _noted(rows, steps.ops, earlier - 1)
    match status:
        case Status.OK:
            return first_failure(rows, steps.ops, by_host)
        case Status.LIMIT:
            return outcome_words(status, op, 0, limit)
        case _:
            return outcome_words(status)
