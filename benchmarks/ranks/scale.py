"""Steps of 1, 2, 4 and 8 ranks on this machine beside what `dlc scale` predicts of them.

The ranks send by a network beside the processors, and a step takes the processor time of its work and what
the first rank waits (`slow_network`), as if each rank had a processor of its own. The predicted time of the
first row is the measured one of one rank, so what is compared is how it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.contenders.turns import Process
from benchmarks.training.cases import Case
from dlc.driver.run.request import CompileRequest
from dlc.driver.scale.predict import predict_scaling
from dlc.driver.scale.programs import RankPrograms, ScaleRequest
from dlc.target.network import Network

RANKS = (1, 2, 4, 8)

Started = Callable[[int], Process]
"""A contender by its number of ranks."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Milliseconds of a step of `ranks` ranks, measured and predicted, and those of them that it waits."""

    ranks: int
    measured: float
    waited: float
    predicted: float
    exposed: float

    @property
    def text(self) -> str:
        """A line for people."""
        return (
            f"  {self.ranks} ranks  measured {self.measured:9.2f} ms, waits {self.waited:6.2f}  "
            f"predicted {self.predicted:9.2f} ms, waits {self.exposed:6.2f}: "
            f"{self.predicted / self.measured:4.2f} of the measured"
        )


def compared(
    model: Path, case: Case, start: Started, rounds: int, most: int, network: Network
) -> Iterator[Compared]:
    """What each number of ranks up to `most` takes, the least of some starts, and what is predicted."""
    numbers = [ranks for ranks in RANKS if ranks <= most]
    found: dict[int, tuple[float, float]] = {}
    for ranks in numbers:
        for _ in range(rounds):
            with start(ranks) as process:
                own = process.facts["step_ms"], process.facts["waited_ms"]
            found[ranks] = min(own, found.get(ranks, own))
    asked = asked_of(model, case.settings, case, numbers[-1], found[1][0] / 1e3)
    rows = {row.ranks: row.spent for row in predict_scaling(replace(asked, network=network)).rows}
    for ranks in numbers:
        spent = rows[ranks]
        yield Compared(ranks, *found[ranks], spent.total / 1e6, spent.exposed / 1e6)


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
