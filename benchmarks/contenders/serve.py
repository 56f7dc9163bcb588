"""The loop of a contender: it makes as many calls as each line of its input asks for."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping

CLOCK = "DLC_BENCHMARK_CLOCK"
"""The variable that says which clock counts: `processor` is what all threads of the contender take."""
COSTS = "DLC_BENCHMARK_COSTS"
"""The variable that names a table of costs, for the contender that is compiled by it."""
TARGET = "DLC_BENCHMARK_TARGET"
"""The variable that says what our code is compiled for."""


def serve(call: Callable[[], object], facts: Mapping[str, float]) -> None:
    """Print the facts as one JSON object; then answer each number read with the milliseconds of that many
    calls."""
    clock = time.process_time if os.environ.get(CLOCK) == "processor" else time.perf_counter
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        spent: list[float] = []
        for _ in range(int(line)):
            begin = clock()
            call()
            spent.append((clock() - begin) * 1e3)
        print(json.dumps(spent), flush=True)
