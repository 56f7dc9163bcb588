"""Data parallel training among simulated ranks: the losses are those of one process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile.compile import Report
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.suites import each_value

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 10

LSTM = """\
dlc 1
import nn (LSTM, Linear)
dim B = 1..64

module Counter() {
  use lstm = LSTM(4, 8)
  use head = Linear(8, 1)
  export fn predict(x: f32[B, 6, 4]) -> f32[B, 1] = head(lstm(x)[0][:, -1])
}

train Counter {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 6, 4], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01, clip_norm=1)
  batch = 8
}
"""


MODELS = {
    "digits_mlp": CompileRequest(str(EXAMPLES / "digits_mlp.dlm")),
    "digits_cnn": CompileRequest(str(EXAMPLES / "digits_cnn.dlm")),
    "char_gpt": CompileRequest(str(EXAMPLES / "char_gpt.dlm"), parameters={"D": 32, "L": 1}),
    "lstm": CompileRequest("", text=LSTM),
}


@cache
def artifact(model: str, ranks: int) -> Artifact:
    """The artifact that trains a model, as so many ranks."""
    return plan_training(MODELS[model]).artifact(Report(), ranks)


def losses(made: Artifact, batches: list[Mapping[str, NDArray[Any]]], comm: object) -> list[float]:
    """The losses of steps with these batches."""
    trainer = Trainer(made, threads=1, comm=comm)
    trainer.total_steps = 100
    return [trainer.step(**batch) for batch in batches]


def batches_of(model: str) -> list[Mapping[str, NDArray[Any]]]:
    """Random batches of 8 for the loss of a model."""
    made = artifact(model, 1)
    entry = next(entry for entry in made.manifest.entries if entry.name == "train_step")
    facts = made.manifest.training
    assert facts is not None
    random = np.random.default_rng(3)
    sizes = {dim.name: 8 if dim.name == "B" else 16 for dim in entry.dims}
    found: list[Mapping[str, NDArray[Any]]] = []
    for _ in range(STEPS):
        batch: dict[str, NDArray[Any]] = {}
        for item in entry.inputs:
            if item.name not in facts.inputs:
                continue
            shape = [sizes[size] if size in sizes else int(size) for size in map(str, item.shape)]
            if item.dtype.startswith("f"):
                batch[item.name] = random.standard_normal(shape).astype(np.float32)
            else:
                names = {"u8": np.uint8, "i32": np.int32}
                batch[item.name] = random.integers(0, 10, shape).astype(names[item.dtype])
        found.append(batch)
    return found


@pytest.mark.parametrize(("model", "ranks"), each_value(MODELS, (2, 4)))
def test_the_losses_are_those_of_one_process(model: str, ranks: int) -> None:
    batches = batches_of(model)
    alone = losses(artifact(model, 1), batches, None)
    made = artifact(model, ranks)

    def work(at: SimulatedRanks) -> list[float]:
        return losses(made, batches, at)

    by_rank = run_simulated(Mesh({"data": ranks}), work)
    assert all(found == by_rank[0] for found in by_rank)
    np.testing.assert_allclose(by_rank[0], alone, rtol=1e-6 if model != "digits_cnn" else 1e-5)
