"""A profiled call as a trace for Perfetto (ui.perfetto.dev) or Chrome: what each thread did, and when."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dlc.driver.run.outputs import JSON
from dlc.runtime.profiling.profile import Profile

FIRST = 1
"""The number of the first process."""


def trace_text(*profiles: Profile) -> str:
    """The quietest of the calls in Chrome's JSON format, times in microseconds.

    Of several ranks each is a process, whose times begin with its call.
    """
    names: list[JSON] = []
    events: list[JSON] = []
    for rank, profile in enumerate(profiles):
        of_rank = f", rank {rank}" if len(profiles) > 1 else ""
        process = FIRST + rank
        names.append(
            _named("process_name", process, 0, f"{profile.model}: {profile.entry}{of_rank}")
        )
        threads = [] if profile.on_gpu else _threads(profile.threads)
        if profile.uses_gpu:
            threads.append(profile.device.rpartition("+")[2])
        names += [_named("thread_name", process, k, name) for k, name in enumerate(threads)]
        events += _events(process, profile)
    data = {"displayTimeUnit": "ns", "traceEvents": [*names, *events]}
    return json.dumps(data, ensure_ascii=False) + "\n"


def _events(process: int, profile: Profile) -> Sequence[JSON]:
    """What the threads of a process did."""
    events: list[JSON] = []
    for each in profile.intervals:
        row = profile.ops[each.op]
        events.append(
            {
                "ph": "X",
                "pid": process,
                "tid": each.thread,
                "ts": round(each.start / 1000, 3),
                "dur": round((each.end - each.start) / 1000, 3),
                "name": row.title,
                "cat": row.path or "model",
                "args": {"place": row.place, "line": row.line, "kernel": row.kernel},
            }
        )
    return events


def _threads(count: int) -> list[str]:
    return [f"thread {k}" for k in range(count)]


def _named(kind: str, process: int, thread: int, name: str) -> JSON:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
