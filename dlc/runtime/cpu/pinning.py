"""Pinning: each worker of the thread pool keeps to a processor of its own.

The pool is one for the process, and so is pinning. The calling thread is the program's own and stays as it
is; the first processor is left for it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dlc.errors import UsageError
from dlc.errors.boundary import without_frames
from dlc.errors.options import in_python
from dlc.runtime.abi import MAX_CPUS, MAX_THREADS, POOL_BYTES, WorkerWord
from dlc.runtime.cpu.threads import POOL

CPUS = Path("/sys/devices/system/cpu")
_SPEEDS = ("cpu_capacity", "acpi_cppc/highest_perf", "cpufreq/cpuinfo_max_freq")
"""What tells quick cores from efficient ones, on ARM, on x86, and where neither does."""


@without_frames
@in_python()
def pin_threads(cpus: Iterable[SupportsIndex] | Literal["auto"] | None = "auto") -> tuple[int, ...]:
    """Let each worker of the thread pool keep to a processor; gives those that are in use, in order.

    `cpus` are numbers of processors as the system counts them: the first one is left for the thread that
    calls models, which stays as it is, and each worker gets the next one; workers beyond them stay free.
    `"auto"` takes the processors that this process may use (`pinning_order`), None lets all workers go. It
    holds for workers that will be started, too, but not in a forked child. Raises UsageError (D0902) for
    processors that the process may not use, and for what is not a list of different ones.
    """
    allowed = os.sched_getaffinity(0)
    chosen = _chosen(cpus, allowed)
    rows = _rows()
    for worker in range(1, MAX_THREADS):
        cpu = chosen[worker] if worker < len(chosen) else None
        rows[worker, WorkerWord.CPU] = 0 if cpu is None else cpu + 1
        thread = int(rows[worker, WorkerWord.SYSTEM_THREAD])
        if thread:
            with suppress(OSError):  # the processor was taken away meanwhile: it stays where it is
                os.sched_setaffinity(thread, allowed if cpu is None else {cpu})
    return chosen


def pinning_order(allowed: Iterable[int], cpus: Path = CPUS) -> list[int]:
    """Processors in the order in which threads should have them.

    First one of each core, then those that share a core with another: two threads of one core share its
    multipliers. Among them quick cores come before efficient ones.
    """
    facts = {cpu: (_siblings(cpus, cpu), _speed(cpus, cpu)) for cpu in sorted(allowed)}

    def rank(cpu: int) -> tuple[int, int, int]:
        siblings, speed = facts[cpu]
        earlier = sum(1 for other in siblings if other < cpu and other in facts)
        return earlier, -speed, cpu

    return sorted(facts, key=rank)


def _chosen(
    cpus: Iterable[SupportsIndex] | Literal["auto"] | None, allowed: set[int]
) -> tuple[int, ...]:
    if cpus is None:
        return ()
    if cpus == "auto":
        return tuple(pinning_order(cpu for cpu in allowed if cpu < MAX_CPUS))
    try:
        chosen = tuple([index(cpu) for cpu in cpus if not isinstance(cpu, str)])
    except TypeError:
        raise _no_cpus(f"found {cpus!r}", allowed) from None
    if len({*chosen}) < len(chosen):
        raise _no_cpus(f"found one twice in {list(chosen)}", allowed)
    for cpu in chosen:
        if cpu not in allowed or cpu >= MAX_CPUS:
            raise _no_cpus(f"this process may not use {cpu}", allowed)
    return chosen


def _no_cpus(why: str, allowed: Iterable[int]) -> UsageError:
    there = sorted(allowed)
    named = ", ".join(map(str, there[:8])) + (", ..." if len(there) > 8 else "")
    return UsageError(
        f"threads are pinned to a list of different processors: {why}",
        code="D0902",
        help=f'there are {named}; "auto" takes them all, None lets threads go',
    )


def _rows() -> NDArray[np.int64]:
    """The words of the pool, a row for each thread."""
    words = (ctypes.c_int64 * (POOL_BYTES // 8)).from_address(POOL)
    return np.ctypeslib.as_array(words).reshape(MAX_THREADS, -1)


def _siblings(cpus: Path, cpu: int) -> Sequence[int]:
    """The processors of the core that a processor is of, itself among them."""
    text = _text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list")
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdecimal() and (high or low).isdecimal():
            found += range(int(low), int(high or low) + 1)
    return found or [cpu]


def _speed(cpus: Path, cpu: int) -> int:
    """What a core can do, beside others; 0 where the system says nothing."""
    texts = (_text(cpus / f"cpu{cpu}" / name) for name in _SPEEDS)
    return next((int(text) for text in texts if text.isdecimal()), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
