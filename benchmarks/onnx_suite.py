"""ONNX's own test suite: how many of its cases dlc passes, computes wrongly, or does not import.

    python -m benchmarks onnx_suite [PATTERN] [--kinds Node,Simple] [--show wrong,broken,unsupported]

A case is wrong if it runs and gives other numbers, shapes or dtypes than the suite says; broken if
anything else happens than a refusal. Nothing may be either: the program ends with 3.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from tests.importers.onnx.suite import KINDS, VERDICTS, outcomes

NUMBERS_DIFFER = 3


def main() -> int:
    """Run it and print the counts; gives the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--show", default="wrong,broken")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    with tempfile.TemporaryDirectory() as cache, ProcessPoolExecutor(given.jobs) as pool:
        os.environ["DLC_CACHE"] = cache
        parts = pool.map(
            outcomes,
            repeat(kinds),
            repeat(given.pattern),
            range(given.jobs),
            repeat(given.jobs),
        )
        found = [outcome for part in parts for outcome in part]
    shown = set(given.show.split(","))
    for outcome in sorted(found, key=lambda one: (one.verdict, one.name)):
        if outcome.verdict in shown:
            first = " ".join(outcome.why.split())[:300]
            print(f"{outcome.verdict:12} {outcome.kind} {outcome.name}: {first}")
    for kind in kinds:
        counts = Counter(outcome.verdict for outcome in found if outcome.kind == kind)
        text = ", ".join(f"{counts[verdict]:5} {verdict}" for verdict in VERDICTS)
        print(f"{kind:18} {text}")
    return NUMBERS_DIFFER if {"wrong", "broken"} & {one.verdict for one in found} else 0


if __name__ == "__main__":
    sys.exit(main())
