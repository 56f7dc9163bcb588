"""A profiled call as a trace for Perfetto (ui.perfetto.dev) or Chrome: what each thread did, and when."""

from __future__ import annotations

import json

from dlc.driver.run.outputs import JSON
from dlc.runtime.profiling.profile import Profile

PROCESS = 1


def trace_text(profile: Profile) -> str:
    """The quietest of the calls in Chrome's JSON format, times in microseconds."""
    names: list[JSON] = [_named("process_name", 0, f"{profile.model}: {profile.entry}")]
    threads = [profile.device] if profile.on_gpu else _threads(profile.threads)
    names += [_named("thread_name", k, name) for k, name in enumerate(threads)]
    events: list[JSON] = []
    for each in profile.intervals:
        row = profile.ops[each.op]
        events.append(
            {
                "ph": "X",
                "pid": PROCESS,
                "tid": each.thread,
                "ts": round(each.start / 1000, 3),
                "dur": round((each.end - each.start) / 1000, 3),
                "name": row.title,
                "cat": row.path or "model",
                "args": {"place": row.place, "line": row.line, "kernel": row.kernel},
            }
        )
    data = {"displayTimeUnit": "ns", "traceEvents": [*names, *events]}
    return json.dumps(data, ensure_ascii=False) + "\n"


def _threads(count: int) -> list[str]:
    return [f"thread {k}" for k in range(count)]


def _named(kind: str, thread: int, name: str) -> JSON:
    return {"ph": "M", "pid": PROCESS, "tid": thread, "name": kind, "args": {"name": name}}
