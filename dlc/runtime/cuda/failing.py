"""Refusals of the driver, told with the kernel where it is known, and how to find it where it is not."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dlc.errors import CallError, Diagnostic

WAIT = "DLC_GPU_WAIT"
"""In the environment: wait for each kernel, so that the one that fails is known, and make no graphs."""


class KernelFailed(CallError):
    """The driver refused a kernel, that of the operation `op` by its number, or it failed."""

    def __init__(self, message: str | Sequence[Diagnostic], op: int = 0) -> None:
        super().__init__(message)
        self.op = op


def waits_for_each() -> bool:
    """Whether each kernel is to be waited for before the next one."""
    return bool(os.environ.get(WAIT))


@contextmanager
def named(op: int) -> Generator[None]:
    """Let what the driver refuses meanwhile be known as that of a kernel of an operation."""
    try:
        yield
    except CallError as error:
        raise KernelFailed(error.diagnostics, op) from error


@contextmanager
def hinted() -> Generator[None]:
    """Let what the driver refuses meanwhile say how to find the kernel, where that is not known."""
    try:
        yield
    except KernelFailed:
        raise
    except CallError as error:
        help = f"with {WAIT}=1 in the environment it names the operation that failed"
        told = [replace(said, help=said.help or help) for said in error.diagnostics]
        raise CallError(told) from error
