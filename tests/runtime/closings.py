"""Closes models at random moments of calls by eight threads: `python -m tests.runtime.closings COUNT SEED`.

A process of its own, since what reads freed memory may end it. Prints how many calls were right and how
many were refused; the exit status is 1 if a result was wrong or an error another than D0811.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import CallError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model

Array = NDArray[np.generic]

THREADS = 8
WIDTH = 128
TEXT = f"""dlc 1
module Net {{
  param w: f32[{WIDTH}, {WIDTH}] = normal(0.1)
  param v: f32[{WIDTH}, {WIDTH}] = normal(0.1)
  export fn f(x: f32[16, {WIDTH}]) -> f32[16, {WIDTH}] = tanh(x @ (2.0 * w)) @ v
}}
"""


def artifact() -> Artifact:
    """A model whose weights are prepared when it is first called: it multiplies by panels of them."""
    return compile_model(open_model("net.dlm", text=TEXT), Settings(), "init:0")


class Closing:
    """A model that threads call in ways of their own until it is closed."""

    def __init__(self, model: Model, x: Array, expected: Array, random: Random) -> None:
        self.model, self.x, self.expected, self.random = model, x, expected, random
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        ways = (self.plain, self.into, self.lent)
        workers = [
            threading.Thread(target=self.work, args=(ways[number % 3],))
            for number in range(THREADS)
        ]
        for worker in workers:
            worker.start()
        time.sleep(self.random.random() * 0.003)
        with self.model:
            time.sleep(self.random.random() * 0.001)
        for worker in workers:
            worker.join()

    def plain(self) -> object:
        return self.model.f(self.x)

    def into(self) -> object:
        out = np.empty_like(self.expected)
        self.model.f(self.x, out=out)
        return out

    def lent(self) -> object:
        return self.model.f(self.x, arena=self.model.f.new_arena())

    def work(self, call: Callable[[], object]) -> None:
        while True:
            try:
                found = call()
            except CallError as error:
                self.counts[error.diagnostics[0].code or "no code"] += 1
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
                self.counts[repr(error)] += 1
                return
            self.counts["right" if np.array_equal(found, self.expected) else "wrong"] += 1  # pyright: ignore[reportArgumentType]


def main(count: int, seed: int) -> int:
    made, random = artifact(), Random(seed)
    x = np.random.default_rng(0).standard_normal((16, WIDTH)).astype(np.float32)
    with Model(made, threads=2) as model:
        expected = np.asarray(model.f(x))
    total: Counter[str] = Counter()
    for _ in range(count):
        closing = Closing(Model(made, threads=2), x, expected, random)
        closing.run()
        total += closing.counts
    print(*(f"{name} {number}" for name, number in sorted(total.items())))
    return int(bool(total.keys() - {"right", "D0811"}))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
