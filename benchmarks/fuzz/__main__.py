"""Fuzzers: random graphs, texts and training against their peers, hostile files against every reader.

    python -m benchmarks fuzz onnx --count 100000 --seed 0 --jobs 2 --out onnx.json

Case k of a run has the seed `SEED + k`, so `--seed K --count 1` repeats one alone. SIGINT (Ctrl-C) and
SIGTERM end a run with its summary; the same command with the same `--out` goes on behind it, until all
cases are done. Ends with 1 if anything was wrong or crashed. docs/fuzzing.md says what each kind compares.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from benchmarks.fuzz.cases import FAILURES, Kind
from benchmarks.fuzz.pool import SIGNALS, Pool
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
MEMORY = "/dev/shm"
"""A folder in memory, on Linux: most cases write some small files and remove them."""
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
    parser.add_argument("--seconds", type=float, help="begin no case after this many seconds")
    parser.add_argument(
        "--readers", nargs="+", metavar="NAME", help="which readers are led; all unless it says"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="keep what was counted, and go on behind it"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run a fuzzer; gives the exit code."""
    options = parsed(arguments)
    if options.kind == GUIDED:
        guided = import_module("benchmarks.fuzz.readers")
        return guided.run(
            options.readers, options.count, options.seed, options.jobs, options.seconds, options.out
        )
    kind = kind_of(options.kind)
    try:
        summary = Summary.going_on(options.out, options.kind, options.jobs, options.seed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        _working_in(folder),
        _ending(options.seconds) as ended,
    ):
        seeds = begun_until(ended, summary.left(options.count))
        pool = Pool(kind.start, options.jobs, kind.seconds, kind.recycled)
        _run(pool, seeds, summary, options.out)
    _keep(summary, options.out)
    print("\n".join(summary.lines()))
    return 1 if summary.failed else 0


@contextmanager
def _working_in(folder: str) -> Generator[None]:
    """Let files and the cache of all processes lie in a folder, meanwhile."""
    # Kernels that several cases have in common are compiled once.
    changed = {"DLC_CACHE": str(Path(folder, "cache")), "TMPDIR": folder}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _ending(seconds: float | None) -> Generator[Callable[[], bool]]:
    """Whether a run is to end: its seconds are over, or a signal came."""
    until = None if seconds is None else time.monotonic() + seconds
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in SIGNALS
    }
    try:
        yield lambda: bool(came) or (until is not None and time.monotonic() >= until)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begun_until(ended: Callable[[], bool], seeds: Iterable[int]) -> Iterator[int]:
    """The seeds, one for each case that begins before the end."""
    for seed in seeds:
        if ended():
            return
        yield seed


def _run(pool: Pool, seeds: Iterable[int], summary: Summary, file: Path | None) -> None:
    """Count each outcome, and keep the counts; failures and progress go to stderr."""
    told = time.monotonic()
    for seed, outcome in pool.outcomes(seeds):
        summary.add(seed, outcome)
        if outcome.verdict in FAILURES:
            print(summary.failure(seed, outcome), file=sys.stderr, flush=True)
        if time.monotonic() - told > PROGRESS:
            told = time.monotonic()
            counts = ", ".join(f"{number} {name}" for name, number in summary.counts.items())
            print(f"{summary.cases}: {counts}", file=sys.stderr, flush=True)
            _keep(summary, file)


def _keep(summary: Summary, file: Path | None) -> None:
    """Write what was counted, in the place of what was written before."""
    if file is not None:
        new = file.with_name(f".{file.name}.new")
        new.write_text(summary.as_json(), encoding="utf-8")
        new.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
