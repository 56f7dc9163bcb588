"""Training steps of ours as one of several ranks, or as one process, for `benchmarks.ranks`.

    [mpiexec -n RANKS] python -m benchmarks.ranks.contender_dlc MODEL.dlm SETTINGS BATCH.npz RESULTS.npz
        THREADS [PASS,... [LIBRARY NETWORK]]

RESULTS get the weights that training begins with (`weight:NAME`) and the losses of the first two steps. Of
the facts, `collectives_ms` is the time of a step in collectives on the first rank, and `step_ms` that of
the whole step. PASS names passes to leave out. With LIBRARY, made of `network.c`, arrays go by NETWORK;
then the facts are what that sends, and what the first rank waits for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ranks.serve import serve_ranks
from benchmarks.ranks.slow_network import SlowNetwork
from dlc.cli.ranks import communicator
from dlc.driver.compile.compile import Report
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import OF_RANK, STEP
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import made_once
from dlc.runtime.ranks.links import ranks_of
from dlc.runtime.training.trainer import Trainer

if TYPE_CHECKING:
    from mpi4py import MPI

LEAST_ROUNDS, SECONDS = 6, 0.2
"""How often a step is profiled: so often, and so long that no rank goes on after another has ended."""
MOST_ROUNDS = 20
"""Steps in which is counted what a slow network leaves to wait for."""
COLLECTIVES = (
    "all_reduce", "all_gather", "all_to_all", "reduce_scatter", "start_all_reduce", "test", "wait",
)  # fmt: skip
"""How the names of kernels begin that exchange arrays between ranks."""
NAP_SECONDS = 0.002


def share_of(comm: MPI.Intracomm | None, number: int) -> int:
    """The number that the first rank passes, on all ranks."""
    if comm is None:
        return number
    buffer = np.array([number], np.int64)
    request = comm.Ibcast(buffer)
    while not request.Test():
        time.sleep(NAP_SECONDS)
    return int(buffer[0])


def collectives(
    artifact: Artifact,
    batch: Mapping[str, NDArray[Any]],
    threads: int,
    comm: MPI.Intracomm,
    step_seconds: float,
) -> dict[str, float]:
    """Milliseconds of a rank's step, which takes about `step_seconds`, and those of it in collectives."""
    name = STEP + OF_RANK
    entry = next(entry for entry in artifact.manifest.entries if entry.name == name)
    shapes = {row.name: row.shape for row in artifact.manifest.weights}
    named: dict[str, Any] = {}
    for item in entry.inputs:
        if item.name in batch:
            count = len(batch[item.name]) // comm.Get_size()
            named[item.name] = batch[item.name][:count].copy()
        else:
            shape = shapes.get(item.name, ())
            named[item.name] = np.zeros(shape, np.dtype(_numpy_name(item.dtype)))
    with Model(artifact, threads=threads, comm=comm) as model:
        rounds = share_of(comm, LEAST_ROUNDS + int(SECONDS / step_seconds))
        profile = model.entry_points[name].profile(rounds=rounds, **named)
    spent = sum(row.ms for row in profile.rows if row.kernel.startswith(COLLECTIVES))
    return {"collectives_ms": spent, "step_ms": profile.call_ms}


def hidden(
    network: SlowNetwork, step: Callable[[], float], comm: MPI.Intracomm | None
) -> dict[str, float]:
    """Milliseconds of a step by the clock of a network, of what it sent and of what the rank waited."""
    rounds = share_of(comm, MOST_ROUNDS)
    step()
    network.counted()
    for _ in range(rounds):
        step()
    spent, sending, waited = network.counted()
    return {
        "step_ms": spent / rounds,
        "sending_ms": sending / rounds,
        "waited_ms": waited / rounds,
    }


def _numpy_name(dtype: str) -> str:
    kinds = {"f": "float", "i": "int", "u": "uint"}
    return "bool" if dtype == "bool" else kinds[dtype[0]] + dtype[1:]


def main(
    model: str,
    settings: str,
    given: str,
    results: str,
    threads: str,
    without: str = "",
    library: str = "",
    network: str = "",
) -> None:
    """Compile the step, make two, and serve more; by a slow network of `library` if one is named."""
    comm = communicator(None)
    slow = SlowNetwork(library, network) if library else None
    with np.load(given) as file:
        batch = {key: file[key] for key in file.files}
    chosen = Settings(disabled=frozenset(filter(None, without.split(","))))
    request = CompileRequest(model, parameters=json.loads(settings), settings=chosen)
    ranks = ranks_of(comm)
    made = made_once(comm, lambda: plan_training(request).artifact(Report(), ranks))
    trainer = Trainer(made, threads=int(threads), comm=comm)
    found: dict[str, Any] = {f"weight:{name}": value for name, value in trainer.trained().items()}
    found["loss"] = trainer.step(**batch)
    begin = time.perf_counter()
    found["second_loss"] = trainer.step(**batch)
    step_seconds = time.perf_counter() - begin
    rank = 0 if comm is None else comm.Get_rank()
    if rank == 0:
        arrays = {name: np.asarray(value) for name, value in found.items()}
        np.savez(results, allow_pickle=False, **arrays)
    inputs: dict[str, object] = dict(batch)

    def step() -> float:
        return trainer.step(**inputs)

    facts: dict[str, float] = {}
    if slow is not None:
        facts = hidden(slow, step, comm)
    elif comm is not None:
        facts = collectives(made, batch, int(threads), comm, step_seconds)
    serve_ranks(step, facts, rank, lambda number: share_of(comm, number))


if __name__ == "__main__":
    main(*sys.argv[1:])
