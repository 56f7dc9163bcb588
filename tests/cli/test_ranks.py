"""`dlc train --ranks`: processes that MPI starts train as one does."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.cli import main
from dlc.runtime.arrays import safetensors
from tests.cli.conftest import Done

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
    step = MODEL[MODEL.index("\ntrain") :]
    (folder / "split.dlm").write_text(SPLIT + step)
    (folder / "halves.dlm").write_text(SPLIT.replace("data = 2, ", "") + step)
    microbatches = step.replace("  batch = 8", "  batch = 4\n  accumulate = 2")
    (folder / "stages.dlm").write_text(STAGES + microbatches)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, float]:
    """The last measurements of one process."""
    return train(folder, "alone.safetensors")


def run(folder: Path, *command: str) -> Done:
    """Run a command of this process in the folder; the ranks that it starts are processes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["dlc", *command])  # what the ranks do again
        code = main(command)
    return Done(code, out.getvalue(), err.getvalue())


def arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a file of safetensors."""
    file = memoryview(path.read_bytes())
    return {name: read().values() for name, read in safetensors.entries(file, path.name).items()}


def train(folder: Path, out: str, *more: str, model: str = "line.dlm") -> dict[str, float]:
    """Train, and give the last measurements."""
    done = run(folder, "train", model, "--threads", "1", "-o", out, "--json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out)[-1]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_train_as_one_process(folder: Path, alone: dict[str, float], ranks: int) -> None:
    checkpoint = ("--checkpoint", "part.safetensors")
    together = train(folder, "together.safetensors", "--ranks", str(ranks), *checkpoint)
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name
    check_goes_on(folder, "part.safetensors", "line.dlm")


def check_goes_on(folder: Path, checkpoint: str, model: str) -> None:
    """Another epoch from a checkpoint of ranks is that of a training by one process."""
    more = ("--set", "epochs=4")
    resumed = train(folder, "more.safetensors", *more, "--resume", checkpoint, model=model)
    whole = train(folder, "whole.safetensors", *more, model=model)
    assert resumed["loss"] == pytest.approx(whole["loss"], rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("model", ["line.dlm", "stages.dlm"])
def test_a_second_training_gives_the_same(folder: Path, model: str) -> None:
    once, again = (train(folder, "same.safetensors", "--ranks", "2", model=model) for _ in range(2))
    assert once == again


@pytest.mark.long
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


def test_another_number_of_ranks_is_refused(folder: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", "2", sys.executable, "-m", "dlc", "train", "line.dlm", "--ranks", "3"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "D0936" in done.stderr


@pytest.mark.long
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
    assert done.code != 0
    assert done.err.count("D0815") == 1
    assert re.search(r"^rank [01] on ", done.err, re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize(("split", "ranks"), [("weights", 2), ("optimizer", 4), ("weights", 4)])
def test_ranks_with_parts_of_the_weights_train_as_one_process(
    folder: Path, alone: dict[str, float], split: str, ranks: int
) -> None:
    together = train(folder, "parts.safetensors", "--ranks", str(ranks), "--shard", split)
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name
    check_files(folder, "parts", "alone", rtol=1e-4, atol=1e-6)


def check_files(folder: Path, found: str, wanted: str, rtol: float, atol: float) -> None:
    """Compare the weights of two files."""
    one, other = (arrays(folder / f"{name}.safetensors") for name in (found, wanted))
    assert one.keys() == other.keys()
    for name, array in other.items():
        got, expected = (np.asarray(each, np.float64) for each in (one[name], array))
        np.testing.assert_allclose(got, expected, rtol, atol)


def test_one_process_has_nothing_to_split(folder: Path) -> None:
    done = run(folder, "train", "line.dlm", "--shard", "weights")
    assert done.code == 2
    assert "D0901" in done.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "ranks"),
    [("halves.dlm", "2"), ("split.dlm", "4")],
)
def test_ranks_train_by_the_mesh_of_the_text(folder: Path, model: str, ranks: str) -> None:
    alone = train(folder, "alone.dlc", model=model)
    together = train(folder, "together.dlc", "--ranks", ranks, model=model)
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("split.dlm", "--ranks", "3"), "D0936"),
        (("stages.dlm", "--ranks", "2", "--check-nan"), "D0901"),
    ],
)
def test_ranks_that_the_text_does_not_allow_are_refused(
    folder: Path, command: tuple[str, ...], code: str
) -> None:
    refused = run(folder, "train", *command)
    assert refused.code != 0
    assert code in refused.err
    assert "split.dlm" not in command or "split.dlm:3:1" in refused.err


def test_ranks_train_as_the_stages_of_the_text(folder: Path) -> None:
    alone = train(folder, "one.safetensors", model="stages.dlm")
    checkpoint = ("--checkpoint", "half.safetensors")
    together = train(folder, "two.safetensors", "--ranks", "2", *checkpoint, model="stages.dlm")
    for name, value in alone.items():
        assert together[name] == pytest.approx(value, rel=1e-6), name
    check_files(folder, "two", "one", rtol=1e-5, atol=1e-7)
    check_goes_on(folder, "half.safetensors", "stages.dlm")


@pytest.mark.long
def test_ranks_run_as_the_stages_of_the_text(folder: Path) -> None:
    call = ("run", "stages.dlm", "--weights", "init:0", "--input", "x=[[1, 2, 3]]")
    assert run(folder, *call, "--ranks", "2").out == run(folder, *call).out


@pytest.mark.long
def test_each_stage_writes_its_own_weights_to_a_sharded_checkpoint(folder: Path) -> None:
    index = "each.safetensors.index.json"
    options = ("--ranks", "2", "--checkpoint", index)
    made = train(folder, "each.safetensors", *options, model="stages.dlm")
    where = json.loads((folder / index).read_text())["weight_map"]
    assert "-00001-of-00002" in where["a.w"]
    assert "-00002-of-00002" in where["b.w"]
    more = ("--set", "epochs=4", "--ranks", "2", "--resume", index)
    assert train(folder, "more.safetensors", *more, model="stages.dlm")["loss"] < made["loss"]
