"""`dlc train --ranks`: processes that MPI starts train as one does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    folder = tmp_path_factory.mktemp("ranks")
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


def train(folder: Path, out: str, *more: str) -> dict[str, float]:
    """Train, and give the last measurements."""
    done = run(folder, "train", "line.dlm", "--threads", "1", "-o", out, "--json", *more)
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
    assert "rank 0 on " in done.stderr
