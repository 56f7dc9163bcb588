"""`dlc train` as a user types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.cli import main

MODEL = """\
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
  optimizer = sgd(lr=0.1)
  batch = 10
  epochs = 3
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


def test_it_trains_and_leaves_an_artifact_a_curve_and_a_history(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["train", "line.dlm", "-o", "line.dlc", "--plot", "c.svg", "--history", "h.json"]
    assert main(told) == 0
    out, err = capsys.readouterr()
    assert out.startswith("epoch 3, step 9: loss ")
    assert "epoch 2/3" in err
    history = json.loads((folder / "h.json").read_text())
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert history[2]["test_loss"] < history[0]["test_loss"]
    assert "<svg" in (folder / "c.svg").read_text()
    assert main(["run", "line.dlc", "--input", "x=[[1,0,0]]"]) == 0
    assert "y" not in capsys.readouterr().err


def test_set_changes_the_train_block_and_json_gives_every_epoch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "line.dlm", "--set", "epochs=2", "--set", "batch=5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 6), (2, 12)]


def test_a_step_stays_within_a_limit_of_the_memory_or_is_refused_with_what_takes_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "line.dlm", "--set", "epochs=1", "--max-memory", "1KiB"]) != 0
    err = capsys.readouterr().err
    assert "error[D0706]: a call of train_step needs" in err
    assert "at B = 64" in err
    narrow = ["--max-memory", "8KiB", "--dim", "B=1..10", "--set", "epochs=1"]
    assert main(["train", "line.dlm", *narrow, "-o", "line.dlc"]) == 0
    trainer = dlc.trainer(folder / "line.dlm")
    trainer.save(folder / "trainer.dlc")
    capsys.readouterr()
    for late in (["--max-memory", "4KiB"], ["--dim", "B=1..10"], ["--costs", "tile=9"]):
        assert main(["train", "trainer.dlc", *late]) != 0
        assert f"{late[0]} cannot be set any more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "late", [["-O3"], ["--conv", "direct"], ["--matmul", "generated"], ["--module", "Line"]]
)
def test_options_of_the_compiler_are_refused_where_all_is_compiled(
    folder: Path, late: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    dlc.trainer("line.dlm").save("trainer.dlc")
    assert main(["train", "trainer.dlc", *late]) == 2
    assert f"trainer.dlc is compiled: {late[0]} cannot be set any more" in capsys.readouterr().err
    assert main(["train", "trainer.dlc", "-O2", "--conv", "auto", "--set", "epochs=1"]) == 0


@pytest.mark.long
def test_a_step_runs_within_the_least_limit_that_the_refusal_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = MODEL.replace("  use a", "  use c = Linear(100, 1)\n  use a").replace(
        "= a(x)", "= c(a(x))"
    )
    (folder / "wide.dlm").write_text(wide.replace("Linear(3, 1)", "Linear(3, 100)"))
    options = ["--dim", "B=1..10", "--set", "epochs=1", "--threads", "1", "--max-memory"]
    assert main(["train", "wide.dlm", *options, "1KiB"]) != 0
    least = re.findall(r"raise the limit to (\d+)KiB", capsys.readouterr().err)
    assert main(["train", "wide.dlm", *options, f"{max(map(int, least))}KiB"]) == 0


@pytest.mark.parametrize("stage", ["graph", "kernel", "plan", "loop", "llvm", "asm"])
def test_the_step_is_shown_at_every_stage(
    stage: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "line.dlm", "--train", "--stage", stage]) == 0
    told = capsys.readouterr().out
    assert ("train_step" in told and "evaluate" in told) or stage in ("llvm", "asm")
    assert not (folder / "line.dlc").exists()
    assert len(told.splitlines()) > 20


def test_what_has_no_train_block_shows_no_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plain.dlm").write_text(MODEL[: MODEL.index("train Line")])
    assert main(["show", "plain.dlm", "--train"]) == 1
    assert "D0531" in capsys.readouterr().err


def test_it_goes_on_from_a_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "line.dlm", "-o", "whole.safetensors"]) == 0
    first = ["train", "line.dlm", "--set", "epochs=1", "-o", "part.safetensors"]
    assert main(first) == 0
    assert main(["train", "line.dlm", "--resume", "part.safetensors", "-o", "end.safetensors"]) == 0
    assert (folder / "end.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (["train", "nowhere.dlm"], "D0501"),
        (["train", "line.dlm", "--data", "nowhere.npz"], "D0501"),
        (["train", "line.dlm", "-o", "line.txt"], "D0901"),
        (["train", "line.dlm", "-o", "nowhere/line.dlc"], "D0502"),
        (["train", "line.dlm", "--set", "batch=0"], "D0902"),
        (["train", "line.dlm", "--resume", "data.npz"], "D0503"),
    ],
)
def test_what_cannot_be_trained_is_said_with_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], told: list[str], code: str
) -> None:
    assert main(told) != 0
    assert f"error[{code}]" in capsys.readouterr().err


def test_a_nan_is_traced_to_the_operation_that_made_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MODEL.replace("mean((predict(x) - y) ** 2)", "mean(log(predict(x)))")
    (folder / "line.dlm").write_text(text)
    assert main(["train", "line.dlm", "--check-nan"]) != 0
    told = capsys.readouterr().err
    assert "array.log gives NaN" in told
    assert "line.dlm:12" in told


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(folder: Path) -> None:
    command = [sys.executable, "-m", "dlc", "train", "line.dlm", "--set", "epochs=1000000"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch"):
                break
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 130
    assert "go on with --resume line.checkpoint.safetensors" in rest
    assert main(["train", "line.dlm", "--resume", "line.checkpoint.safetensors"]) == 0
