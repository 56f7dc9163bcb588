"""`dlc run --ranks`: processes that MPI starts share a call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_ranks import run

pytest.importorskip("mpi4py")

MODEL = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Net() {
  use a = Linear(3, 2)
  export fn predict(x: f32[B, 3]) -> f32[B, 2] = tanh(a(x))
}
"""
CALL = ("--input", "x=x.npy", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model and an input of 8 rows."""
    (tmp_path / "net.dlm").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((8, 3), np.float32))
    return tmp_path


def printed(folder: Path, *command: str) -> str:
    """What a command prints."""
    done = run(folder, *command)
    assert done.code == 0, done.err
    return done.out


TEXT = ("run", "net.dlm", "--weights", "init:0", *CALL)


@pytest.mark.long
def test_ranks_give_the_results_of_one_process(folder: Path) -> None:
    assert printed(folder, *TEXT, "--ranks", "2") == printed(folder, *TEXT)


def test_an_artifact_for_ranks_runs_as_these_and_in_a_program_of_ones_own(folder: Path) -> None:
    run(folder, "compile", "net.dlm", "--weights", "init:0", "--ranks", "2")
    assert printed(folder, "run", "net.dlc", *CALL, "--ranks", "2") == printed(folder, *TEXT)
    (folder / "own.py").write_text(
        "import dlc, numpy as np\n"
        "from mpi4py import MPI\n"
        "model = dlc.load('net.dlc', comm=MPI.COMM_WORLD)\n"
        "y = model.predict(np.load('x.npy'))\n"
        "print(y.shape)\n"
    )
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "own.py"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Both write to one pipe, in pieces that may alternate.
    assert done.stdout.count("(8, 2)") == 2, done.stderr


@pytest.mark.long
def test_an_artifact_for_other_ranks_is_refused_once(folder: Path) -> None:
    run(folder, "compile", "net.dlm", "--weights", "init:0", "--ranks", "3")
    alone = run(folder, "run", "net.dlc", *CALL)
    assert "D0936" in alone.err
    more = run(folder, "run", "net.dlc", *CALL, "--ranks", "2")
    assert more.code == alone.code
    assert more.err.count("D0936") == 1


def test_numpy_does_not_share(folder: Path) -> None:
    done = run(folder, *TEXT, "--interpret", "--ranks", "2")
    assert done.code == 2
    assert "leave out --ranks" in done.err


TRAIN = """
train Net {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B, 2]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01)
  batch = 8
}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "entry"), [(("--weights", "init:0"), "predict"), (("--train",), "train_step")]
)
def test_a_profile_of_ranks_has_one_trace_of_all(
    folder: Path, more: tuple[str, ...], entry: str
) -> None:
    (folder / "net.dlm").write_text(MODEL + TRAIN)
    command = ("profile", "net.dlm", *more, "--dim", "B=8", "--rounds", "2")
    found = printed(folder, *command, "--ranks", "2", "--trace", "trace.json", "--json")
    assert json.loads(found)["entry"] == entry
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [f"net.dlm: {entry}, rank {rank}" for rank in (0, 1)]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2}


STAGES = """\
dlc 1
dim B = 1..64
mesh stage = 2

module Net() {
  param a: f32[3, 4] = normal(0.5)
  param b: f32[4, 2] = normal(0.5)
  export fn predict(x: f32[B, 3]) -> f32[B, 2] = on stage 1 { (on stage 0 { tanh(x @ a) }) @ b }
}

train Net {
  loss(x: f32[B, 3], y: f32[B, 2]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
  accumulate = 4
}
"""


@pytest.mark.long
def test_stages_are_profiled_with_one_trace_of_all_ranks(folder: Path) -> None:
    (folder / "stages.dlm").write_text(STAGES)
    command = ("profile", "stages.dlm", "--ranks", "2", "--threads", "1", "--rounds", "2")
    told = printed(folder, *command, "--train", "--trace", "step.json")
    assert "bubble: " in told
    assert "rank 1, stage 1: " in told
    events = json.loads((folder / "step.json").read_text())["traceEvents"]
    names = {(each["pid"], each["name"]) for each in events if each["ph"] == "X"}
    assert {(1, "backward 3"), (2, "forward and backward 3"), (2, "wait for stage 0")} <= names
    data = json.loads(printed(folder, *command, "--entry", "predict", "--json"))
    assert [each["stage"] for each in data["stages"]["ranks"]] == [0, 1]


@pytest.mark.long
def test_a_profile_of_stages_by_another_number_of_ranks_is_refused(folder: Path) -> None:
    (folder / "stages.dlm").write_text(STAGES)
    for more in (("--train",), ("--entry", "predict")):
        done = run(folder, "profile", "stages.dlm", "--ranks", "3", *more)
        assert done.code
        assert "D0936" in done.err
        assert "Traceback" not in done.err
