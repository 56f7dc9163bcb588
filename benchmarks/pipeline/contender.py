"""Steps of a training by the stages of a pipeline, or by one process, for `benchmarks.pipeline`.

    [mpiexec -n RANKS] python -m benchmarks.pipeline.contender MODEL.dlm MICROBATCHES ROWS WIDTH STEPS
        [LIBRARY NETWORK]

The first rank prints, as JSON, the milliseconds of a step, the share of it that a rank waits for others,
the mean over the ranks, and that share if the parts took nothing but their processor time and sending took
no time. The quickest quarter of the steps counts. With LIBRARY, made of `ranks/network.c`, values go by
NETWORK, and times are those of its clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from benchmarks.ranks.slow_network import SlowNetwork
from dlc.cli.ranks import communicator
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.driver.scale.stages import play
from dlc.runtime.artifact.manifest import OF_RANK, STEP
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.profiled import QUARTER, quiet
from dlc.runtime.calling.stage_call import plan_of
from dlc.runtime.calling.staged_entry import StagedEntryPoint
from dlc.runtime.training.trainer import Trainer
from dlc.target.network import Sending

if TYPE_CHECKING:
    from mpi4py import MPI


class Times(NamedTuple):
    """Of a step: milliseconds, the share that ranks wait, and that of the schedule alone."""

    milliseconds: float
    waited: float
    played: float


class Timed:
    """A part that notes the processor time of its calls."""

    def __init__(self, part: EntryPoint) -> None:
        self._part = part
        self.outputs, self.free_dims = part.outputs, part.free_dims
        self.seconds: list[float] = []

    def __call__(self, *args: object, **named: object) -> object:
        began = time.thread_time()
        try:
            return self._part(*args, **named)  # pyright: ignore[reportArgumentType] - sizes
        finally:
            self.seconds.append(time.thread_time() - began)


def entry_of(trainer: Trainer) -> StagedEntryPoint:
    """The step that the stages make together."""
    entries = trainer.model.entry_points
    entry = entries.get(STEP + OF_RANK, entries[STEP])
    assert isinstance(entry, StagedEntryPoint)
    return entry


def timed(entry: StagedEntryPoint) -> dict[str, Timed]:
    """The parts of this stage, which note their times from now on."""
    parts = {name: Timed(part) for name, part in entry._parts.items()}  # pyright: ignore[reportPrivateUsage]
    entry._parts = cast("dict[str, EntryPoint]", parts)  # pyright: ignore[reportPrivateUsage]
    return parts


def idle(entry: StagedEntryPoint, costs: Mapping[str, float]) -> float:
    """The share of a step that stages do nothing, where parts take so long and sending no time."""
    manifest, staged = entry.artifact.manifest, entry._staged  # pyright: ignore[reportPrivateUsage]
    interfaces = {each.name: each for each in manifest.entries}
    plans = [plan_of(staged, interfaces, stage) for stage in range(staged.stages)]
    played = play(plans, costs.__getitem__, lambda _: Sending(0, 0), beside=True)
    work = sum(costs[name] for stage in played for name in stage.parts)
    return 1 - work / (len(played) * max(stage.end for stage in played))


def by_stages(
    trainer: Trainer, x: np.ndarray, steps: int, comm: MPI.Intracomm, network: SlowNetwork | None
) -> Times:
    """The times of steps of the ranks."""
    spent, waited = (
        by_mpi(trainer, x, steps)
        if network is None
        else by_network(trainer, x, steps, comm, network)
    )
    entry = entry_of(trainer)
    parts = timed(entry)
    for _ in range(steps):
        trainer.step(x=x, y=x)
    costs: dict[str, float] = {}
    for own in comm.allgather({name: quiet_of(part) for name, part in parts.items()}):
        costs.update(own)
    return Times(spent, waited, idle(entry, costs))


def by_mpi(trainer: Trainer, x: np.ndarray, steps: int) -> tuple[float, float]:
    """The milliseconds of a step, and the share that ranks wait, as `dlc profile` says."""
    profile = trainer.profile(rounds=steps, x=x, y=x)
    assert profile.stages is not None
    return profile.call_ms, profile.stages.bubble


def by_network(
    trainer: Trainer, x: np.ndarray, steps: int, comm: MPI.Intracomm, network: SlowNetwork
) -> tuple[float, float]:
    """The same by the clock of a network.

    A step is over when the last rank has ended it, and the others wait for it.
    """
    own: list[tuple[float, float]] = []
    for _ in range(steps + 2):
        network.counted()
        trainer.step(x=x, y=x)
        own.append((network.since_begin, network.counted().waited))
    found = np.array(comm.allgather(own[2:]))
    spent = found[:, :, 0].max(axis=0)
    busy = (found[:, :, 0] - found[:, :, 1]).mean(axis=0)
    quickest = np.argsort(spent)[: max(1, steps // QUARTER)]
    waited = 1 - busy[quickest].sum() / spent[quickest].sum()
    return float(spent[quickest].mean()), float(waited)


def quiet_of(part: Timed) -> float:
    """Seconds of a call of a part."""
    return float(quiet(np.array(part.seconds)))


def alone(trainer: Trainer, x: np.ndarray, steps: int) -> Times:
    """The processor time of steps of one process, after two that do not count."""
    found: list[float] = []
    for _ in range(steps + 2):
        began = time.thread_time()
        trainer.step(x=x, y=x)
        found.append(time.thread_time() - began)
    return Times(float(quiet(np.array(found[2:]))) * 1e3, 0.0, 0.0)


def main(model: str, numbers: Sequence[int], line: Sequence[str]) -> None:
    """Train, and print the times."""
    microbatches, rows, width, steps = numbers
    comm = communicator(None)
    network = SlowNetwork(*line) if line else None
    request = CompileRequest(path=model, parameters={"M": microbatches})
    trainer, _ = plan_training(request).trainer(1, comm)
    x = np.random.default_rng(1).standard_normal((microbatches * rows, width), np.float32)
    if comm is None:
        print(json.dumps(alone(trainer, x, steps)))
        return
    found = by_stages(trainer, x, steps, comm, network)
    if comm.Get_rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    path, *rest = sys.argv[1:]
    main(path, [int(each) for each in rest[:4]], rest[4:])
