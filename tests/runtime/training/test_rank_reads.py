"""Each rank reads the examples that it computes, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.runtime.data.fields import ArrayField
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.runtime.ranks.trainings import artifact

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Line() {
  use a = Linear(3, 1)
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = a(x)
}

train Line {
  data = npz("data.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.01)
  batch = 8
  epochs = 2
}
"""


def test_a_rank_reads_its_part_of_each_microbatch(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((48, 3), np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :1])
    text = TEXT.replace("batch = 8", "batch = 4\n  accumulate = 2")
    alone = Trainer(artifact(text, 1), threads=1, folder=tmp_path).fit()
    made = artifact(text, 2)

    def work(at: SimulatedRanks) -> list[float]:
        history = Trainer(made, threads=1, folder=tmp_path, comm=at).fit()
        return [value for record in history for value in record.values.values()]

    expected = [value for record in alone for value in record.values.values()]
    for found in run_simulated(Mesh({"data": 2}), work):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ranks_that_read_their_parts_train_as_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((40, 3), np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :1])
    alone = Trainer(artifact(TEXT, 1), threads=1, folder=tmp_path).fit()
    read: list[int] = []
    usual = ArrayField.read

    def counted(self: ArrayField, rows: NDArray[np.int64], into: NDArray[Any]) -> None:
        read.append(len(rows))
        usual(self, rows, into)

    monkeypatch.setattr(ArrayField, "read", counted)
    made = artifact(TEXT, 4)

    def work(at: SimulatedRanks) -> list[float]:
        history = Trainer(made, threads=1, folder=tmp_path, comm=at).fit()
        return [value for record in history for value in record.values.values()]

    expected = [value for record in alone for value in record.values.values()]
    for found in run_simulated(Mesh({"data": 4}), work):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Of 30 examples in batches of 8 a rank reads 2 of each, and all 6 of the last one; of 10 to test 2, and
    # both of the last two. What compares the data of the ranks reads 30 and 10.
    arrays, ranks, epochs = 2, 4, 2
    assert set(read) == {2, 6, 10, 30}
    assert read.count(2) == arrays * ranks * epochs * (3 + 2)
