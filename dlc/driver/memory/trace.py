"""The plan as a trace for Perfetto (ui.perfetto.dev) or Chrome: what is in use, and every root as a slice.

Each entry point is a process: a counter of the bytes in use, the ops, and as many rows of roots as overlap.
Time is the plan's own: a wave takes a millisecond, whatever it takes when it runs; the ops of a wave, which
run together, share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dlc.driver.call_memory.facts import EntryMemory, Root, Work, sizes_text
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.report import also_text
from dlc.driver.run.outputs import JSON

WAVE = 1000.0
"""Microseconds of a wave."""
_OPS = 0
"""The row of the ops; those of roots follow."""


def trace_file(memory: ModelMemory) -> str:
    """The trace of all entry points, in Chrome's JSON format."""
    events = [
        event
        for process, entry in enumerate(memory.entries, 1)
        for event in _events(memory, entry, process)
    ]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, ensure_ascii=False) + "\n"


def _events(memory: ModelMemory, entry: EntryMemory, process: int) -> Iterator[JSON]:
    yield _named("process_name", process, 0, f"{entry.name}{sizes_text(entry.dims)}")
    for wave, size in enumerate((*entry.alive, 0)):
        yield {
            "ph": "C",
            "pid": process,
            "ts": wave * WAVE,
            "name": "bytes in use",
            "args": {"bytes": size},
        }
    yield _named("thread_name", process, _OPS, "ops")
    for wave in range(entry.waves):
        yield from _wave(memory, [work for work in entry.work if work.wave == wave], process)
    rows = in_rows(entry.roots)
    for row, roots in enumerate(rows, _OPS + 1):
        yield _named("thread_name", process, row, f"roots {row}")
        yield from (_slice(root, process, row) for root in roots)


def in_rows(roots: Sequence[Root]) -> list[list[Root]]:
    """The roots in rows of which none has two in the same wave, the lowest in the arena first."""
    rows: list[list[Root]] = []
    for root in sorted(roots, key=lambda root: (root.offset, root.first)):
        for row in rows:
            if all(root.last < other.first or other.last < root.first for other in row):
                row.append(root)
                break
        else:
            rows.append([root])
    return rows


def _wave(memory: ModelMemory, works: Sequence[Work], process: int) -> Iterator[JSON]:
    """The ops of a wave, one after the other."""
    for number, work in enumerate(works):
        share = WAVE / len(works)
        yield {
            "ph": "X",
            "pid": process,
            "tid": _OPS,
            "ts": work.wave * WAVE + number * share,
            "dur": share,
            "name": work.what,
            "args": {"op": work.op, "place": work.place, "line": memory.line(work.place)},
        }


def _slice(root: Root, process: int, row: int) -> JSON:
    told = {
        "made by": str(root.maker or ""),
        "kept for": str(root.last_reader or ""),
        "also there": also_text(root),
    }
    return {
        "ph": "X",
        "pid": process,
        "tid": row,
        "ts": root.first * WAVE,
        "dur": (root.last - root.first + 1) * WAVE,
        "name": root.title,
        "args": {
            "bytes": root.bytes,
            "offset": root.offset,
            **{name: text for name, text in told.items() if text},
        },
    }


def _named(what: str, process: int, row: int, name: str) -> JSON:
    return {"ph": "M", "pid": process, "tid": row, "name": what, "args": {"name": name}}
