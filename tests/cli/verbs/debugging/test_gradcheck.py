"""`dlc gradcheck`: right gradients pass, planted mistakes are found and named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dlc.cli import main
from dlc.driver import CallRequest, CompileRequest, check_gradients

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
    rows = json.loads(capsys.readouterr().out)["gradients"]
    assert [row["name"] for row in rows] == ["x", "a.w", "a.b", "b.w", "b.b"]
    assert all(row["right"] and row["checked"] > 3 and row["error"] < 1e-7 for row in rows)


def test_a_rule_whose_own_derivative_is_wrong_is_found_in_the_second_order(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for factor, code in ((6, 0), (5, 3)):
        write.write_text(
            f"dlc 1\nfn slope(x: f32[4]) -> f32[4] = 3 * x ** 2 with vjp(x, dy) = dy * {factor} * x\n"
            "fn cube(x: f32[4]) -> f32[4] = x ** 3 with vjp(x, dy) = dy * slope(x)\n"
            "export fn f(x: f32[4]) -> f32[4] = cube(x)\n"
        )
        assert main(["gradcheck", "model.dlm"]) == 0
        assert main(["gradcheck", "model.dlm", "--order", "2"]) == code
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
    assert main(["gradcheck", "model.dlm", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert [row["right"] for row in data["gradients"]] == [False, True]
    assert [error["code"] for error in data["errors"]] == ["D0952"]


def test_it_says_that_a_large_weight_was_looked_at_in_a_sample(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[40]) -> f32 = sum(sin(x))\n")
    assert main(["gradcheck", "model.dlm"]) == 0
    assert "by 32 of its elements and 8 directions through all" in capsys.readouterr().err
    assert main(["gradcheck", "model.dlm", "--full"]) == 0
    assert "of its elements" not in capsys.readouterr().err


def test_a_single_number_may_be_an_index(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[3], i: i32) -> f32 = x[i] * x[0]\n")
    assert main(["gradcheck", "model.dlm"]) == 0
    assert "1 gradient is right, at random numbers" in capsys.readouterr().err


def test_an_artifact_is_quoted_by_the_lines_of_its_graph(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text(
        "dlc 1\nexport fn f(x: f32) -> f32 = while x > 1 with x = x limit 2 { next x = x * 2 }\n"
    )
    assert main(["compile", "model.dlm"]) == 0
    assert main(["gradcheck", "model.dlc", "--input", "x=0.5"]) == 0
    assert "the graph of model.dlc:2:3" in capsys.readouterr().out
    assert main(["gradcheck", "model.dlc", "--input", "x=2"]) == 1
    told = capsys.readouterr().err
    assert "--> the graph of model.dlc:" in told
    assert '= "flow.while"(' in told


def test_what_has_no_derivative_is_said(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.write_text("dlc 1\nexport fn f(x: i32[4]) -> i32[4] = x + 1\n")
    assert main(["gradcheck", "model.dlm"]) == 2
    assert "has no float results" in capsys.readouterr().err
    write.write_text("dlc 1\nexport fn f(n: i32) -> f32 = f32(n) * 2\n")
    assert main(["gradcheck", "model.dlm"]) == 2
    assert "f has no float inputs or weights" in capsys.readouterr().err


def test_the_loss_is_looked_at_for_the_first_examples_of_its_data(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text(TRAINED)
    x = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
    np.savez("data.npz", x=x, label=np.arange(10, dtype=np.int32) % 4)
    assert main(["gradcheck", "model.dlm"]) == 0
    assert "are right, at the first 4 examples of data.npz" in capsys.readouterr().err
    assert main(["gradcheck", "model.dlm", "--random-inputs", "3"]) == 0
    assert "are right, at random numbers of seed 3" in capsys.readouterr().err


def test_why_there_are_no_examples_is_said(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.write_text(TRAINED)
    assert main(["gradcheck", "model.dlm"]) == 0
    assert "at random numbers of seed 0, since cannot read data.npz" in capsys.readouterr().err


def test_a_place_that_is_not_finite_is_refused(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[4]) -> f32 = sum(log(x))\n")
    assert main(["gradcheck", "model.dlm", "--input", "x=[1, 2, -3, 4]"]) == 2
    assert "error[D0905]: f is nan here" in capsys.readouterr().err
    assert main(["gradcheck", "model.dlm", "--input", "x=[1, 2, 3, 4]"]) == 0


def test_a_gradient_that_is_wrong_in_the_dtype_of_the_model_alone_is_told_apart(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text("dlc 1\nexport fn f(x: f16[4]) -> f16[4] = (x + 1000) - 1000 - x + x * x\n")
    assert main(["gradcheck", "model.dlm", "--input", "x=[0.1, 0.2, 0.3, 0.4]"]) == 0
    write.write_text("dlc 1\nexport fn f(x: f16[4]) -> f16[4] = exp(12 * x) / exp(11.5 * x)\n")
    assert main(["gradcheck", "model.dlm", "--input", "x=[0.1, 0.2, 0.3, 1]"]) == 3
    assert "the gradient by x is right in f64 and differs by" in capsys.readouterr().err


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_rounding_leaves_of_a_gradient_that_vanishes_is_told(
    write: Path, capsys: pytest.CaptureFixture[str], order: int
) -> None:
    normalised = (
        "  use n = LayerNorm(5)\n  fn call(x: f32[B, 3]) -> f32[B, 4] = b(tanh(n(a(x) + s)))\n"
    )
    text = TRAINED.replace("(Linear)", "(LayerNorm, Linear)").replace(
        "  fn call(x: f32[B, 3]) -> f32[B, 4] = b(tanh(a(x)))\n",
        f"  param s: f32[1] = zeros()\n{normalised}",
    )
    write.write_text(text)
    found = check_gradients(
        CompileRequest("model.dlm"), CallRequest("model.dlm", seed=0), order=order
    ).rows
    assert all(row.is_right for row in found)
    assert [row.name for row in found if row.vanishes] == ["s"]
    assert main(["gradcheck", "model.dlm", "--order", str(order)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "0 but for rounding" in line]
    assert [line.split()[0] for line in told] == ["s"]
