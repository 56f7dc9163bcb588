"""The loop of a contender that is several processes: the first reads how many calls all of them make."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

Share = Callable[[int], int]
"""Gives every rank the number that the first one passes, without taking a processor while it waits."""


def serve_ranks(
    call: Callable[[], object], facts: Mapping[str, float], rank: int, share: Share
) -> None:
    """As `serve.serve`; the milliseconds are those of the first rank."""
    if rank:
        while count := share(0):
            for _ in range(count):
                call()
        return
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        count = share(int(line))
        spent: list[float] = []
        for _ in range(count):
            begin = time.perf_counter()
            call()
            spent.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(spent), flush=True)
    share(0)
