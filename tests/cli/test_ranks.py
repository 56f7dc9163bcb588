"""`dlc train --ranks`: processes that MPI starts train as one does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.runtime.arrays import safetensors

pytest.importorskip("mpi4py")

MODEL = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Line() {
  use a = Linear(3, 8)
  use b = Linear(8, 1)
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = b(tanh(a(x)))
}

train Line {
  data = npz("data.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01)
  batch = 8
  epochs = 3
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its data: 54 examples to train with, so that the last batch has 6."""
    return filled(tmp_path_factory.mktemp("ranks"))


def filled(folder: Path) -> Path:
    """The folder with the files."""
    random = np.random.default_rng(1)
    x = random.standard_normal((72, 3), np.float32)
    y = x @ np.array([[1], [-2], [3]], np.float32)
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "other.npz", x=x, y=100 * y)
    (folder / "line.dlm").write_text(MODEL)
    (folder / "steep.dlm").write_text(MODEL.replace("lr=0.01", "lr=1e30"))
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, float]:
    """The last measurements of one process."""
    return train(folder, "alone.safetensors")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder; `dlc` is the one of this environment."""
    return subprocess.run(
        [sys.executable, "-m", "dlc", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a file of safetensors."""
    file = memoryview(path.read_bytes())
    return {name: read().values() for name, read in safetensors.entries(file, path.name).items()}


def train(folder: Path, out: str, *more: str, model: str = "line.dlm") -> dict[str, float]:
    """Train, and give the last measurements."""
    done = run(folder, "train", model, "--threads", "1", "-o", out, "--json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[-1]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_train_as_one_process(folder: Path, alone: dict[str, float], ranks: int) -> None:
    together = train(folder, "together.safetensors", "--ranks", str(ranks))
    again = train(folder, "again.safetensors", "--ranks", str(ranks))
    assert together == again
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name


def test_sums_are_under_way_while_ranks_work(folder: Path) -> None:
    wide = MODEL.replace("8)", "300)").replace("Linear(8,", "Linear(300,")
    deep = wide.replace("  use b", "  use m = Linear(300, 300)\n  use b").replace(
        "b(tanh(a(x)))", "b(tanh(m(tanh(a(x)))))"
    )
    (folder / "deep.dlm").write_text(deep)
    alone = train(folder, "deep.safetensors", model="deep.dlm")
    together = train(folder, "deep2.safetensors", "--ranks", "2", model="deep.dlm")
    assert together == train(folder, "deep2.safetensors", "--ranks", "2", model="deep.dlm")
    assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)


def test_a_checkpoint_of_ranks_is_one_of_a_process(folder: Path, alone: dict[str, float]) -> None:
    part = ("--set", "epochs=1", "--checkpoint", "part.safetensors")
    train(folder, "one.safetensors", "--ranks", "2", *part)
    resumed = train(folder, "resumed.safetensors", "--resume", "part.safetensors")
    assert resumed["loss"] == pytest.approx(alone["loss"], rel=1e-5)


def test_another_number_of_ranks_is_refused(folder: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", "2", sys.executable, "-m", "dlc", "train", "line.dlm", "--ranks", "3"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "D0936" in done.stderr


def test_ranks_with_other_data_are_refused(folder: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    rank = ["-n", "1", sys.executable, "-m", "dlc", "train", "line.dlm"]
    command = [mpiexec, *rank, ":", *rank, "--data", "other.npz"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert done.stderr.count("D0937") == 1


def test_a_rank_that_fails_ends_all_with_one_message(folder: Path) -> None:
    done = run(folder, "train", "steep.dlm", "--ranks", "2")
    assert done.returncode != 0
    assert done.stderr.count("D0815") == 1
    assert re.search(r"^rank [01] on ", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("split", [pytest.param("optimizer", marks=pytest.mark.long), "weights"])
def test_ranks_with_parts_of_the_weights_train_as_one_process(folder: Path, split: str) -> None:
    alone = train(folder, "alone.safetensors")
    together = train(folder, "together.safetensors", "--ranks", "4", "--shard", split)
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name
    files = [arrays(folder / f"{name}.safetensors") for name in ("alone", "together")]
    assert files[0].keys() == files[1].keys()
    for name, array in files[0].items():
        found, wanted = (np.asarray(each, np.float64) for each in (files[1][name], array))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_one_process_has_nothing_to_split(folder: Path) -> None:
    done = run(folder, "train", "line.dlm", "--shard", "weights")
    assert done.returncode == 2
    assert "D0901" in done.stderr


SPLIT = """\
dlc 1
dim B = 1..64
mesh data = 2, model = 2

module Line() {
  param a: f32[3, 8] split (none, model) = normal(0.5)
  param b: f32[8, 1] split (model, none) = normal(0.5)
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = tanh(x @ a) @ b
}
"""


def test_ranks_train_by_the_mesh_of_the_text(folder: Path) -> None:
    (folder / "split.dlm").write_text(SPLIT + MODEL[MODEL.index("\ntrain") :])
    alone = train(folder, "split.dlc", model="split.dlm")
    together = train(folder, "split4.dlc", "--ranks", "4", model="split.dlm")
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name
    refused = run(folder, "train", "split.dlm", "--ranks", "3")
    assert "D0936" in refused.stderr
    assert "split.dlm:3:1" in refused.stderr


STAGES = """\
dlc 1
import nn (Linear)
dim B = 1..64
mesh stage = 2

module Line() {
  use a = Linear(3, 8) on stage 0
  use b = Linear(8, 1) on stage 1
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = b(on stage 0 { tanh(a(x)) })
}
"""


def test_ranks_train_as_the_stages_of_the_text(folder: Path) -> None:
    step = MODEL[MODEL.index("\ntrain") :].replace("  batch = 8", "  batch = 4\n  accumulate = 2")
    (folder / "stages.dlm").write_text(STAGES + step)
    alone = train(folder, "one.safetensors", model="stages.dlm")
    together = train(folder, "two.safetensors", "--ranks", "2", model="stages.dlm")
    assert together == train(folder, "again.safetensors", "--ranks", "2", model="stages.dlm")
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-6), name
    files = [arrays(folder / f"{name}.safetensors") for name in ("one", "two")]
    assert files[0].keys() == files[1].keys()
    for name, array in files[0].items():
        found, wanted = (np.asarray(each, np.float64) for each in (files[1][name], array))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    call = ("run", "stages.dlm", "--weights", "two.safetensors", "--input", "x=[[1, 2, 3]]")
    assert run(folder, *call, "--ranks", "2").stdout == run(folder, *call).stdout
    refused = run(folder, "train", "stages.dlm", "--ranks", "2", "--check-nan")
    assert refused.returncode != 0
    assert "D0901" in refused.stderr


def test_a_training_by_stages_goes_on_as_one_process(folder: Path) -> None:
    step = MODEL[MODEL.index("\ntrain") :].replace("  batch = 8", "  batch = 4\n  accumulate = 2")
    (folder / "halves.dlm").write_text(STAGES + step)
    alone = train(folder, "whole.safetensors", model="halves.dlm")
    part = ("--set", "epochs=1", "--checkpoint", "half.safetensors")
    train(folder, "half1.safetensors", "--ranks", "2", *part, model="halves.dlm")
    resumed = train(folder, "half2.safetensors", "--resume", "half.safetensors", model="halves.dlm")
    assert resumed["loss"] == pytest.approx(alone["loss"], rel=1e-6)


@pytest.mark.long
def test_each_stage_writes_its_own_weights_to_a_sharded_checkpoint(folder: Path) -> None:
    step = MODEL[MODEL.index("\ntrain") :].replace("  batch = 8", "  batch = 4\n  accumulate = 2")
    (folder / "each.dlm").write_text(STAGES + step)
    index = "each.safetensors.index.json"
    made = train(
        folder, "each.safetensors", "--ranks", "2", "--checkpoint", index, model="each.dlm"
    )
    where = json.loads((folder / index).read_text())["weight_map"]
    assert "-00001-of-00002" in where["a.w"]
    assert "-00002-of-00002" in where["b.w"]
    more = ("--set", "epochs=4", "--ranks", "2", "--resume", index)
    assert train(folder, "more.safetensors", *more, model="each.dlm")["loss"] < made["loss"]
