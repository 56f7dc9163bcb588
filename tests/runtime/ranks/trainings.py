"""Trainings among simulated ranks: models, batches and losses, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.compile import Report
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.training.trainer import Trainer

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 20

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

WORDS = """\
dlc 1
import nn (Embedding)
dim B = 1..64

module Words() {
  use table = Embedding(40, 8)
  export fn at(ids: i32[B]) -> f32[B, 8] = table(ids) - mean(table(ids), axis=0)
}

train Words {
  data = npz("ids.npz", ids="ids")
  loss(ids: i32[B]) = mean(at(ids) ** 2)
  optimizer = sgd(lr=0.01)
  batch = 4
}
"""

LAYERS = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Layers() {
  use low = Linear(6, 8)
  use high = Linear(8, 2)
  export fn predict(x: f32[B, 6]) -> f32[B, 2] = high(tanh(low(x)))
}

train Layers {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 6], y: f32[B, 2]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01, clip_norm=1)
  batch = 8
}
"""
"""For what does not depend on the network: it is compiled in a third of the time."""


def model_of(name: str) -> str | Path:
    """The text of a model, or the path of an example."""
    return LSTM if name == "lstm" else EXAMPLES / f"{name}.dlm"


@cache
def artifact(model: str | Path, ranks: int, split: Shard | None = None) -> Artifact:
    """The artifact that trains a model, as so many ranks."""
    text = model if isinstance(model, str) else None
    path = "" if text else str(model)
    return plan_training(CompileRequest(path=path, text=text)).artifact(Report(), ranks, split)


def losses(made: Artifact, batches: list[Mapping[str, NDArray[Any]]], comm: object) -> list[float]:
    """The losses of steps with these batches."""
    trainer = Trainer(made, threads=1, comm=comm)
    trainer.total_steps = 100
    return [trainer.step(**batch) for batch in batches]


def batches_of(model: str | Path) -> list[Mapping[str, NDArray[Any]]]:
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
            shape = size_expressions.evaluate_all(item.shape, sizes)
            if item.dtype.startswith("f"):
                batch[item.name] = random.standard_normal(shape).astype(np.float32)
            else:
                names = {"u8": np.uint8, "i32": np.int32}
                batch[item.name] = random.integers(0, 10, shape).astype(names[item.dtype])
        found.append(batch)
    return found
