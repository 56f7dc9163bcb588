"""Single tensors of files as values of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from tests.frontend.programs import Program, as_list


def save(path: Path, arrays: dict[str, NDArray[np.float32]]) -> Path:
    safetensors.write(path, {name: Tensor(array) for name, array in arrays.items()})
    return path


STORED = """dlc 1
const mean: f32[2] = file("stats.safetensors", "mean")
let scale = npz("stats.npz", "scale")
module Net() {
  const offset = file("stats.safetensors", "offset")
  param w: f32[2] = ones()
  export fn f(x: f32[3, 2]) -> f32[3, 2] = (x - mean) * scale * w + offset
  export fn g(x: f32[3, 2]) -> f32[3, 2] = x + file("stats.safetensors", "mean")
}
"""
STATS = {"mean": np.array([1, 2], np.float32), "offset": np.array([[5], [6], [7]], np.float32)}
X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    save(tmp_path / "stats.safetensors", STATS)
    np.savez(tmp_path / "stats.npz", scale=np.array([3, 4], np.float32))
    (tmp_path / "stats.txt").write_text("0.5 0.25")
    path = tmp_path / "stored.dlm"
    path.write_text(STORED)
    return path


def test_tensors_of_files_are_values(stored: Path) -> None:
    program = Program(path=stored)
    wanted = (X - STATS["mean"]) * np.array([3, 4], np.float32) + STATS["offset"]
    np.testing.assert_array_equal(program.result("f", X), wanted)
    np.testing.assert_array_equal(program.result("g", X), X + STATS["mean"])


def test_other_weights_leave_tensors_of_the_text_as_they_are(stored: Path, tmp_path: Path) -> None:
    wanted = (X - STATS["mean"]) * np.array([3, 4], np.float32) * 2 + STATS["offset"]
    weights = save(tmp_path / "w.safetensors", {"w": np.full(2, 2, np.float32)})
    for given in (str(weights), {"w": np.full(2, 2, np.float32)}):
        found = Program(path=stored, weights=given).result("f", X)
        np.testing.assert_array_equal(found, wanted)
    model = dlc.compile(stored, weights="init:1").with_weights(weights)
    np.testing.assert_array_equal(as_list(model.f(X))[0], wanted)


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ('file("none.safetensors", "mean")', "D0501", "no such file"),
        ('file("stats.safetensors", "maen")', "D0504", "there is no array maen"),
        ('file("../stats.safetensors", "mean")', "D0506", "may lead out of the model's folder"),
        ('file("stats.txt", "mean")', "D0901", "not a file of arrays"),
    ],
)
def test_wrong_files_are_refused_at_their_place(
    stored: Path, value: str, code: str, message: str
) -> None:
    stored.write_text(STORED.replace('file("stats.safetensors", "offset")', value))
    with pytest.raises(DlcError) as caught:
        dlc.compile(stored)
    (said,) = caught.value.diagnostics
    assert (said.code, message in said.message) == (code, True), said
    assert said.place is not None and said.place.line == 5
