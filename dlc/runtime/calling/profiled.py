"""Measuring where the time of a call goes: rounds that alternate plain and traced calls.

Each round calls the entry point, enters the compiled code without a trace and with one. Of the times of
each kernel the smallest quarter counts, so that other work on the machine hardly shows. What the trace
costs is measured beside it, in processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from typing import NamedTuple, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.abi import TraceWord
from dlc.runtime.calling.profiled_rows import Subject, rows_of
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Interval, Row
from dlc.runtime.profiling.timeline import Timeline, timeline

Result = TypeVar("Result")
Words: TypeAlias = NDArray[np.int64]
Times: TypeAlias = NDArray[np.float64]

LEAST_ROUNDS = 6
QUARTER = 4
ENOUGH_SECONDS = 1.5
"""Rounds go on for so long, if their number is not given."""
ROUND_NS = 100_000
"""Shorter runs of the compiled code are timed several in a row, since reading the clock takes as long."""
MOST_RUNS = 64
SHORT_NS = 1_000_000
"""Most runs as short as this are not interrupted."""
LEAST_SECONDS = 0.05
"""Shorter measurements could not compare the processor's counter of cycles with the clock."""
MAX_RECORDS = 4_000_000
"""Records of a call, of 32 bytes each: a call with more is too long to trace."""
SLACK = 4
"""Threads cut the work of a wave into chunks, which are records of their own."""


class Measured(NamedTuple):
    """An entry point that is ready to be called again and again with the same arguments."""

    call: Callable[[], object]
    run: Callable[[], None]
    """The compiled code alone, in this frame."""
    frame: Tracing
    enough: Callable[[bool], bool] = bool
    """Whether runs end, of whether they may: ranks that are called together end them together."""


class Tracing(Protocol):
    """The part of a frame that this needs; see `CallFrame`."""

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None: ...

    @property
    def traced(self) -> int: ...


class _Times(NamedTuple):
    """Of one round in nanoseconds."""

    call: float
    processor: float
    """That of the calling thread, in the same call."""
    plain: float
    traced: float
    plain_processor: float
    traced_processor: float


class _Round(NamedTuple):
    times: _Times
    records: Words
    end: int
    """When it ended, in nanoseconds of the clock."""


def profile(subject: Subject, measured: Measured, rounds: int | None) -> Profile:
    """Measure this number of rounds, or as many as 1.5 seconds allow.

    Raises CallError: D0801 where `rounds` is not a whole number from 1, D0825 for too many kernels.
    """
    least = None if rounds is None else checked_rounds(subject.entry, rounds)
    measured.call()
    runs, capacity = _runs(subject, measured)
    done = _rounds(measured, np.zeros((capacity, TraceWord.COUNT), np.int64), least)
    ends = [
        (each.end, int(each.records[:, TraceWord.END].max())) for each in done if len(each.records)
    ]
    cycles_per_ms = 1e6 * cycles_per_nanosecond(ends)
    lines = [timeline(each.records, len(subject.ops), subject.threads) for each in done]
    wall, busy_ms, idle = _of_traced_runs(done, lines, cycles_per_ms)
    rows = rows_of(subject, runs, wall, busy_ms)
    call, processor, plain, long, untraced, traced = (
        quiet(np.array([each.times for each in done])) / 1e6
    ).tolist()
    between, rows = _without_trace(max(0.0, long - plain), idle, rows)
    kernels = sum(row.ms for row in rows.values())
    python = max(0.0, call - plain)
    spans = sum(line.span for line in lines)
    busy = np.sum([line.threads for line in lines], axis=0) / max(1, spans)
    quietest = min(done, key=lambda each: each.times.traced)
    return Profile(
        *subject.heading,
        len(done),
        call,
        processor,
        python_ms=python,
        between_ms=between,
        interrupted_ms=max(0.0, call - python - between - kernels),
        overhead=traced / untraced - 1 if untraced else 0.0,
        busy=tuple(busy.tolist()),
        rows=tuple(rows.values()),
        intervals=_intervals(quietest.records, cycles_per_ms),
        ops=rows,
    )


def _of_traced_runs(
    done: Sequence[_Round], lines: Sequence[Timeline], cycles_per_ms: float
) -> tuple[Times, Times, float]:
    """Milliseconds of each op, of the call and of all threads, and those while no thread is in a kernel.

    Of short runs the quickest count, for all ops the same ones, so that the times add up; long ones are all
    interrupted somewhere, and there the smallest quarter of each op's times counts.
    """
    traced = [each.times.traced for each in done]
    idle = [
        time / 1e6 - line.covered / cycles_per_ms for time, line in zip(traced, lines, strict=True)
    ]
    mean: Callable[[Times], Times] = quiet
    if quiet(np.array(traced)) < SHORT_NS:
        chosen = sorted(range(len(done)), key=traced.__getitem__)[: max(1, len(done) // QUARTER)]
        lines, idle, mean = [lines[k] for k in chosen], [idle[k] for k in chosen], _mean
    wall = mean(np.array([line.wall for line in lines])) / cycles_per_ms
    busy = mean(np.array([line.busy for line in lines])) / cycles_per_ms
    return wall, busy, float(mean(np.array(idle)))


def _mean(times: Times) -> Times:
    return np.mean(times, axis=0)


def _without_trace(
    longer: float, between: float, rows: Mapping[int, Row]
) -> tuple[float, dict[int, Row]]:
    """The milliseconds between kernels and the rows, less those by which the trace has lengthened a call.

    Most of them are spent where the call is entered; only where more were lost than lies between kernels
    do the clock's readings count, at both ends of each row.
    """
    kernels = sum(row.ms for row in rows.values())
    rest = max(0.0, longer - max(0.0, between))
    factor = max(0.0, 1 - rest / kernels) if kernels else 1.0
    shorter = {
        op: replace(row, ms=factor * row.ms, busy_ms=factor * row.busy_ms)
        for op, row in rows.items()
    }
    return max(0.0, between - longer), shorter


def checked_rounds(entry: str, rounds: object) -> int:
    """How many rounds are asked for. Raises CallError (D0801) for anything but a whole number from 1."""
    if isinstance(rounds, bool) or not isinstance(rounds, SupportsIndex) or index(rounds) < 1:
        raise CallError(
            f"{entry}: rounds is {rounds!r}, which is not a whole number from 1",
            code="D0801",
            help="rounds=10 calls it at least ten times; without it profiling takes about 1.5 seconds",
        )
    return index(rounds)


def quiet(times: Times) -> Times:
    """The mean of the smallest quarter of the times along the first axis: what nothing interrupted.

    >>> quiet(np.array([5.0, 1.0, 90.0, 2.0, 3.0, 3.0, 4.0, 60.0])).item()
    1.5
    """
    return np.mean(np.sort(times, axis=0)[: max(1, len(times) // QUARTER)], axis=0)


def _runs(subject: Subject, measured: Measured) -> tuple[Mapping[int, int], int]:
    """How often each op runs in a call, and room for the records of one on all threads."""
    capacity = 1024
    while True:
        records = np.zeros((capacity, TraceWord.COUNT), np.int64)
        measured.frame.trace_into(records, alone=True)
        measured.run()
        count = measured.frame.traced
        if measured.enough(count <= capacity):
            ops, counts = np.unique(records[:count, TraceWord.OP], return_counts=True)
            runs = dict(zip(ops.tolist(), counts.tolist(), strict=True))
            return runs, min(MAX_RECORDS, SLACK * subject.threads * count + 1024)
        capacity = check_traced(subject.entry, 2 * count)


def check_traced(entry: str, records: int) -> int:
    """The number of records to make room for. Raises CallError (D0825) for too many."""
    if records > MAX_RECORDS:
        raise CallError(
            f"{entry}: a call runs more than {MAX_RECORDS:,} kernels, too many to trace",
            code="D0825",
            help="profile smaller sizes or fewer steps",
        )
    return records


def _rounds(measured: Measured, records: Words, rounds: int | None) -> list[_Round]:
    frame = measured.frame
    frame.trace_into(None)
    measured.run()
    once, _, _, _ = timed_call(measured.run)
    runs = 1
    while runs < MOST_RUNS and not measured.enough(runs * once >= ROUND_NS):
        runs *= 2
    done: list[_Round] = []
    begin = time.perf_counter()
    frame.trace_into(records)
    measured.run()  # touches the memory of the records
    while True:
        spent = time.perf_counter() - begin
        enough = len(done) >= (LEAST_ROUNDS if rounds is None else rounds)
        long = spent > (ENOUGH_SECONDS if rounds is None else LEAST_SECONDS)
        if measured.enough(enough and long):
            return done
        call, processor, _, _ = timed_call(measured.call)
        frame.trace_into(None)
        plain, plain_processor, _, _ = timed_call(partial(_repeated, measured.run, runs))
        frame.trace_into(records)
        traced, traced_processor, end, _ = timed_call(partial(_repeated, measured.run, runs))
        of_runs = (each / runs for each in (plain, traced, plain_processor, traced_processor))
        times = _Times(call, processor, *of_runs)
        done.append(_Round(times, records[: min(len(records), frame.traced)].copy(), end))


def _repeated(action: Callable[[], None], times: int) -> None:
    for _ in range(times):
        action()


def timed_call(action: Callable[[], Result]) -> tuple[int, int, int, Result]:
    """Nanoseconds of the clock, and of the calling thread's processor time; when it ended, and its result.

    Asking for the processor time takes as long as a small kernel, so the clock is read inside.
    """
    worked = time.thread_time_ns()
    begun = time.perf_counter_ns()
    result = action()
    end = time.perf_counter_ns()
    return end - begun, time.thread_time_ns() - worked, end, result


def cycles_per_nanosecond(ends: Sequence[tuple[int, int]]) -> float:
    """The rate of the time stamp counter: its slope over the clock at some moments.

    >>> cycles_per_nanosecond([(100, 5), (110, 25), (130, 65)])
    2.0
    """
    if len(ends) < 2:
        return 1.0
    clock, cycles = (np.array(column, np.float64) - column[0] for column in zip(*ends, strict=True))
    return float(clock @ cycles / (clock @ clock))


def _intervals(records: Words, cycles_per_ms: float) -> tuple[Interval, ...]:
    if not len(records):
        return ()
    first = int(records[:, TraceWord.START].min())
    scale = 1e6 / cycles_per_ms
    return tuple(
        Interval(op, thread, (start - first) * scale, (end - first) * scale)
        for op, thread, start, end in records.tolist()
    )
