"""A profiled call as a trace for Perfetto (ui.perfetto.dev) or Chrome: what each thread did, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dlc.driver.run.outputs import JSON
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.stages import Span

FIRST = 1
"""The number of the first process."""
WITHIN = 1
"""Nanoseconds before its end that an arrow points to a span: at the end it would be behind it."""


def trace_text(*profiles: Profile) -> str:
    """The quietest of the calls in Chrome's JSON format, times in microseconds.

    Of several ranks each is a process, whose times begin with its call. Stages of a pipeline on one host
    have a common beginning, their parts are slices around the kernels, and arrows go from where a value
    is sent to where it is waited for.
    """
    names: list[JSON] = []
    events: list[JSON] = []
    arrows: dict[str, int] = {}
    for rank, (profile, begin) in enumerate(zip(profiles, _beginnings(profiles), strict=True)):
        process = FIRST + rank
        names.append(_named("process_name", process, 0, _title(profile, rank, len(profiles))))
        threads = [] if profile.on_gpu else _threads(profile.threads)
        if profile.uses_gpu:
            threads.append(profile.device.rpartition("+")[2])
        names += [_named("thread_name", process, k, name) for k, name in enumerate(threads)]
        if profile.stages is not None:
            for span in profile.stages.spans:
                events += _span(process, begin, span, arrows)
        events += _events(process, begin, profile)
    data = {"displayTimeUnit": "ns", "traceEvents": [*names, *events]}
    return json.dumps(data, ensure_ascii=False) + "\n"


def _title(profile: Profile, rank: int, ranks: int) -> str:
    of_rank = f", rank {rank}" if ranks > 1 else ""
    of_stage = "" if profile.stages is None else f", stage {profile.stages.stage}"
    return f"{profile.model}: {profile.entry}{of_rank}{of_stage}"


def _beginnings(profiles: Sequence[Profile]) -> Sequence[int]:
    """Nanoseconds by which the times of each process are later: the clocks of a host's ranks are one."""
    stages = [profile.stages for profile in profiles]
    first: dict[str, int] = {}
    for each in stages:
        if each is not None:
            first[each.host] = min(first.get(each.host, each.began), each.began)
    return [0 if each is None else each.began - first[each.host] for each in stages]


def _events(process: int, begin: int, profile: Profile) -> Iterator[JSON]:
    """What the threads of a process did."""
    for each in profile.intervals:
        row = profile.ops[each.op]
        facts: JSON = {"place": row.place, "line": row.line, "kernel": row.kernel}
        category = row.path or "model"
        yield _slice(process, each.thread, begin, each.start, each.end, row.title, category, facts)


def _span(process: int, begin: int, span: Span, arrows: dict[str, int]) -> Iterator[JSON]:
    """What a stage did, on its first thread, with the arrow that begins or ends there."""
    named = {"microbatch": span.microbatch, span.kind: span.what or None, "stage": span.other}
    facts: JSON = {name: value for name, value in named.items() if value is not None}
    yield _slice(process, 0, begin, span.start, span.end, span.title, span.kind, facts)
    if not span.arrow:
        return
    number = arrows.setdefault(span.arrow, len(arrows) + 1)
    arrow: JSON = {
        "pid": process,
        "tid": 0,
        "id": number,
        "name": "value",
        "cat": "value",
    }
    if span.kind == "send":
        yield {"ph": "s", "ts": _us(begin + span.start), **arrow}
    else:
        end = max(span.start, span.end - WITHIN)
        yield {"ph": "f", "bp": "e", "ts": _us(begin + end), **arrow}


def _slice(
    process: int,
    thread: int,
    begin: int,
    start: float,
    end: float,
    name: str,
    category: str,
    facts: JSON,
) -> JSON:
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": _us(begin + start),
        "dur": _us(end - start),
        "name": name,
        "cat": category,
        "args": facts,
    }


def _us(nanoseconds: float) -> float:
    return round(nanoseconds / 1000, 3)


def _threads(count: int) -> list[str]:
    return [f"thread {k}" for k in range(count)]


def _named(kind: str, process: int, thread: int, name: str) -> JSON:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
