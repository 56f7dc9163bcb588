"""Where the time of a call goes, kernel by kernel: the engine's own records of some calls."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.runtime.calling.entry import EntryPoint

CALLS = 9


def kernel_table(
    path: Path, inputs: Mapping[str, NDArray[np.float32]], threads: int, conv: str = "auto"
) -> str:
    """One line for each op of the only entry point, the slowest first: its time in the fastest of
    some calls, and what part of the call it was."""
    model, _ = make_model(CompileRequest(str(path), settings=Settings(conv=conv)), threads)
    (entry,) = model.entry_points.values()
    given = list(inputs.values())
    entry(*given)
    spent, cycles_per_ms = _records(entry, given)
    whole = sum(spent.values())
    lines = [f"{'ms':>8} {'%':>5}  op"]
    for (number, kernel, name), cycles in sorted(spent.items(), key=lambda item: -item[1]):
        share = 100 * cycles / whole
        lines.append(f"{cycles / cycles_per_ms:8.3f} {share:5.1f}  {number:4} {kernel} {name}")
    lines.append(f"{whole / cycles_per_ms:8.3f}        thread milliseconds in kernels")
    return "\n".join(lines)


Key = tuple[int, str, str]


def _records(entry: EntryPoint, given: list[NDArray[np.float32]]) -> tuple[dict[Key, int], float]:
    """Cycles of each op, summed over threads, as the fastest call has them; and cycles in a ms."""
    best: dict[Key, int] = {}
    begin, first = time.perf_counter(), 0
    end, last = begin, 0
    for call in range(CALLS):
        _, stretches = entry.trace(*given)
        found: dict[Key, int] = defaultdict(int)
        numbers: dict[int, int] = {}
        for op, _, start, stop in stretches:
            number = numbers.setdefault(id(op), len(numbers))
            found[number, op.kernel, f"{op.name} {op.place}"] += stop - start
        for key, cycles in found.items():
            best[key] = min(best.get(key, cycles), cycles)
        if call == 0:
            begin, first = time.perf_counter(), stretches[-1].end
        end, last = time.perf_counter(), stretches[-1].end
    return best, (last - first) / ((end - begin) * 1e3)
