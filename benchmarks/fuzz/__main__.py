"""Fuzzers: random graphs, texts and training against their peers, hostile files against every reader.

    python -m benchmarks fuzz onnx --count 1000 --seed 0 --jobs 2

Case k of a run has the seed `SEED + k`, so `--seed K --count 1` repeats one alone. Ends with 1 if anything
was wrong or crashed. docs/fuzzing.md says what each kind compares.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from benchmarks.fuzz.cases import FAILURES, Kind
from benchmarks.fuzz.pool import Pool
from benchmarks.fuzz.summary import Summary

KINDS = {
    "onnx": "graphs",
    "texts": "texts",
    "training": "training",
    "meshes": "meshes",
    "files": "files",
    "kills": "kills",
}
"""The kinds whose cases are independent of each other, with the module of each."""
GUIDED = "readers"
"""The kind that is led by what code was reached, which has a loop of its own."""
PROGRESS = 10.0
"""Seconds between two lines of progress."""


def kind_of(name: str) -> Kind:
    """One of the kinds. Its module is imported now, as it may load much."""
    return import_module(f"benchmarks.fuzz.{KINDS[name]}").KIND


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, GUIDED])
    parser.add_argument("--count", type=int, default=100, help="cases; of readers, inputs of each")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, help="begin no case after so many seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was counted")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run a fuzzer; gives the exit code."""
    options = parsed(arguments)
    if options.kind == GUIDED:
        guided = import_module("benchmarks.fuzz.readers")
        return guided.run(options.count, options.seed, options.jobs, options.seconds, options.json)
    kind = kind_of(options.kind)
    summary = Summary(options.kind, options.jobs)
    until = None if options.seconds is None else time.monotonic() + options.seconds
    seeds = range(options.seed, options.seed + options.count)
    with tempfile.TemporaryDirectory() as folder:
        # Kernels that several cases have in common are compiled once.
        os.environ["DLC_CACHE"] = folder
        _run(Pool(kind.start, options.jobs, kind.seconds), seeds, until, summary)
    print("\n".join(summary.lines()))
    if options.json is not None:
        options.json.write_text(summary.as_json(), encoding="utf-8")
    return 1 if summary.failed else 0


def _run(pool: Pool, seeds: range, until: float | None, summary: Summary) -> None:
    """Count each outcome; failures and progress go to stderr."""
    told = time.monotonic()
    for seed, outcome in pool.outcomes(seeds, until):
        summary.add(seed, outcome)
        if outcome.verdict in FAILURES:
            print(summary.failure(seed, outcome), file=sys.stderr, flush=True)
        if time.monotonic() - told > PROGRESS:
            told = time.monotonic()
            counts = ", ".join(f"{number} {name}" for name, number in summary.counts.items())
            print(f"{summary.cases} of {len(seeds)}: {counts}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
