"""`dlc train` when something goes wrong: kills, Ctrl-C, a full disk, NaN, data that does not fit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.cli import main
from dlc.runtime.training.checkpoint import read_checkpoint

MODEL = """\
dlc 1
import nn (Linear, Dropout)
dim B = 1..64

module Line() {
  use a = Linear(3, 40)
  use drop = Dropout(0.2)
  use b = Linear(40, 1)
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = x |> a |> tanh |> drop |> b
}

train Line {
  data = npz("data.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=1e-3)
  batch = 8
  epochs = 150
  checkpoint = file("line.safetensors")
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model and its data."""
    (tmp_path / "line.dlm").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x @ np.array([[1], [2], [3]], np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(*more: str, first: str = "") -> subprocess.Popen[str]:
    """`dlc train line.dlm` in a process of its own, whose shell runs the command `first` before."""
    command = [sys.executable, "-m", "dlc", "train", "line.dlm", *more]
    shell = ["sh", "-c", f'{first}\nexec "$@"', "sh"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [*shell, *command],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def wait_for_change(path: Path, process: subprocess.Popen[str]) -> None:
    """Until there is another file than now, or one at all, or the process has ended."""
    seen = path.stat().st_ino if path.exists() else None
    while process.poll() is None and (not path.exists() or path.stat().st_ino == seen):
        time.sleep(0.001)


def after_an_epoch(process: subprocess.Popen[str]) -> IO[str]:
    """What it tells from the end of an epoch on; fails where it ends before."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch"):
            return process.stderr
    pytest.fail(f"the process ended with {process.wait()}")


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_kills_at_any_moment_leave_a_checkpoint_that_ends_as_if_nothing_had_been(
    folder: Path, count: int
) -> None:
    """With one thread and two in turn: neither changes a bit."""
    assert main(["train", "line.dlm", "--threads", "2", "--checkpoint", "whole.safetensors"]) == 0
    path = folder / "line.safetensors"
    moments = random.Random(1)
    ends: list[int] = []
    for attempt in range(count):
        resume = ("--resume", str(path)) if attempt else ()
        with started("--threads", str(1 + attempt % 2), *resume) as process:
            wait_for_change(path, process)
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
        ends.append(process.returncode)
        assert read_checkpoint(path).facts.position == 0
    assert set(ends) <= {0, -signal.SIGKILL} and ends[0] == -signal.SIGKILL
    assert main(["train", "line.dlm", "--resume", str(path), "--threads", "1"]) == 0
    assert path.read_bytes() == (folder / "whole.safetensors").read_bytes()


@pytest.mark.long
def test_ctrl_c_within_an_epoch_changes_nothing_of_the_end(folder: Path) -> None:
    (folder / "line.dlm").write_text(MODEL.replace('  checkpoint = file("line.safetensors")\n', ""))
    few = ["--set", "epochs=200", "--set", "batch=1"]
    assert main(["train", "line.dlm", *few, "-o", "whole.safetensors"]) == 0
    with started(*few) as process:
        messages = after_an_epoch(process)
        process.send_signal(signal.SIGINT)
        told = messages.read()
        assert process.wait() == 130
    assert "go on with --resume line.checkpoint.safetensors" in told
    resume = ["--resume", "line.checkpoint.safetensors", "-o", "end.safetensors"]
    assert main(["train", "line.dlm", *few, *resume]) == 0
    assert (folder / "end.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()


def test_ctrl_c_writes_to_where_the_model_wants_its_checkpoints(folder: Path) -> None:
    with started("--set", "epochs=1000000", "--json") as process:
        messages = after_an_epoch(process)
        process.send_signal(signal.SIGINT)
        assert "--resume line.safetensors" in messages.read()
        assert process.wait() == 130
    assert read_checkpoint("line.safetensors").facts.epoch > 0
    assert not list(folder.glob("*.checkpoint.*"))


def test_a_full_disk_is_told_and_leaves_the_last_good_checkpoint(
    folder: Path,
) -> None:
    """The limit on the size of a file is met as a full disk is: in the midst of writing."""
    assert main(["train", "line.dlm", "--set", "epochs=2"]) == 0
    good = (folder / "line.safetensors").read_bytes()
    with started("--resume", "line.safetensors", first="ulimit -f 1") as process:
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 2
    assert "error[D0502]: cannot write" in told
    assert "Traceback" not in told
    assert (folder / "line.safetensors").read_bytes() == good
    assert not list(folder.glob(".line*"))


@pytest.mark.parametrize(
    ("arrays", "code", "said"),
    [
        ({"x": np.ones((9, 4), np.float32), "y": np.ones((9, 1), np.float32)}, "D0543", "3"),
        ({"x": np.ones((9, 3)), "y": np.ones((9, 1), np.float32)}, "D0542", "f64"),
        ({"x": np.ones((9, 3), np.float32), "y": np.ones((8, 1), np.float32)}, "D0544", "8"),
        ({"x": np.ones((9, 3), np.float32)}, "D0541", "y"),
        ({"x": np.ones((0, 3), np.float32), "y": np.ones((0, 1), np.float32)}, "D0544", "no"),
        ({"x": np.ones(9, np.float32), "y": np.ones((9, 1), np.float32)}, "D0543", "[9]"),
    ],
    ids=["shape", "dtype", "count", "missing", "empty", "rank"],
)
def test_data_that_does_not_fit_is_refused_before_the_first_step(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arrays: dict[str, NDArray[np.float32]],
    code: str,
    said: str,
) -> None:
    np.savez(folder / "other.npz", allow_pickle=False, **arrays)
    assert main(["train", "line.dlm", "--data", "other.npz"]) == 1
    told = capsys.readouterr().err
    assert f"error[{code}]" in told
    assert "other.npz" in told
    assert said in told
    assert not (folder / "line.safetensors").exists()


@pytest.mark.parametrize(
    "told",
    [
        ["--checkpoint", "gone/c.safetensors"],
        ["--history", "gone/h.json"],
        ["--plot", "gone/c.svg"],
        ["-o", "gone/m.dlc"],
    ],
)
def test_files_without_a_folder_are_refused_before_the_first_step(
    folder: Path, capsys: pytest.CaptureFixture[str], told: list[str]
) -> None:
    assert main(["train", "line.dlm", *told]) == 2
    err = capsys.readouterr().err
    assert "there is no folder gone" in err
    assert "epoch" not in err


def test_a_checkpoint_of_the_text_without_a_folder_is_refused_before_the_first_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "line.dlm").write_text(MODEL.replace("line.safetensors", "gone/c.safetensors"))
    assert main(["train", "line.dlm"]) == 2
    err = capsys.readouterr().err
    assert "error[D0502]: cannot write gone/c.safetensors: there is no folder gone" in err
    assert "epoch" not in err


@pytest.mark.parametrize(
    ("loss", "operation"),
    [("mean(log(predict(x)))", "array.log"), ("mean(sqrt(abs(predict(x)) * 0))", "array.divide")],
    ids=["forward", "backward"],
)
def test_what_is_no_number_is_traced_to_its_operation_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str], loss: str, operation: str
) -> None:
    """In the second case the loss is finite, and its gradient, 0 / 0, spoils the weights."""
    text = MODEL.replace("mean((predict(x) - y) ** 2)", loss)
    (folder / "line.dlm").write_text(text)
    assert main(["train", "line.dlm", "--check-nan"]) != 0
    told = capsys.readouterr().err
    assert operation in told
    assert "line.dlm:14" in told


def test_measures_that_are_no_numbers_are_null_in_the_history(folder: Path) -> None:
    text = MODEL.replace("  optimizer", "  metric none = log(-1.0 * abs(loss))\n  optimizer")
    (folder / "line.dlm").write_text(text)
    assert main(["train", "line.dlm", "--set", "epochs=1", "--history", "h.json"]) == 0
    (row,) = json.loads((folder / "h.json").read_text())
    assert row["test_none"] is None
    assert row["loss"] > 0


@pytest.mark.parametrize(
    "told",
    [
        ["--data", "gone.npz"],
        ["--resume", "gone.safetensors"],
        ["--resume", "half.safetensors", "--set", "seed=5"],
        ["--resume", "half.safetensors", "--weights", "init:3"],
    ],
)
def test_mistakes_are_told_before_anything_is_compiled(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    told: list[str],
) -> None:
    assert main(["train", "line.dlm", "--set", "epochs=1", "--checkpoint", "half.safetensors"]) == 0
    monkeypatch.setattr("dlc.driver.run.train.compile_model", None)
    capsys.readouterr()
    assert main(["train", "line.dlm", *told]) == 2
    assert "error[D0501]" in (err := capsys.readouterr().err) or "error[D0925]" in err


def test_going_on_says_nothing_of_initial_weights(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "line.dlm", "--set", "epochs=1"]) == 0
    assert "4 weights initialised" in capsys.readouterr().err
    assert main(["train", "line.dlm", "--set", "epochs=2", "--resume", "line.safetensors"]) == 0
    assert "initialised" not in capsys.readouterr().err


@pytest.mark.long
def test_a_result_that_cannot_be_written_leaves_a_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken.dlc").symlink_to("/dev/full")
    (folder / "line.dlm").write_text(MODEL.replace('  checkpoint = file("line.safetensors")\n', ""))
    assert main(["train", "line.dlm", "--set", "epochs=1", "-o", "taken.dlc"]) == 2
    err = capsys.readouterr().err
    assert "what was learned is in line.checkpoint.safetensors" in err
    assert read_checkpoint("line.checkpoint.safetensors").facts.epoch == 1
