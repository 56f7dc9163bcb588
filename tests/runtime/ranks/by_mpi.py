"""Trainings by ranks of MPI; `test_by_mpi.py` starts them.

    mpiexec -n RANKS python -m tests.runtime.ranks.by_mpi small|share|examples

Each is compared with that of one process, and with itself: the same ranks give the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

import numpy as np
from mpi4py import MPI

from dlc.driver.compile.compile import Report
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.agreement import made_once
from dlc.runtime.ranks.parts import Shard
from tests.runtime.ranks import networks, test_stages
from tests.runtime.ranks.trainings import EXAMPLES, batches_of, losses

SPLITS: tuple[Shard | None, ...] = (None, "optimizer", "gradients", "weights")
MESHES = {2: ("model = 2", "stage = 2"), 4: ("data = 2, model = 2", "data = 2, stage = 2")}


def small(ranks: int) -> Iterator[tuple[str, str, Shard | None]]:
    """The name, the text and the split of each training of the small networks."""
    split, staged = MESHES[ranks]
    for name in networks.SPLIT:
        for way in SPLITS:
            yield f"{name} {way or 'data'}", networks.whole(name), way
        yield f"{name} {split}", networks.split(name, split), None
        yield f"{name} {staged}", networks.staged(name, staged), None


def share(ranks: int) -> Iterator[tuple[str, str, Shard | None]]:
    """Those of the network that compiles fastest, and of the others data parallelism alone."""
    for name, text, way in small(ranks):
        if name.startswith("mlp ") or name.endswith(" data"):
            yield name, text, way


def of_examples(ranks: int) -> Iterator[tuple[str, str, Shard | None]]:
    """Likewise of examples."""
    for name in ("digits_mlp", "digits_cnn", "char_gpt"):
        for way in SPLITS:
            yield f"{name} {way or 'data'}", (EXAMPLES / f"{name}.dlm").read_text("utf-8"), way
        if ranks == 2:
            yield f"{name} stages", test_stages.text_of(name), None


def made(text: str, ranks: int, split: Shard | None) -> Artifact:
    """What trains a text, made by the first rank."""
    planned = plan_training(CompileRequest(path="", text=text))
    return made_once(MPI.COMM_WORLD, lambda: planned.artifact(Report(), ranks, split))


@cache
def alone(text: str) -> list[float]:
    """The losses of one process."""
    planned = plan_training(CompileRequest(path="", text=text))
    return losses(planned.artifact(Report(), 1), batches_of(text), None)


def main() -> None:
    """Make 20 steps of each."""
    comm = MPI.COMM_WORLD
    trainings = {"small": small, "share": share, "examples": of_examples}
    for name, text, split in trainings[sys.argv[1]](comm.Get_size()):
        artifact = made(text, comm.Get_size(), split)
        batches = batches_of(text)
        once, again = (losses(artifact, batches, comm) for _ in range(2))
        assert once == again, name
        assert all(each == once for each in comm.allgather(once)), name
        if comm.Get_rank() == 0:
            np.testing.assert_allclose(once, alone(text), rtol=1e-6, err_msg=name)
            off = float(np.max(np.abs(np.array(once) / np.array(alone(text)) - 1)))
            print(f"{name}: {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
