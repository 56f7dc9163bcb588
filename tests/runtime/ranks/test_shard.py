"""Training by ranks that each have a part of the states, gradients or weights: as one process trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.runtime.ranks.trainings import LAYERS, artifact, batches_of, losses, model_of

DEEP = """\
dlc 1
import nn (Linear)
dim B = 1..1024

module Deep() {
  use a = Linear(256, 512)
  use b = Linear(512, 512)
  use c = Linear(512, 512)
  use d = Linear(512, 16)
  export fn predict(x: f32[B, 256]) -> f32[B, 16] = d(relu(c(relu(b(relu(a(x)))))))
}

train Deep {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 256], y: f32[B, 16]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.001)
  average = ema(decay=0.9)
  batch = 256
}
"""
CASES = [
    ("lstm", "weights", 2),
    *[
        pytest.param(name, split, ranks, marks=pytest.mark.long)
        for name in ("digits_mlp", "digits_cnn", "char_gpt", "lstm")
        for split in ("optimizer", "gradients", "weights")
        for ranks in (2, 4)
    ],
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "split", "ranks"), CASES)
def test_the_losses_are_those_of_one_process(name: str, split: Shard, ranks: int) -> None:
    model = model_of(name)
    batches = batches_of(model)
    alone = losses(artifact(model, 1), batches, None)
    made = artifact(model, ranks, split)

    def work(at: SimulatedRanks) -> list[float]:
        return losses(made, batches, at)

    by_rank = run_simulated(Mesh({"data": ranks}), work)
    again = run_simulated(Mesh({"data": ranks}), work)
    assert by_rank == again
    assert all(found == by_rank[0] for found in by_rank)
    # Convolutions sum thousands of products in f32, and ranks in another order.
    np.testing.assert_allclose(by_rank[0], alone, rtol=1e-6 if name != "digits_cnn" else 1e-5)


@pytest.mark.long
def test_a_rank_of_four_needs_a_third_of_the_memory() -> None:
    rows = {"x": np.zeros((256, 256), np.float32), "y": np.zeros((256, 16), np.float32)}
    made = artifact(DEEP, 4, "weights")

    def total(trainer: Trainer) -> int:
        return trainer.memory(trainer.data(rows)).total

    alone = total(Trainer(artifact(DEEP, 1), threads=1))
    by_rank = run_simulated(Mesh({"data": 4}), lambda at: total(Trainer(made, threads=1, comm=at)))
    assert max(by_rank) <= 0.35 * alone


def test_files_are_those_of_one_process(tmp_path: Path) -> None:
    batches = batches_of(LAYERS)
    alone = Trainer(artifact(LAYERS, 1), threads=1)
    alone.save(tmp_path / "alone.safetensors")
    made = artifact(LAYERS, 2, "weights")

    def begin(at: SimulatedRanks) -> dict[str, object]:
        trainer = Trainer(made, threads=1, comm=at)
        trainer.save(tmp_path / "ranks.safetensors")
        trainer.save(tmp_path / "ranks.dlc")
        for batch in batches[:5]:
            trainer.step(**batch)
        trainer.save(tmp_path / "part.safetensors")
        return dict(trainer.trained())

    first, second = run_simulated(Mesh({"data": 2}), begin)
    files = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("alone", "ranks"))
    assert next(files) == next(files)
    assert first.keys() == alone.trained().keys()
    assert not second

    expected = [alone.step(**batch) for batch in batches][5:]
    for ranks, more in ((1, artifact(LAYERS, 1)), (4, artifact(LAYERS, 4, "optimizer"))):

        def resume(at: SimulatedRanks, more: Artifact = more) -> list[float]:
            trainer = Trainer(more, threads=1, comm=at if at.mesh.size > 1 else None)
            trainer.resume(tmp_path / "part.safetensors")
            return [trainer.step(**batch) for batch in batches[5:]]

        found = run_simulated(Mesh({"data": ranks}), resume)
        np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_what_one_rank_finds_all_ranks_know() -> None:
    made = artifact(LAYERS, 2, "weights")

    def work(at: SimulatedRanks) -> str | None:
        trainer = Trainer(made, threads=1, comm=at)
        return trainer.first_of_ranks("wrong" if at.rank == 1 else None)

    assert run_simulated(Mesh({"data": 2}), work) == ["wrong", "wrong"]
