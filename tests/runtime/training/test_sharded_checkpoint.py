"""Checkpoints that ranks write together: a file of each, and an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.system import atomic_write
from dlc.runtime.training.checkpoint import read_checkpoint
from dlc.runtime.training.trainer import Trainer
from dlc.runtime.weights.files import open_weights
from tests.runtime.ranks.trainings import artifact
from tests.suites import every

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Line() {
  use a = Linear(8, 16)
  use b = Linear(16, 1)
  export fn predict(x: f32[B, 8]) -> f32[B, 1] = b(tanh(a(x)))
}

train Line {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 8], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01)
  batch = 8
}
"""
RANDOM = np.random.default_rng(1)
BATCHES = [
    {"x": RANDOM.standard_normal((8, 8), np.float32), "y": np.ones((8, 1), np.float32)}
    for _ in range(6)
]
NAME = "line.safetensors.index.json"
WAYS: list[tuple[int, Shard | None]] = [
    (1, None),
    (2, None),
    (4, "optimizer"),
    (2, "weights"),
    (4, "weights"),
]


def made(ranks: int, split: Shard | None = None) -> Artifact:
    return artifact(TEXT, ranks, split)


def trained(
    ranks: int, split: Shard | None, *, begin: Path | None = None, end: Path | None = None
) -> list[float]:
    """The losses of three steps, from a checkpoint if `begin` names one, and to one at `end`."""
    of_ranks = made(ranks, split)
    batches = BATCHES[:3] if begin is None else BATCHES[3:]

    def work(at: SimulatedRanks | None) -> list[float]:
        trainer = Trainer(of_ranks, threads=1, comm=at)
        if begin is not None:
            trainer.resume(begin)
        losses = [trainer.step(**batch) for batch in batches]
        if end is not None:
            trainer.save(end)
        return losses

    return work(None) if ranks == 1 else run_simulated(Mesh({"data": ranks}), work)[0]


def arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    return {name: tensor.values() for name, tensor in read_checkpoint(path).tensors.items()}


@pytest.mark.parametrize(("ranks", "split"), every(6, WAYS))
def test_it_has_the_arrays_of_a_whole_one_and_resumes_with_any_number_of_ranks(
    tmp_path: Path, ranks: int, split: Shard | None
) -> None:
    index, whole = tmp_path / NAME, tmp_path / "whole.safetensors"
    trained(ranks, split, end=index)
    trained(1, None, end=whole)
    found, expected = arrays(index), arrays(whole)
    assert list(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-7)
    assert read_checkpoint(index).facts.step == 3
    files = set(json.loads(index.read_text())["weight_map"].values())
    assert len(files) == ranks
    on_disk = {path.name for path in tmp_path.iterdir()}
    assert on_disk == {*files, index.name, whole.name}
    losses = trained(1, None, begin=whole)
    for other, way in (*WAYS[:2], WAYS[3]):
        np.testing.assert_allclose(trained(other, way, begin=index), losses, rtol=1e-6)


def test_another_program_reads_it_as_an_index_of_hugging_face(tmp_path: Path) -> None:
    trained(2, "weights", end=tmp_path / NAME)
    file = open_weights(tmp_path / NAME)
    model: Any = dlc.compile(text=TEXT, weights=str(tmp_path / NAME))
    np.testing.assert_array_equal(file["a.w"].values(), model.weights["a.w"])


def test_equal_trainings_write_equal_files_and_old_ones_are_removed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        trained(2, "weights", end=folder / NAME)
    trained(4, None, end=second / NAME)
    assert len(list(second.iterdir())) == 5
    trained(2, "weights", end=second / NAME)
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


@pytest.mark.parametrize("last", every(3, range(6)))
def test_wherever_writing_ends_there_is_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    index = tmp_path / NAME
    trained(2, "weights", end=index)
    before = {name: array.copy() for name, array in arrays(index).items()}
    renamed = 0
    replace = Path.replace

    def counted(self: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed > last:
            raise OSError("the disk is gone")
        return replace(self, target)

    def no_more(path: str) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Path, "replace", counted)
    monkeypatch.setattr("os.unlink", no_more)
    failed = False
    try:
        trained(2, "weights", begin=index, end=index)
    except DlcError:
        failed = True
    monkeypatch.undo()
    assert failed == (last < 3)
    after = arrays(index)
    changed = any((after[name] != array).any() for name, array in before.items())
    assert changed == (not failed)
    assert atomic_write.check_writable(index) is None


def test_a_rank_that_cannot_write_its_part_fails_all(tmp_path: Path) -> None:
    of_ranks = made(2, "weights")

    def work(at: SimulatedRanks) -> str:
        trainer = Trainer(of_ranks, threads=1, comm=at)
        try:
            trainer.save(tmp_path / ("none" if at.rank else ".") / NAME)
        except DlcError as error:
            return error.diagnostics[0].code
        return ""

    assert run_simulated(Mesh({"data": 2}), work) == ["D0824", "D0502"]
    assert not (tmp_path / NAME).exists()


def test_an_index_without_progress_is_no_checkpoint(tmp_path: Path) -> None:
    trained(2, None, end=tmp_path / NAME)
    index = json.loads((tmp_path / NAME).read_text())
    del index["metadata"]["dlc.checkpoint"]
    (tmp_path / NAME).write_text(json.dumps(index))
    with pytest.raises(DlcError, match="D0548"):
        read_checkpoint(tmp_path / NAME)
