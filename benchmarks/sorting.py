"""Sorting and selection beside NumPy and PyTorch: `sort`, `argsort` and `top_k` of rows of floats.

    python -m benchmarks sorting [--torch PYTHON] [--rounds 5]

A line has the milliseconds of one thread, the fastest call of all rounds, which take turns. NumPy sorts
stably, as dlc does. `--torch` names the interpreter of an environment with PyTorch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

import dlc

Run = Callable[[], object]
CASES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "sort 32,000": ((32_000,), 0),
    "sort 1,000,000": ((1_000_000,), 0),
    "sort 256 x 1,000": ((256, 1000), 0),
    "sort 4,096 x 32": ((4096, 32), 0),
    "top 40 of 32,000": ((32_000,), 40),
    "top 40 of 1,000,000": ((1_000_000,), 40),
    "top 5 of 256 x 1,000": ((256, 1000), 5),
}
"""By name the shape that is sorted along its last axis, and how many are wanted; 0 is all."""
SECONDS = 0.2
"""How long a contender runs in a turn."""
CHILD = """
import json, sys, time, torch
torch.set_num_threads(1)
torch.manual_seed(0)
cases = {k: (torch.randn(*shape), count) for k, (shape, count) in json.loads(sys.argv[1]).items()}
for line in sys.stdin:
    x, count = cases[line.strip()]
    run = (lambda: torch.topk(x, count)) if count else (lambda: torch.sort(x, stable=True))
    best, end = 1e9, time.perf_counter() + float(sys.argv[2])
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    print(best, flush=True)
"""


class Torch:
    """PyTorch in a process of its own."""

    def __init__(self, python: str) -> None:
        command = [python, "-c", CHILD, json.dumps(CASES), str(SECONDS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self, case: str) -> float:
        """The seconds of the fastest call in a turn."""
        asked, told = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        asked.write(f"{case}\n")
        asked.flush()
        return float(told.readline())


def ours(shape: tuple[int, ...], count: int) -> Run:
    """A call of compiled code."""
    type, best = f"f32{list(shape)}", [*shape[:-1], count]
    text = f"export fn f(x: {type}) -> {type} = sort(x)"
    if count:
        result = f"(values: f32{best}, places: i32{best})"
        text = f"export fn f(x: {type}) -> {result} = top_k(x, {count})"
    model, x = dlc.compile(text=f"dlc 1\n{text}\n", threads=1), given(shape)
    return lambda: model.f(x)


def numpy(shape: tuple[int, ...], count: int) -> Run:
    """NumPy's stable sort; the best by partition, then sorted."""
    x = given(shape)
    if not count:
        return lambda: np.sort(x, axis=-1, kind="stable")

    def best() -> object:
        places = np.argpartition(-x, count, axis=-1)[..., :count]
        values = np.take_along_axis(x, places, -1)
        return np.take_along_axis(places, np.argsort(-values, axis=-1), -1)

    return best


def given(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Normal numbers."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def turn(run: Run) -> float:
    """The seconds of the fastest call in a turn."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def main(arguments: list[str]) -> int:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(prog="sorting", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter with PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch = Torch(options.torch) if options.torch else None
    names = ["dlc", "numpy", *(["torch"] if torch else [])]
    print(f"{'milliseconds':22}", *[f"{name:>9}" for name in names])
    for case, (shape, count) in CASES.items():
        runs = ours(shape, count), numpy(shape, count)
        fastest = [float("inf")] * len(names)
        for _ in range(options.rounds):
            seconds = [turn(run) for run in runs] + ([torch.turn(case)] if torch else [])
            fastest = [min(pair) for pair in zip(fastest, seconds, strict=True)]
        print(f"{case:22}", *[f"{1e3 * seconds:9.3f}" for seconds in fastest])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
