"""Steps of a training by the stages of a pipeline, for `benchmarks.pipeline`.

    mpiexec -n STAGES python -m benchmarks.pipeline.contender MODEL.dlm MICROBATCHES ROWS WIDTH STEPS

The first rank prints, as JSON, for each stage the seconds of a step, those of them that it waited for
others, and the seconds of processor time that each of its parts takes for a microbatch; medians over
the steps.
"""

from __future__ import annotations

import json
import sys
import time
from typing import cast

import numpy as np
from mpi4py import MPI

from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.staged_entry import StagedEntryPoint


class Timed:
    """A part that notes the processor time of its calls."""

    def __init__(self, part: EntryPoint) -> None:
        self.outputs, self._part = part.outputs, part
        self.seconds: list[float] = []

    def __call__(self, *args: object, **named: object) -> object:
        began = time.thread_time()
        try:
            return self._part(*args, **named)  # pyright: ignore[reportArgumentType] - sizes
        finally:
            self.seconds.append(time.thread_time() - began)


def main(model: str, microbatches: int, rows: int, width: int, steps: int) -> None:
    """Train for `steps` steps, after two that do not count."""
    comm = MPI.COMM_WORLD
    request = CompileRequest(path=model, parameters={"M": microbatches})
    trainer, _ = plan_training(request).trainer(1, comm)
    entry = trainer.model.entry_points[STEP]
    assert isinstance(entry, StagedEntryPoint)
    parts = timed(entry)
    x = np.random.default_rng(1).standard_normal((microbatches * rows, width), np.float32)
    found: list[tuple[float, float]] = []
    for _ in range(steps + 2):
        before = entry.seconds, entry.waited
        trainer.step(x=x, y=x)
        found.append((entry.seconds - before[0], entry.waited - before[1]))
    seconds, waited = np.median(np.array(found[2:]), axis=0).tolist()
    own = [float(np.median(part.seconds[2 * microbatches :])) for part in parts]
    of_stages = comm.allgather((seconds, waited, own))
    if comm.Get_rank() == 0:
        print(json.dumps(of_stages))


def timed(entry: StagedEntryPoint) -> list[Timed]:
    """The parts for a microbatch, which note their times from now on."""
    plan = entry._plan  # pyright: ignore[reportPrivateUsage]
    parts = [Timed(own.entry) for own in plan.each]
    each = [
        own._replace(entry=cast("EntryPoint", part))
        for own, part in zip(plan.each, parts, strict=True)
    ]
    entry._plan = plan._replace(each=tuple(each))  # pyright: ignore[reportPrivateUsage]
    return parts


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    main(path, *map(int, numbers))
