"""Measuring where the time of a call goes that the stages of a pipeline make together.

Rounds alternate plain and traced calls. In a traced one a stage notes when it runs parts, sends values and
waits for them, and its parts are traced. All stages look at the same rounds, the quickest ones by the rank
that takes longest: so what one of them waits is what others work then, and the times add up.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlc.runtime.abi import TraceWord
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import Words
from dlc.runtime.calling.profiled import (
    ENOUGH_SECONDS,
    LEAST_ROUNDS,
    LEAST_SECONDS,
    QUARTER,
    SLACK,
    check_traced,
    cycles_per_nanosecond,
    timed_call,
)
from dlc.runtime.calling.profiled_rows import Subject, rows_of
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.stage_call import Passed, Plan, StageCall, copied
from dlc.runtime.calling.traced_stages import PartCall, Recording, TracedStageCall
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Floor, Interval, Row
from dlc.runtime.profiling.stages import Share, Span, StageTimes, until_the_last
from dlc.runtime.profiling.timeline import timeline
from dlc.runtime.ranks.entering import Entering
from dlc.runtime.ranks.links import Channel

NS = 1e6
"""Nanoseconds of a millisecond."""
BETWEEN = "(between stages)"
"""The module of the rows that are no kernels."""


@dataclass(frozen=True, slots=True)
class StagedCalls:
    """Calls of a function on one stage, with equal arguments; other ranks make them at the same time."""

    name: str
    model: str
    target: str
    """The kind of machine that the parts are for."""
    plan: Plan
    entries: Mapping[str, EntryPoint]
    channel: Channel
    ranks: Sequence[int]
    """Those of the pipeline, by stage."""
    values: Mapping[str, Passed]
    dims: Mapping[str, int]
    begin: Callable[[], None]
    """Begins a call together with the other ranks."""
    entering: Entering

    def own(self) -> dict[str, Passed]:
        """The arguments, with copies of what a call changes."""
        changed = {output.updates for entry in self.entries.values() for output in entry.outputs}
        return {
            name: copied(value) if name in changed else value for name, value in self.values.items()
        }

    def call(self, values: Mapping[str, Passed]) -> None:
        """A plain call."""
        call = StageCall(self.plan, self.entries, self.channel, dict(values), self.dims)
        call.run()
        call.results()
        self.channel.settle()

    def record(self, values: Mapping[str, Passed], recording: Recording) -> None:
        """A call that is recorded."""
        own = dict(values)
        call = TracedStageCall(self.plan, self.entries, self.channel, own, self.dims, recording)
        call.run()
        call.results()
        recording.end(self.channel.settle)


class _Round(NamedTuple):
    """Nanoseconds of a plain call and its processor time, and a recorded call."""

    plain: float
    processor: float
    recording: Recording
    records: Words

    @property
    def traced(self) -> float:
        """Nanoseconds of the recorded call."""
        return self.recording.ended - self.recording.began


def profile_stages(calls: StagedCalls, rounds: int | None) -> Profile:
    """Measure so many rounds at least, or as many as 1.5 seconds allow, on all stages together.

    Raises CallError: D0825 for too many kernels, and what a call raises.
    """
    values, first_op = calls.own(), _first_ops(calls)
    calls.begin()
    calls.call(values)
    alone = _alone(calls, values, first_op)
    threads = max([entry.threads for entry in calls.entries.values()], default=1)
    capacity = check_traced(calls.name, SLACK * threads * alone.used + 1024)
    done = _rounds(calls, values, first_op, capacity, rounds)
    chosen, plain = _chosen(calls.entering, done)
    return _Found(calls, first_op, threads, alone, done, chosen, plain).profile()


def _first_ops(calls: StagedCalls) -> dict[str, int]:
    """The number of the first op of each part, with those of all parts in a row."""
    found: dict[str, int] = {}
    total = 0
    for name, entry in calls.entries.items():
        found[name] = total
        total += entry.op_count
    return found


def _alone(
    calls: StagedCalls, values: Mapping[str, Passed], first_op: Mapping[str, int]
) -> Recording:
    """A call in which each run of an op has one record."""
    capacity = 1024
    while True:
        calls.begin()
        recording = Recording(calls.ranks, _room(capacity), first_op, alone=True)
        calls.record(values, recording)
        if calls.entering.all_of(recording.fits):
            return recording
        capacity = check_traced(calls.name, max(capacity, 2 * recording.used))


def _room(capacity: int) -> Words:
    return np.zeros((capacity, TraceWord.COUNT), np.int64)


def _rounds(
    calls: StagedCalls,
    values: Mapping[str, Passed],
    first_op: Mapping[str, int],
    capacity: int,
    rounds: int | None,
) -> list[_Round]:
    done: list[_Round] = []
    records = _room(capacity)
    least = LEAST_ROUNDS if rounds is None else rounds
    seconds = ENOUGH_SECONDS if rounds is None else LEAST_SECONDS
    begin = time.perf_counter()
    while True:
        enough = len(done) >= least and time.perf_counter() - begin > seconds
        if calls.entering.all_of(enough):
            return done
        calls.begin()
        plain, processor, _, _ = timed_call(lambda: calls.call(values))
        calls.begin()
        recording = Recording(calls.ranks, records, first_op, alone=False)
        calls.record(values, recording)
        done.append(_Round(plain, processor, recording, recording.records.copy()))


def _chosen(entering: Entering, done: Sequence[_Round]) -> tuple[list[int], list[int]]:
    """The quickest quarters of the recorded and of the plain calls, the same on all ranks."""
    own = [[each.traced for each in done], [each.plain for each in done]]
    longest = np.max([json.loads(each) for each in entering.told(json.dumps(own))], axis=0)
    most = max(1, len(done) // QUARTER)
    traced, plain = (np.argsort(times, kind="stable")[:most].tolist() for times in longest)
    return traced, plain


@dataclass(frozen=True, slots=True)
class _Found:
    """What was measured on a stage."""

    calls: StagedCalls
    first_op: Mapping[str, int]
    threads: int
    alone: Recording
    done: Sequence[_Round]
    chosen: Sequence[int]
    """The recorded calls that count."""
    plain: Sequence[int]
    """The plain calls that count."""

    def profile(self) -> Profile:
        """The profile of this rank."""
        rate = self._cycles_per_ns()
        quickest = [self.done[k] for k in self.chosen]
        call, processor = (
            float(np.mean([getattr(self.done[k], what) for k in self.plain])) / NS
            for what in ("plain", "processor")
        )
        traced = float(np.mean([each.traced for each in quickest])) / NS
        # The rows add up to a call without a trace.
        factor = min(1.0, call / traced)
        ops = self.first_op_after
        lines = [timeline(each.records, ops, self.threads) for each in quickest]
        wall, busy = (
            factor * np.mean([getattr(line, what) for line in lines], axis=0) / (rate * NS)
            for what in ("wall", "busy")
        )
        kernels = self._kernels(wall, busy)
        moves = self._moves(quickest, factor)
        code = [sum(each.ended - each.begun for each in r.recording.calls) / NS for r in quickest]
        covered = [line.covered / (rate * NS) for line in lines]
        between = factor * max(0.0, float(np.mean(np.subtract(code, covered))))
        python = factor * (traced - float(np.mean(code))) - sum(row.ms for row in moves)
        rows = {**kernels, **{ops + number: row for number, row in enumerate(moves)}}
        threads = np.sum([line.threads for line in lines], axis=0) / (rate * NS)
        best = self.done[self.chosen[0]]
        spent = sum(row.ms for row in rows.values()) + between + max(0.0, python)
        return Profile(
            self.calls.model,
            self.calls.name,
            self.calls.target,
            dict(self.calls.dims),
            self.threads,
            len(self.done),
            call,
            processor,
            python_ms=max(0.0, python),
            between_ms=between,
            interrupted_ms=max(0.0, call - spent),
            overhead=traced / call - 1,
            busy=tuple((threads / max(1e-9, sum(code))).tolist()),
            rows=tuple(rows.values()),
            intervals=tuple(self._intervals(best, rate)),
            ops=rows,
            stages=self._times(best, quickest),
        )

    @property
    def first_op_after(self) -> int:
        """The number of ops of all parts."""
        return sum(entry.op_count for entry in self.calls.entries.values())

    def _cycles_per_ns(self) -> float:
        """The rate of the counter that records have, from the ends of all parts that were called."""
        ends = [
            (call.ended, int(_of(call, each.records)[:, TraceWord.END].max()))
            for each in self.done
            for call in each.recording.calls
            if call.recorded
        ]
        return cycles_per_nanosecond(ends)

    def _kernels(self, wall: np.ndarray, busy: np.ndarray) -> dict[int, Row]:
        """The rows of the kernels of all parts, from milliseconds by op."""
        ops, counts = np.unique(self.alone.records[:, TraceWord.OP], return_counts=True)
        runs = dict(zip(ops.tolist(), counts.tolist(), strict=True))
        found: dict[int, Row] = {}
        for name, subject in self._subjects().items():
            first, count = self.first_op[name], len(subject.ops)
            own = {op - first: n for op, n in runs.items() if first <= op < first + count}
            part = slice(first, first + count)
            rows = rows_of(subject, own, wall[part], busy[part])
            found.update({first + op: row for op, row in rows.items()})
        return found

    def _subjects(self) -> dict[str, Subject]:
        sizes: Mapping[str, Specialization] = self.alone.sizes
        return {name: self.calls.entries[name].subject(own) for name, own in sizes.items()}

    def _moves(self, quickest: Sequence[_Round], factor: float) -> list[Row]:
        """The rows of sending and waiting, by title."""
        spent: dict[str, list[float]] = {}
        for each in quickest:
            for span in each.recording.spans:
                if span.kind != "part":
                    spent.setdefault(span.title, []).append(span.end - span.start)
        rounds = len(quickest)
        return [
            _row(title, len(times) // rounds, factor * sum(times) / rounds / NS)
            for title, times in spent.items()
        ]

    def _intervals(self, best: _Round, rate: float) -> list[Interval]:
        """What threads did in a call, in nanoseconds from its beginning."""
        found: list[Interval] = []
        for call in best.recording.calls:
            records = _of(call, best.records)
            if not call.recorded:
                continue
            last = int(records[:, TraceWord.END].max())
            for op, thread, start, end in records.tolist():
                times = (
                    max(call.begun, call.ended - (last - moment) / rate) - best.recording.began
                    for moment in (start, end)
                )
                found.append(Interval(op, thread, *times))
        return found

    def _times(self, best: _Round, quickest: Sequence[_Round]) -> StageTimes:
        """When the stage does what, and the shares of all ranks."""
        plan, began = self.calls.plan, best.recording.began
        spans = [span for each in quickest for span in each.recording.spans]
        whole = sum(each.traced for each in quickest)
        own = Share(
            plan.stage,
            *[
                part / len(quickest) / NS
                for part in (whole, *[_sum(spans, kind) for kind in ("part", "wait", "send")])
            ],
        )
        told = [Share(*json.loads(each)) for each in self.calls.entering.told(json.dumps(own))]
        return StageTimes(
            plan.stage,
            plan.staged.stages,
            plan.staged.microbatches,
            platform.node(),
            began,
            tuple(best.recording.spans),
            until_the_last(told),
        )


def _of(call: PartCall, records: Words) -> Words:
    return records[call.first : call.first + call.recorded]


def _sum(spans: Sequence[Span], kind: str) -> float:
    return sum(span.end - span.start for span in spans if span.kind == kind)


def _row(title: str, runs: int, ms: float) -> Row:
    """The row of something that is no kernel."""
    floor = Floor(0.0, "")
    return Row(title, BETWEEN, title, "", "", "", runs, ms, ms, 0, 0, 0.0, floor)
