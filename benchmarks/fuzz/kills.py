"""Ranks that are killed: a training of 4 ranks, of which one is killed at a random moment.

All must end within 30 s with a message that names the rank, no process may stay, and the checkpoint, where
there is one, must lead to the losses of a training that nobody disturbed, to 1e-6. The moments are spread
over the whole command, from the start of Python to the writing of the result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.fuzz.cases import Kind, Outcome
from dlc.errors import DlcError
from dlc.runtime.training.checkpoint import read_checkpoint

RANKS = 4
ENDS = 30.0
"""Seconds in which all have to end after a kill."""
CLOSE = 1e-6
"""How far losses may be apart, relative to the larger one."""
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
  epochs = 20
}
"""
CHECKPOINT = "line.checkpoint.safetensors"
COMMAND = (
    sys.executable, "-m", "dlc", "train", "line.dlm", "--ranks", str(RANKS), "--threads", "1",
    "--checkpoint", CHECKPOINT, "--json",
)  # fmt: skip

History = list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class _Undisturbed:
    """A training to its end, and how long that took in seconds."""

    history: History
    seconds: float


def start() -> Callable[[int], Outcome]:
    """What kills one rank of a training."""
    with tempfile.TemporaryDirectory() as name:
        folder = _prepared(name)
        began = time.monotonic()
        done = subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, check=True)
        whole = _Undisturbed(json.loads(done.stdout), time.monotonic() - began)
    return lambda seed: check(Random(seed), whole)


def check(random: Random, whole: _Undisturbed) -> Outcome:
    """Kill one rank at a random moment, and go on from the checkpoint."""
    rank, moment = random.randrange(RANKS), random.random() * whole.seconds
    with tempfile.TemporaryDirectory() as name:
        folder = _prepared(name)
        killed = _killed(folder, rank, moment)
        if killed is not None:
            return killed
        again = [] if not (folder / CHECKPOINT).exists() else ["--resume", CHECKPOINT]
        try:
            if again:
                read_checkpoint(folder / CHECKPOINT)
        except DlcError as error:
            return Outcome("wrong", f"a broken checkpoint: {error}")
        done = subprocess.run(
            [*COMMAND, *again], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return Outcome("wrong", f"it does not go on: {done.stderr[-500:]}")
        return _compared(json.loads(done.stdout), whole.history)


def _prepared(name: str) -> Path:
    """A folder with the model and its data."""
    folder = Path(name)
    random = np.random.default_rng(1)
    x = random.standard_normal((72, 3), np.float32)
    np.savez(folder / "data.npz", x=x, y=x @ np.array([[1], [-2], [3]], np.float32))
    (folder / "line.dlm").write_text(MODEL)
    (folder / "tmp").mkdir()
    return folder


def _killed(folder: Path, rank: int, moment: float) -> Outcome | None:
    """Start a training and kill a rank after `moment` seconds; None where all ended as they should."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            COMMAND, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
        )
        began = time.monotonic()
        while (own := _process(folder, rank)) is None or time.monotonic() < began + moment:
            if process.poll() is not None:
                return Outcome("refused", "the training ended before the kill")
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.kill(own, signal.SIGKILL)
        try:
            code = process.wait(ENDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return Outcome("wrong", f"a hang after the kill of rank {rank} at {moment:.2f} s")
        said.seek(0)
        text = said.read()
    if code == 0:
        return Outcome("refused", "the training ended before the kill")
    if text.count("D0823") != 1 or f"rank {rank} on " not in text or "Traceback" in text:
        return Outcome("wrong", f"rank {rank} at {moment:.2f} s: {text[-500:]}")
    time.sleep(0.1)  # the system takes a moment to forget a killed process
    left = [other for other in range(RANKS) if _process(folder, other) is not None]
    return Outcome("wrong", f"the ranks {left} stay") if left else None


def _process(folder: Path, rank: int) -> int | None:
    """The process of a rank that was started for this folder."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"PMI_RANK={rank}".encode() not in variables or b"-m" not in words[:2]:
            continue
        if any(variable.startswith(f"TMPDIR={folder}".encode()) for variable in variables):
            return int(path.name)
    return None


def _compared(found: History, whole: History) -> Outcome:
    """Whether two histories have the same measurements."""
    if len(found) != len(whole):
        return Outcome("wrong", f"{len(found)} epochs, not {len(whole)}")
    for one, other in zip(found, whole, strict=True):
        for name, value in other.items():
            if abs(one[name] - value) > CLOSE * max(abs(one[name]), abs(value)):
                return Outcome("wrong", f"{name} of epoch {one['epoch']}: {one[name]}, not {value}")
    return Outcome("agreed", "", len(whole))


KIND = Kind("kills of ranks that train", start, 300.0)
