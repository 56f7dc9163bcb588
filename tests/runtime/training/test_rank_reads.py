"""Each rank reads the examples that it computes, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import DlcError
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


class Batches:
    """An iterable of batches that gives each rank its rows; `given` counts what was asked for."""

    def __init__(self, x: NDArray[np.float32], size: int, microbatches: int = 1) -> None:
        self.x, self.size, self.given, self.microbatches = x, size, 0, microbatches

    def __iter__(self) -> Iterator[dict[str, NDArray[np.float32]]]:
        yield from self.part(0, 1)

    def part(self, number: int, parts: int) -> Iterator[dict[str, NDArray[np.float32]]]:
        for first in range(0, len(self.x), self.size):
            batch = self.x[first : first + self.size]
            own = batch.reshape(self.microbatches, parts, -1, 3)[:, number].reshape(-1, 3)
            self.given += len(own)
            yield {"x": own, "y": own[:, :1]}


@pytest.mark.parametrize("microbatches", [1, 2])
def test_an_iterable_that_can_be_divided_gives_each_rank_its_rows_alone(
    tmp_path: Path, microbatches: int
) -> None:
    x = np.random.default_rng(1).standard_normal((48, 3), np.float32)
    text = TEXT
    if microbatches > 1:
        text = text.replace(
            "batch = 8", f"batch = {8 // microbatches}\n  accumulate = {microbatches}"
        )
    alone = Trainer(artifact(text, 1), threads=1, folder=tmp_path).fit(Batches(x, 8))
    made = artifact(text, 2)

    def work(at: SimulatedRanks) -> tuple[list[float], int]:
        data = Batches(x, 8, microbatches)
        history = Trainer(made, threads=1, folder=tmp_path, comm=at).fit(data)
        return [record.values["loss"] for record in history], data.given

    for found, given in run_simulated(Mesh({"data": 2}), work):
        np.testing.assert_allclose(found, [one.values["loss"] for one in alone], rtol=1e-6)
        assert given == 2 * 24  # two epochs


def test_rows_of_a_rank_that_make_no_microbatches_are_refused(tmp_path: Path) -> None:
    text = TEXT.replace("batch = 8", "batch = 4\n  accumulate = 2")
    x, made = np.ones((48, 3), np.float32), artifact(text, 2)

    def work(at: SimulatedRanks) -> None:
        trainer = Trainer(made, threads=1, folder=tmp_path, comm=at)
        with pytest.raises(
            DlcError, match=r"batch 0: x is f32\[3, 3\]: its size 3 is 2\*B for no B"
        ):
            trainer.fit(Batches(x, 6))

    run_simulated(Mesh({"data": 2}), work)


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
