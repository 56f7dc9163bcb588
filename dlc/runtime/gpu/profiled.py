"""Measuring where the time of a call on a GPU goes: whole calls, parts and kernels, timed alternately.

All times but that of the whole call are of the device's clock. Kernels that a call runs side by side are
timed one after the other (`kernel_timer`); their times become shorter together where they are more than
those of the call. As on a processor, the smallest quarter counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dlc.runtime.calling.profiled import (
    ENOUGH_SECONDS,
    LEAST_ROUNDS,
    checked_rounds,
    quiet,
    timed_call,
)
from dlc.runtime.calling.profiled_rows import Subject, Times, rows_of
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.gpu.kernel_timer import KernelTime, KernelTimer
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Interval

NS_PER_MS = 1e6


class Measured(NamedTuple):
    """An entry point that is ready to be called again and again with the same arguments."""

    call: Callable[[], object]
    timed: Callable[[], CallTimes]
    kernels: Callable[[], KernelTimer]


class _Round(NamedTuple):
    call_ms: float
    processor_ms: float
    parts: CallTimes
    kernels: Sequence[KernelTime]
    events_ms: float

    @property
    def figures(self) -> tuple[float, ...]:
        """Milliseconds: of the call, of the processor, of transfers, of computing, of recording events."""
        transfers = self.parts.upload_ms + self.parts.download_ms
        return self.call_ms, self.processor_ms, transfers, self.parts.compute_ms, self.events_ms


def profile(subject: Subject, measured: Measured, rounds: int | None) -> Profile:
    """Measure `rounds` rounds, or as many as 1.5 seconds allow. Raises CallError (D0801) for `rounds`."""
    done = _rounds(measured, None if rounds is None else checked_rounds(subject.entry, rounds))
    runs = Counter(each.op for each in done[0].kernels)
    alone = quiet(np.array([_by_op(each.kernels, len(subject.ops)) for each in done]))
    call, processor, transfers, compute, events = quiet(
        np.array([each.figures for each in done])
    ).tolist()
    compute = min(compute, call)
    transfers = min(transfers, call - compute)
    kernels = float(alone.sum())
    part = min(1.0, compute / kernels) if kernels else 1.0
    rows = rows_of(subject, runs, alone * part, alone)
    quietest = min(done, key=lambda each: sum(kernel.end - kernel.start for kernel in each.kernels))
    return Profile(
        *subject.heading,
        len(done),
        call,
        processor,
        python_ms=call - compute - transfers,
        between_ms=max(0.0, compute - kernels),
        interrupted_ms=0.0,
        overhead=events / compute if compute else 0.0,
        busy=(min(1.0, kernels / compute) if compute else 0.0,),
        rows=tuple(rows.values()),
        intervals=tuple(
            Interval(each.op, 0, NS_PER_MS * each.start, NS_PER_MS * each.end)
            for each in quietest.kernels
        ),
        ops=rows,
        transfers_ms=transfers,
    )


def _rounds(measured: Measured, rounds: int | None) -> list[_Round]:
    """The rounds, after two calls: the second makes the graph that the others launch."""
    for _ in range(2):
        measured.call()
    done: list[_Round] = []
    begin = time.perf_counter()
    while len(done) < (LEAST_ROUNDS if rounds is None else rounds) or (
        rounds is None and time.perf_counter() - begin < ENOUGH_SECONDS
    ):
        call, processor, _, _ = timed_call(measured.call)
        parts, timer = measured.timed(), measured.kernels()
        times = call / NS_PER_MS, processor / NS_PER_MS
        done.append(_Round(*times, parts, timer.times, timer.events_ms))
    return done


def _by_op(times: Sequence[KernelTime], ops: int) -> Times:
    """Milliseconds of each op."""
    found = np.zeros(ops)
    for op, start, end in times:
        found[op] += end - start
    return found
