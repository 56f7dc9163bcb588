"""Checkpoints: what comes back, what is refused, and that a kill leaves a whole file."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from dlc.errors import ArtifactError, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.training.checkpoint import Facts, read_checkpoint, write_checkpoint
from dlc.runtime.training.history import Record, as_json
from dlc.runtime.weights.files import open_weights

ROOT = Path(__file__).parents[3]
HISTORY = (
    Record(1, 100, {"loss": 0.1, "accuracy": 1 / 3}),
    Record(2, 200, {"loss": math.inf, "accuracy": 5e-324}),
)
FACTS = Facts(epoch=2, step=212, position=384, seed=2**64 - 1, history=HISTORY, total=0.1)


def tensors() -> dict[str, Tensor]:
    found = {name: Tensor(np.arange(6).reshape(2, 3) % 2, name) for name in DTYPES}
    return {**found, "net.0.w": Tensor([0.1, 0.2], "f32"), "net.0.w.adam.m": Tensor(3, "f32")}


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, tensors(), {"": FACTS})
    found = read_checkpoint(path)
    assert found.facts == FACTS
    assert found.tensors.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert found.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found.tensors[name].bits, tensor.bits)


def test_a_measure_that_is_no_number_comes_back(tmp_path: Path) -> None:
    facts = Facts(0, 1, 2, 3, (Record(0, 1, {"loss": math.nan}),))
    write_checkpoint(tmp_path / "c", {}, {"": facts})
    [record] = read_checkpoint(tmp_path / "c").facts.history
    assert math.isnan(record.values["loss"])


def test_the_same_training_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    write_checkpoint(one, tensors(), {"": FACTS})
    swapped = tuple(
        record._replace(values=dict(sorted(record.values.items(), reverse=True)))
        for record in HISTORY
    )
    write_checkpoint(two, dict(reversed(tensors().items())), {"": FACTS._replace(history=swapped)})
    assert one.read_bytes() == two.read_bytes()


def test_the_weights_in_it_can_be_read_as_any_others(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, tensors(), {"": FACTS})
    assert open_weights(path)["net.0.w"].tolist() == [np.float32(0.1), np.float32(0.2)]


def test_a_checkpoint_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, tensors(), {"": FACTS})
    before = read_checkpoint(path)
    write_checkpoint(path, {"a": Tensor(1.0, "f32")}, {"": FACTS._replace(step=213)})
    assert read_checkpoint(path).facts.step == 213
    assert before.tensors["net.0.w"][0].item() == np.float32(0.1), "what was read stays"
    assert [found.name for found in tmp_path.iterdir()] == ["c"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="D0502"):
        write_checkpoint(tmp_path / "none" / "c", tensors(), {"": FACTS})
    with pytest.raises(UsageError, match="D0502"):
        write_checkpoint(f"{tmp_path}/\0", tensors(), {"": FACTS})
    with pytest.raises(UsageError, match="D0501"):
        read_checkpoint(tmp_path / "none")


def test_a_file_of_weights_is_no_checkpoint(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "w", tensors(), {"made": "elsewhere"})
    with pytest.raises(UsageError, match=r"(?s)D0548.*is not a checkpoint.*give it as weights"):
        read_checkpoint(tmp_path / "w")


def altered(path: Path, **changes: object) -> Path:
    """A checkpoint whose facts are others."""
    facts: dict[str, object] = {
        "version": 1, "epoch": 0, "step": 0, "position": 0, "seed": 0, "history": [], "total": "0.0"
    }  # fmt: skip
    facts.update(changes)
    there = {key: value for key, value in facts.items() if value is not None}
    text = json.dumps(there, sort_keys=True, separators=(",", ":"))
    safetensors.write(path, {}, {"dlc.checkpoint": text})
    return path


def test_a_newer_version_is_told(tmp_path: Path) -> None:
    assert read_checkpoint(altered(tmp_path / "c")).facts == Facts(0, 0, 0, 0)
    with pytest.raises(UsageError, match=r"(?s)D0548.*version 3.*update dlc"):
        read_checkpoint(altered(tmp_path / "c", version=3))


SENSELESS: list[dict[str, object]] = [
    {"step": -1},
    {"step": "1"},
    {"step": True},
    {"step": None},
    {"more": 1},
    {"total": "x"},
    {"total": 1},
    {"history": {}},
    {"history": [1]},
    {"history": [{"epoch": 1, "step": 1, "values": {"loss": "x"}}]},
    {"history": [{"epoch": 1, "step": 1, "values": {"loss": 1}}]},
    {"history": [{"epoch": 1, "values": {}}]},
]


@pytest.mark.parametrize("changes", SENSELESS)
def test_facts_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match=r"D0503.*damaged"):
        read_checkpoint(altered(tmp_path / "c", **changes))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1}', "[" * 100_000])
def test_facts_that_are_no_canonical_json_are_refused(tmp_path: Path, text: str) -> None:
    safetensors.write(tmp_path / "c", {}, {"dlc.checkpoint": text})
    with pytest.raises(ArtifactError, match=r"D0503"):
        read_checkpoint(tmp_path / "c")


def test_history_for_other_programs_has_numbers() -> None:
    rows = json.loads(as_json(HISTORY))
    assert rows[0] == {"epoch": 1, "step": 100, "loss": 0.1, "accuracy": 1 / 3}
    assert rows[1]["loss"] is None, "JSON has no infinity"


# ---------------------------------------------------------------------------------------- killed

WRITER = """
import sys
import numpy as np
from dlc.runtime.training.checkpoint import Facts, write_checkpoint
from dlc.runtime.arrays.tensor import Tensor
for step in range(int(sys.argv[2]), 1 << 30):
    tensors = {name: Tensor(np.full(1 << 18, step, np.int32)) for name in ("w", "w.m", "w.v")}
    write_checkpoint(sys.argv[1], tensors, {"": Facts(0, step, 0, 0)})
    print(step, flush=True)
"""


def killed_writer(path: Path, first: int, seconds: float) -> int:
    """Write checkpoints from step `first` on and kill the writer; gives the last one it finished."""
    command = [sys.executable, "-c", WRITER, str(path), str(first)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        output: IO[str] | None = writer.stdout
        assert output is not None
        told = [int(output.readline())]
        time.sleep(seconds)
        writer.kill()
        told += [int(line) for line in output if line.endswith("\n")]
        assert writer.wait() == -signal.SIGKILL
    return told[-1]


def kill_again_and_again(folder: Path, times: int) -> None:
    chance = random.Random(times)
    path, done = folder / "c", 0
    for _ in range(times):
        done = killed_writer(path, done + 1, chance.uniform(0.0, 0.1))
        found = read_checkpoint(path)
        # The rename may be done and the word of it not yet told.
        assert found.facts.step in (done, done + 1)
        done = found.facts.step
        for tensor in found.tensors.values():
            assert (tensor.bits == done).all()


def test_a_kill_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 5)


@pytest.mark.long
def test_fifty_kills_leave_a_whole_checkpoint(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 50)
