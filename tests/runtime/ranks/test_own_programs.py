"""Programs of one's own among processes that MPI starts: training, calls, and ranks that fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import dlc
from tests.suites import every

pytest.importorskip("mpi4py")

MODEL = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Line() {
  use a = Linear(4, 8)
  use b = Linear(8, 1)
  export fn predict(x: f32[B, 4]) -> f32[B, 1] = b(tanh(a(x)))
}

train Line {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 4], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01)
  batch = 8
  epochs = 2
}
"""
HEAD = """\
import dlc, numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.Get_rank()
data = np.load("data.npz")
x, y = data["x"], data["y"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model and 32 examples."""
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    """The folder with the files."""
    random = np.random.default_rng(1)
    x = random.standard_normal((32, 4), np.float32)
    np.savez(folder / "data.npz", x=x, y=x[:, :1] - 2 * x[:, 1:2])
    (folder / "line.dlm").write_text(MODEL)
    return folder


def ended(folder: Path, ranks: int, program: str) -> subprocess.CompletedProcess[str]:
    """A program of several ranks when it has ended."""
    (folder / "own.py").write_text(HEAD + program)
    return subprocess.run(
        [Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), sys.executable, "own.py"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


GATHERED = """\
import json, time
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.agreement import made_once

def gathered(value):
    return [value for of_rank in comm.allgather([value]) for value in of_rank]

told = {}
"""
TOLD = "if rank == 0: print(json.dumps(told))\n"
APART = """\
trainer = dlc.trainer("line.dlm", threads=1, comm=comm.Split(rank), shard="weights")
told["apart"] = gathered(trainer.fit()[-1].values["loss"])

def slowly():
    time.sleep(1)
    return Artifact.from_bytes(open("kept.dlc", "rb").read())

used = time.process_time()
made_once(comm, slowly)
told["used"] = gathered(time.process_time() - used)
"""
"""What one start of two ranks does: that of processes takes longer than all of it."""
TOGETHER = """\
for shard in (None, "weights"):
    trainer = dlc.trainer("line.dlm", threads=1, comm=comm, shard=shard)
    trainer.step(x=x[:8], y=y[:8])
    trainer = dlc.trainer("line.dlm", threads=1, comm=comm, shard=shard)
    told[f"shard {shard}"] = gathered(trainer.fit()[-1].values["loss"])
    trainer.save(f"{shard}.safetensors.index.json")

trainer = dlc.trainer("line.dlm", threads=1, comm=comm)
try:
    trainer.fit({"x": x, "y": y + rank})
except dlc.DlcError as error:
    told["other data"] = gathered([trainer.steps, error.diagnostics[0].code])
"""
"""The same for the long tests."""
Told: TypeAlias = tuple[Path, dict[str, list[Any]]]
"""The folder of a program, and what it tells of each rank."""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What ranks do that work each by itself."""
    folder = filled(tmp_path_factory.mktemp("apart"))
    dlc.compile(folder / "line.dlm", weights="init:0").save(folder / "kept.dlc")
    return told(folder, APART)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What ranks do that train together."""
    return told(filled(tmp_path_factory.mktemp("together")), TOGETHER)


def told(folder: Path, program: str) -> Told:
    """What two ranks tell that run a program in a folder."""
    done = ended(folder, 2, GATHERED + program + TOLD)
    assert not done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("shard", [None, "weights"])
def test_a_trainer_among_ranks_trains_as_one_process_does(
    together: Told, shard: str | None
) -> None:
    folder, told = together
    alone = dlc.trainer(folder / "line.dlm", threads=1).fit()[-1].values["loss"]
    first, second = told[f"shard {shard}"]
    assert first == second
    np.testing.assert_allclose(first, alone, rtol=1e-6)
    resumed = dlc.trainer(folder / "line.dlm", threads=1)
    resumed.resume(folder / f"{shard}.safetensors.index.json")
    assert resumed.steps == 8


def test_one_rank_trains_as_a_process_alone(apart: Told) -> None:
    folder, told = apart
    alone = dlc.trainer(folder / "line.dlm", threads=1).fit()[-1].values["loss"]
    assert told["apart"] == [alone, alone]


@pytest.mark.long
def test_data_that_differs_is_refused_before_the_first_step(together: Told) -> None:
    assert together[1]["other data"] == [[0, "D0937"], [0, "D0937"]]


def test_ranks_wait_for_what_the_first_one_makes_without_a_processor(apart: Told) -> None:
    """It takes a second, all of which MPI itself would wait in a loop."""
    assert max(apart[1]["used"]) < 0.5


FAILURES = {
    "a batch of another shape": (
        'trainer = dlc.trainer("line.dlm", threads=1, comm=comm)\n'
        "trainer.step(x=x[:8, rank:], y=y[:8])\n",
        "D0803",
    ),
    "a text that is not there": (
        'dlc.trainer("none.dlm" if rank else "line.dlm", threads=1, comm=comm)\n',
        "D0501",
    ),
    "a save by the first rank alone": (
        'trainer = dlc.trainer("line.dlm", threads=1, comm=comm, shard="weights")\n'
        'if rank == 0: trainer.save("line.safetensors")\n',
        "its program has ended",
    ),
    "an artifact that is not there": (
        'if rank == 0: dlc.compile("line.dlm", weights="init:1").save("line.dlc")\n'
        "comm.Barrier()\n"
        'dlc.load("none.dlc" if rank else "line.dlc", comm=comm)\n',
        "D0501",
    ),
}


@pytest.mark.parametrize("name", every(3, FAILURES))
def test_where_one_rank_fails_all_end(folder: Path, name: str) -> None:
    program, code = FAILURES[name]
    done = ended(folder, 2, program)
    assert done.returncode
    assert re.search(r"rank 1 failed, so that no rank goes on", done.stderr)
    assert done.stderr.count("D0824") == 1
    assert code in done.stderr


@pytest.mark.long
def test_a_rank_that_ends_with_an_error_ends_those_that_wait_elsewhere(folder: Path) -> None:
    """The other waits for what the first one compiles: it makes no call in which it would be told."""
    done = ended(
        folder,
        2,
        "from dlc.runtime.ranks import entering\n"
        "entering.PATIENCE = 2\n"
        'dlc.trainer("line.dlm", threads=1, comm=comm)\n'
        'if rank == 0: raise ValueError("no more")\n'
        'dlc.trainer("line.dlm", threads=1, comm=comm)\n',
    )
    assert done.returncode
    assert "ValueError: no more" in done.stderr


def test_shard_without_ranks_is_refused(folder: Path) -> None:
    with pytest.raises(dlc.UsageError, match="this is one process"):
        dlc.trainer(folder / "line.dlm", shard="weights")
    with pytest.raises(dlc.UsageError, match="found 'some'"):
        dlc.trainer(folder / "line.dlm", shard="some")  # pyright: ignore[reportArgumentType]


def test_a_process_that_is_none_of_the_ranks_is_told_so(folder: Path) -> None:
    from mpi4py import MPI

    with pytest.raises(dlc.UsageError, match="comm is COMM_NULL") as told:
        dlc.trainer(folder / "line.dlm", comm=MPI.COMM_NULL)
    assert told.value.diagnostics[0].code == "D0936"
