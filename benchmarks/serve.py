"""The loop of a contender: it makes so many calls as each line of its input asks for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping


def serve(call: Callable[[], object], facts: Mapping[str, float]) -> None:
    """Print the facts as one JSON object; then answer each number read with the milliseconds of so many
    calls."""
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        spent: list[float] = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            call()
            spent.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(spent), flush=True)
