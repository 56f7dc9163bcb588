"""Trainings by ranks of MPI; `test_by_mpi.py` starts them.

    mpiexec -n RANKS python -m tests.runtime.ranks.by_mpi

Each is compared with that of one process, and with itself: the same ranks give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dlc.driver.compile.compile import Report
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.agreement import made_once
from dlc.runtime.ranks.parts import Shard
from tests.runtime.ranks import test_mesh, test_stages
from tests.runtime.ranks.trainings import batches_of, losses, model_of

NETWORKS = ("digits_mlp", "digits_cnn", "char_gpt", "lstm")
SPLITS: tuple[Shard | None, ...] = (None, "optimizer", "gradients", "weights")
MESHES = {2: "model = 2", 4: "data = 2, model = 2"}


def trainings(ranks: int) -> Iterator[tuple[str, str, Shard | None]]:
    """The name, the text and the split of each training."""
    for name in NETWORKS:
        model = model_of(name)
        text = model.read_text("utf-8") if isinstance(model, Path) else model
        for split in SPLITS:
            yield f"{name} {split or 'data'}", text, split
        if ranks == 2:
            yield f"{name} stages", test_stages.text_of(name), None
    mesh = MESHES[ranks]
    yield f"mlp {mesh}", test_mesh.MLP.format(mesh=mesh, a="(none, model)", b="(model, none)"), None
    yield f"gpt {mesh}", test_mesh.GPT.format(mesh=mesh, vocabulary=16), None


def made(text: str, ranks: int, split: Shard | None) -> Artifact:
    """What trains a text, made by the first rank."""
    planned = plan_training(CompileRequest(path="", text=text))
    return made_once(MPI.COMM_WORLD, lambda: planned.artifact(Report(), ranks, split))


def main() -> None:
    """Make 20 steps of each."""
    comm = MPI.COMM_WORLD
    for name, text, split in trainings(comm.Get_size()):
        artifact = made(text, comm.Get_size(), split)
        batches = batches_of(text)
        once, again = (losses(artifact, batches, comm) for _ in range(2))
        assert once == again, name
        assert all(each == once for each in comm.allgather(once)), name
        if comm.Get_rank() == 0:
            alone = losses(
                plan_training(CompileRequest(path="", text=text)).artifact(Report(), 1),
                batches,
                None,
            )
            np.testing.assert_allclose(once, alone, rtol=1e-6, err_msg=name)
            off = float(np.max(np.abs(np.array(once) / np.array(alone) - 1)))
            print(f"{name}: {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
