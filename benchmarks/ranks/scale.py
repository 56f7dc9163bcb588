"""Steps of 1, 2, 4 and 8 ranks on this machine beside what `dlc scale` predicts of them.

The ranks have one thread each and take turns with each other. Where there are more of them than processors
they share these: predicted work is multiplied by how many ranks a processor has. The time of the first row
is that of one rank, so what is compared is how it changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contenders.turns import Process, take_turns
from benchmarks.training.cases import Case
from dlc.driver.run.request import CompileRequest
from dlc.driver.scale.predict import predict_scaling
from dlc.driver.scale.programs import RankPrograms, ScaleRequest

RANKS = (1, 2, 4, 8)

Started = Callable[[str, int], Process]
"""A contender by its name and its number of ranks."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Milliseconds of a step of `ranks` ranks: the best and the median measured, and the predicted one."""

    ranks: int
    best: float
    median: float
    predicted: float

    @property
    def text(self) -> str:
        """A line for people."""
        return (
            f"  {self.ranks} ranks  best {self.best:9.2f}  median {self.median:9.2f}  "
            f"predicted {self.predicted:9.2f} ms = {self.predicted / self.best:4.2f} of the best"
        )


def compared(
    model: Path, case: Case, start: Started, rounds: int, seconds: float, most: int
) -> Iterator[Compared]:
    """What each number of ranks up to `most` takes, all in turns, and what is predicted of it."""
    numbers = [ranks for ranks in RANKS if ranks <= most]
    with ExitStack() as alive:
        running = [alive.enter_context(start(f"{ranks} ranks", ranks)) for ranks in numbers]
        take_turns(running, rounds, seconds)
        best = [min(each.times) for each in running]
        median = [float(np.median(each.times)) for each in running]
    times = predicted(model, case, numbers, best[0] / 1e3)
    for row in zip(numbers, best, median, times, strict=True):
        yield Compared(*row)


def predicted(model: Path, case: Case, numbers: list[int], step: float) -> list[float]:
    """The predicted milliseconds, where a step of one rank takes `step` seconds."""
    asked = asked_of(model, case.settings, case, numbers[-1], step)
    rows = {row.ranks: row.spent for row in predict_scaling(asked).rows}
    processors = len(os.sched_getaffinity(0))
    return [
        (rows[ranks].compute * max(1.0, ranks / processors) + rows[ranks].exposed) / 1e6
        for ranks in numbers
    ]


def asked_of(
    model: Path, settings: Mapping[str, int], case: Case, ranks: int, step: float | None
) -> ScaleRequest:
    """The prediction for the sizes that a batch of this case has."""
    request = CompileRequest(str(model), parameters=dict(settings))
    batch = case.batch(np.random.default_rng(1))
    unsized = ScaleRequest(request, ranks, threads=1, step=step)
    inputs = {item.name: item.shape for item in RankPrograms(unsized).entry.inputs}
    dims = {
        str(size): number
        for name, array in batch.items()
        for size, number in zip(inputs[name], array.shape, strict=True)
        if str(size).isidentifier()
    }
    return ScaleRequest(request, ranks, dims=dims, threads=1, step=step)
