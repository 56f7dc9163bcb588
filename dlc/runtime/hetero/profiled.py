"""Where the time of a call on a processor and a GPU goes: whole calls and kernels, timed alternately.

In a timed call the devices work one after the other, so each kernel has the time that it takes alone: those
of the processor by its time stamp counter, those of the GPU by its own clock. In a plain call the devices
work at the same time: where kernels and copies together take longer than that, all become shorter in
proportion.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dlc.runtime.abi import TraceWord
from dlc.runtime.calling.profiled import (
    ENOUGH_SECONDS,
    LEAST_ROUNDS,
    Times,
    Words,
    checked_rounds,
    cycles_per_nanosecond,
    quiet,
    timed_call,
)
from dlc.runtime.calling.profiled_rows import Subject, rows_of
from dlc.runtime.gpu.kernel_timer import KernelTime
from dlc.runtime.hetero.recorder import Pieces, Traced
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Interval
from dlc.runtime.profiling.timeline import timeline

NS_PER_MS = 1e6


class _Round(NamedTuple):
    call_ms: float
    processor_ms: float
    found: Pieces


class _OpTimes(NamedTuple):
    """Milliseconds of each op: of the call, and of all threads."""

    wall: Times
    busy: Times
    threads: Times
    """By thread."""


def profile(
    subject: Subject,
    call: Callable[[], object],
    pieces: Callable[[bool], Pieces],
    rounds: int | None,
) -> Profile:
    """Measure `rounds` rounds, or as many as 1.5 seconds allow. Raises CallError (D0801) for `rounds`.

    `pieces` makes a timed call, with all work of the processor on one thread if that is asked for.
    """
    runs = _runs(pieces(True))
    done = _rounds(call, pieces, None if rounds is None else checked_rounds(subject.entry, rounds))
    ends = [
        (piece.end, int(piece.records[:, TraceWord.END].max()))
        for each in done
        for piece in _traced(each.found)
    ]
    cycles_per_ms = NS_PER_MS * cycles_per_nanosecond(ends)
    times = [_times(each.found, subject, cycles_per_ms) for each in done]
    alone, busy, threads = (quiet(np.array(column)) for column in zip(*times, strict=True))
    figures = [
        (each.call_ms, each.processor_ms, each.found.copies_ms, each.found.events_ms)
        for each in done
    ]
    call_ms, processor, copies, events = quiet(np.array(figures)).tolist()
    whole = float(alone.sum()) + copies
    part = min(1.0, call_ms / whole) if whole else 1.0
    rows = rows_of(subject, runs, alone * part, busy)
    return Profile(
        *subject.heading,
        len(done),
        call_ms,
        processor,
        python_ms=0.0,
        between_ms=max(0.0, call_ms - whole),
        interrupted_ms=0.0,
        overhead=events / call_ms if call_ms else 0.0,
        busy=tuple(np.minimum(1.0, threads / call_ms).tolist()),
        rows=tuple(rows.values()),
        intervals=_intervals(done[-1].found, subject.threads, cycles_per_ms),
        ops=rows,
        transfers_ms=copies * part,
    )


def _rounds(
    call: Callable[[], object], pieces: Callable[[bool], Pieces], rounds: int | None
) -> list[_Round]:
    """The rounds, after a call that allocates."""
    call()
    done: list[_Round] = []
    begin = time.perf_counter()
    while len(done) < (LEAST_ROUNDS if rounds is None else rounds) or (
        rounds is None and time.perf_counter() - begin < ENOUGH_SECONDS
    ):
        spent, processor, _, _ = timed_call(call)
        done.append(_Round(spent / NS_PER_MS, processor / NS_PER_MS, pieces(False)))
    return done


def _traced(found: Pieces) -> list[Traced]:
    """The segments in which the processor did something."""
    return [each for each in found.pieces if isinstance(each, Traced) and len(each.records)]


def _records(found: Pieces) -> Words:
    return np.concatenate(
        [np.zeros((0, TraceWord.COUNT), np.int64), *[each.records for each in _traced(found)]]
    )


def _runs(found: Pieces) -> Counter[int]:
    """How often each op runs, from a call in which each run is a record of one thread."""
    runs = Counter(each.op for each in found.pieces if isinstance(each, KernelTime))
    runs.update(_records(found)[:, TraceWord.OP].tolist())
    return runs


def _times(found: Pieces, subject: Subject, cycles_per_ms: float) -> _OpTimes:
    """The times of one call."""
    line = timeline(_records(found), len(subject.ops), subject.threads)
    wall, busy = line.wall / cycles_per_ms, line.busy / cycles_per_ms
    for each in found.pieces:
        if isinstance(each, KernelTime):
            wall[each.op] += each.end - each.start
            busy[each.op] += each.end - each.start
    return _OpTimes(wall, busy, line.threads / cycles_per_ms)


def _intervals(found: Pieces, threads: int, cycles_per_ms: float) -> tuple[Interval, ...]:
    """One piece behind the other; the GPU is the thread behind those of the processor."""
    intervals: list[Interval] = []
    now, scale = 0.0, NS_PER_MS / cycles_per_ms
    for piece in found.pieces:
        if isinstance(piece, KernelTime):
            end = now + NS_PER_MS * (piece.end - piece.start)
            intervals.append(Interval(piece.op, threads, now, end))
        elif len(piece.records):
            first = int(piece.records[:, TraceWord.START].min())
            intervals += [
                Interval(op, thread, now + (start - first) * scale, now + (stop - first) * scale)
                for op, thread, start, stop in piece.records.tolist()
            ]
            end = now + (int(piece.records[:, TraceWord.END].max()) - first) * scale
        else:
            continue
        now = end
    return tuple(intervals)
