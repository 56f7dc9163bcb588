"""`dlc run --output-values`: inner values in a file, those of loops step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Command

LOOP = """\
dlc 1
export fn f(x: f32[4, 2]) -> f32[4, 2] {
  let (last, all) = scan row in x with total = zeros([2]) {
    let grown = total + row
    next total = grown
    yield grown
  }
  return all + last
}
"""
MODEL = """\
dlc 1
export fn f(x: f32[3]) -> f32[3] {
  let h = x + 1
  return exp(h)
}
"""


def test_a_value_is_written_to_the_file(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text(MODEL)
    words = ("--input", "x=[1, 2, 3]", "--values", "h", "--output-values", "v.npz")
    done = dlc("run", "m.dlm", *words)
    assert done.code == 0, done.err
    assert np.load(folder / "v.npz")["h"].tolist() == [2, 3, 4]


def test_a_value_in_a_loop_has_an_entry_for_each_step(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text(LOOP)
    words = ("--input", "x=[[1, 1], [1, 2], [1, 3], [1, 4]]", "--values", "grown")
    done = dlc("run", "m.dlm", *words, "--output-values", "v.npz")
    assert done.code == 0, done.err
    assert np.load(folder / "v.npz")["grown"].tolist() == [[1, 1], [2, 3], [3, 6], [4, 10]]


def test_without_values_there_is_nothing_to_write(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text("dlc 1\nexport fn f(x: f32[3]) -> f32[3] = exp(x)\n")
    done = dlc("run", "m.dlm", "--random-inputs", "0", "--output-values", "v.npz")
    assert done.code == 2
    assert "add --values all" in done.err
