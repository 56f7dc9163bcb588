"""Measuring where the time of a call goes: rounds of plain and traced calls in turns.

Each round calls the entry point, enters the compiled code without a trace and with one. Of the times of
each kernel the smallest quarter counts, so that other work on the machine hardly shows. What the trace
costs is measured beside it, in processor time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import NamedTuple, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.abi import TraceWord
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.kernel_records import (
    KernelRecord,
    KernelRecords,
    kernels_section,
    read_kernel_records,
)
from dlc.runtime.artifact.manifest import Op
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Interval, Row, floor_of
from dlc.runtime.profiling.timeline import Timeline, timeline

Result = TypeVar("Result")
Words: TypeAlias = NDArray[np.int64]
Times: TypeAlias = NDArray[np.float64]

_SIZE = re.compile(r"\([^()]*\)|\w+(?:\*\w+)*")
"""What may be a size in the description of a kernel: a sum in brackets, or a product."""
LEAST_ROUNDS = 6
ENOUGH_SECONDS = 1.5
"""Rounds go on for so long, if their number is not given."""
LEAST_SECONDS = 0.05
"""Shorter measurements could not compare the processor's counter of cycles with the clock."""
MAX_RECORDS = 4_000_000
"""Records of a call, of 32 bytes each: a call with more is too long to trace."""
SLACK = 4
"""Threads cut the work of a wave into chunks, which are records of their own."""


class Measured(NamedTuple):
    """An entry point that is ready to be called again and again with the same arguments."""

    call: Callable[[], object]
    plain: Callable[[], object]
    traced: Callable[[Words, bool], int]
    """Fill records, on one thread only or not; gives how many there were to write."""
    enough: Callable[[bool], bool] = bool
    """Whether rounds end, of whether they may: ranks that are called together end them together."""


class Subject(NamedTuple):
    """What the profile is of."""

    artifact: Artifact
    target: str
    entry: str
    threads: int
    dims: Mapping[str, int]
    ops: Sequence[Op]
    predicted_ns: Mapping[int, int]
    """By op id, for one run on one thread."""
    texts: Mapping[str, str]


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
    """Measure so many rounds, or as many as 1.5 seconds allow.

    Raises CallError: D0801 where `rounds` is no whole number from 1, D0825 for too many kernels.
    """
    least = None if rounds is None else _checked_rounds(subject.entry, rounds)
    measured.call()
    runs, capacity = _runs(subject, measured)
    done = _rounds(measured, np.zeros((capacity, TraceWord.COUNT), np.int64), least)
    cycles_per_ms = 1e6 * _cycles_per_nanosecond(done)
    lines = [timeline(each.records, len(subject.ops), subject.threads) for each in done]
    rows = _rows(subject, runs, lines, cycles_per_ms)
    call, processor, plain, long, untraced, traced = (
        float(quiet(np.array(times))) / 1e6
        for times in zip(*[each.times for each in done], strict=True)
    )
    idle = [
        each.times.traced / 1e6 - line.covered / cycles_per_ms
        for each, line in zip(done, lines, strict=True)
    ]
    between, rows = _without_trace(max(0.0, long - plain), float(quiet(np.array(idle))), rows)
    kernels = sum(row.ms for row in rows.values())
    python = max(0.0, call - plain)
    spans = sum(line.span for line in lines)
    busy = np.sum([line.threads for line in lines], axis=0) / max(1, spans)
    quietest = min(done, key=lambda each: each.times.traced)
    return Profile(
        subject.artifact.manifest.model,
        subject.entry,
        subject.target,
        dict(subject.dims),
        subject.threads,
        len(done),
        call,
        processor,
        python,
        between,
        max(0.0, call - python - between - kernels),
        traced / untraced - 1 if untraced else 0.0,
        tuple(busy.tolist()),
        tuple(rows.values()),
        _intervals(quietest.records, cycles_per_ms),
        rows,
    )


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


def _checked_rounds(entry: str, rounds: object) -> int:
    if isinstance(rounds, bool) or not isinstance(rounds, SupportsIndex) or index(rounds) < 1:
        raise CallError(
            f"{entry}: rounds is {rounds!r}, which is no whole number from 1",
            code="D0801",
            help="rounds=10 calls it at least ten times; without it profiling takes about 1.5 seconds",
        )
    return index(rounds)


def quiet(times: Times) -> Times:
    """The mean of the smallest quarter of the times along the first axis: what nothing interrupted.

    >>> quiet(np.array([5.0, 1.0, 90.0, 2.0, 3.0, 3.0, 4.0, 60.0])).item()
    1.5
    """
    return np.mean(np.sort(times, axis=0)[: max(1, len(times) // 4)], axis=0)


def records_of(artifact: Artifact, target: str, entry: str) -> KernelRecords:
    """What the artifact says of the ops of an entry point; nothing in one of an older compiler."""
    name = kernels_section(target, entry)
    if name not in artifact.sections:
        return KernelRecords()
    try:
        return read_kernel_records(bytes(artifact.section(name)))
    except ValueError as error:
        raise artifact.error_context.error("D0610", str(error), section=name) from None


def _runs(subject: Subject, measured: Measured) -> tuple[Mapping[int, int], int]:
    """How often each op runs in a call, and room for the records of one on all threads."""
    capacity = 1024
    while capacity <= MAX_RECORDS:
        records = np.zeros((capacity, TraceWord.COUNT), np.int64)
        count = measured.traced(records, True)
        if measured.enough(count <= capacity):
            ops, counts = np.unique(records[:count, TraceWord.OP], return_counts=True)
            runs = dict(zip(ops.tolist(), counts.tolist(), strict=True))
            return runs, min(MAX_RECORDS, SLACK * subject.threads * count + 1024)
        capacity = 2 * count
    raise CallError(
        f"{subject.entry}: a call runs more than {MAX_RECORDS:,} kernels, too many to trace",
        code="D0825",
        help="profile smaller sizes or fewer steps",
    )


def _rounds(measured: Measured, records: Words, rounds: int | None) -> list[_Round]:
    done: list[_Round] = []
    begin = time.perf_counter()
    measured.traced(records, False)  # touches the memory of the records
    while True:
        spent = time.perf_counter() - begin
        enough = len(done) >= (LEAST_ROUNDS if rounds is None else rounds)
        long = spent > (ENOUGH_SECONDS if rounds is None else LEAST_SECONDS)
        if measured.enough(enough and long):
            return done
        call, processor, _, _ = _timed(measured.call)
        plain, plain_processor, _, _ = _timed(measured.plain)
        traced, traced_processor, end, count = _timed(lambda: measured.traced(records, False))
        times = _Times(call, processor, plain, traced, plain_processor, traced_processor)
        done.append(_Round(times, records[: min(len(records), count)].copy(), end))


def _timed(action: Callable[[], Result]) -> tuple[int, int, int, Result]:
    """Nanoseconds of the clock, and of the calling thread's processor time; when it ended, and its result.

    Asking for the processor time takes as long as a small kernel, so the clock is read inside.
    """
    worked = time.thread_time_ns()
    begun = time.perf_counter_ns()
    result = action()
    end = time.perf_counter_ns()
    return end - begun, time.thread_time_ns() - worked, end, result


def _cycles_per_nanosecond(done: Sequence[_Round]) -> float:
    """The rate of the time stamp counter: the slope of the ends of calls over the clock."""
    ends = [
        (each.end, int(each.records[:, TraceWord.END].max())) for each in done if len(each.records)
    ]
    if len(ends) < 2:
        return 1.0
    clock, cycles = (np.array(column, np.float64) - column[0] for column in zip(*ends, strict=True))
    return float(clock @ cycles / (clock @ clock))


def _rows(
    subject: Subject, runs: Mapping[int, int], lines: Sequence[Timeline], cycles_per_ms: float
) -> dict[int, Row]:
    found = records_of(subject.artifact, subject.target, subject.entry)
    records = found.kernels or (KernelRecord(),) * len(subject.ops)
    wall = quiet(np.array([line.wall for line in lines])) / cycles_per_ms
    busy = quiet(np.array([line.busy for line in lines])) / cycles_per_ms
    rows: dict[int, Row] = {}
    for op, count in sorted(runs.items()):
        record, own = records[op], subject.ops[op]
        place = record.places[0] if record.places else own.place
        what = sized(record.what, subject.dims) or own.kernel or own.name
        operations, moved = (
            _amount(text, subject.dims) for text in (record.operations, record.bytes)
        )
        rows[op] = Row(
            record._replace(what=what).title,
            record.path,
            what,
            own.kernel,
            place,
            _line(place, subject.texts),
            count,
            float(wall[op]),
            float(busy[op]),
            count * operations,
            count * moved,
            count * subject.predicted_ns.get(op, 0) / 1e6,
            floor_of(found.roof, operations, moved, count, subject.threads),
        )
    return rows


def sized(what: str, dims: Mapping[str, int]) -> str:
    """What a kernel computes, with numbers for the named sizes.

    >>> sized("matmul B*T×512×(K + 1) + silu", {"B": 2, "T": 3, "K": 7})
    'matmul 6×512×8 + silu'
    """

    def value(found: re.Match[str]) -> str:
        try:
            return str(size_expressions.evaluate(found[0], dims, ()))
        except size_expressions.BadExpression:
            return found[0]

    return _SIZE.sub(value, what)


def _amount(text: str, dims: Mapping[str, int]) -> int:
    """A size at these dims; 0 where it depends on one that only the call measures."""
    try:
        return max(0, size_expressions.evaluate(text, dims, ()))
    except size_expressions.BadExpression:
        return 0


def _line(place: str, texts: Mapping[str, str]) -> str:
    """The line of the text that a place is in."""
    if place.count(":") < 2:
        return ""
    file, number, _ = place.rsplit(":", 2)
    lines = texts.get(file, "").splitlines()
    return lines[int(number) - 1].strip() if number.isdigit() and int(number) <= len(lines) else ""


def _intervals(records: Words, cycles_per_ms: float) -> tuple[Interval, ...]:
    if not len(records):
        return ()
    first = int(records[:, TraceWord.START].min())
    scale = 1e6 / cycles_per_ms
    return tuple(
        Interval(op, thread, (start - first) * scale, (end - first) * scale)
        for op, thread, start, end in records.tolist()
    )
