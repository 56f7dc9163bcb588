"""`dlc gradcheck`: right gradients pass, planted mistakes are found and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlc.cli import main
from dlc.driver import Request, Wanted, check_gradients

TRAINED = """\
dlc 1
import nn (Linear)
dim B = 1..8

module Small(hidden = 5) {
  use a = Linear(3, hidden)
  use b = Linear(hidden, 4)
  fn call(x: f32[B, 3]) -> f32[B, 4] = b(tanh(a(x)))
}

train Small {
  data = npz("data.npz", x="x", label="label")
  loss(x: f32[B, 3], label: i32[B]) = mean(cross_entropy(call(x), label))
  optimizer = sgd()
}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file `model.dlm` in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model.dlm"


def test_the_loss_of_a_model_is_checked_by_its_inputs_and_weights(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text(TRAINED)
    assert main(["gradcheck", "model.dlm", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["x", "a.w", "a.b", "b.w", "b.b"]
    assert all(row["right"] and row["checked"] > 3 and row["error"] < 1e-7 for row in rows)
    assert main(["gradcheck", "model.dlm", "--order", "2"]) == 0
    capsys.readouterr()


def test_a_rule_that_is_wrong_is_found_at_its_worst_element(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text(
        "dlc 1\nfn cube(x: f32[4]) -> f32[4] = x ** 3 with vjp(x, dy) = dy * 2 * x ** 2\n"
        "export fn f(x: f32[4], y: f32[4]) -> f32[4] = cube(x) * y\n"
    )
    assert main(["gradcheck", "model.dlm"]) == 3
    told = capsys.readouterr()
    assert "error[D0952]: the gradient by x" in told.err
    assert "WRONG" in told.out.splitlines()[1]
    assert "WRONG" not in told.out.splitlines()[2]


def test_kinks_are_left_out_and_counted(write: Path) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[6]) -> f32[6] = relu(x - 0.5)\n")
    inputs = {"x": "[0.5, 0.5, 0.5, 1.5, -1.5, 0.5]"}
    (row,) = check_gradients(Wanted("model.dlm"), Request("model.dlm", None, inputs), full=True)
    assert row.is_right
    assert (row.kinks, row.checked) == (8 + 4, 2)


def test_what_has_no_derivative_is_said(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.write_text("dlc 1\nexport fn f(x: i32[4]) -> i32[4] = x + 1\n")
    assert main(["gradcheck", "model.dlm"]) == 2
    assert "has no float results" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_functions_of_every_float_are_checked_in_f64(write: Path, dtype: str) -> None:
    write.write_text(f"dlc 1\nexport fn f(x: {dtype}[5]) -> {dtype}[5] = exp(sin(x)) / 2\n")
    request = Request("model.dlm", seed=0)
    (row,) = check_gradients(Wanted("model.dlm"), request)
    assert row.error < 1e-8
