"""`--set NAME=VALUE`: numbers, texts, expressions, and what each parameter may be set to."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlc as package
from tests.cli.conftest import Command

MODEL = """\
dlc 1
module Net(n = 2, mode = "same", act: fn = relu, twice = n * 2, on = true, sizes = [1, 2]) {
  require mode == "same" or mode == "other one", mode
  param w: f32[twice] = ones()
  export fn f(x: f32[n]) -> f32[sizes[1]] = if on then act(x) else x
}
"""


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("mode=other one", 0),
        ('mode="other one"', 0),
        ("mode=none", 1),
        ("act=tanh", 0),
        ("twice=7", 0),
        ("n=1 + 1", 0),
        ("on=false", 0),
        ("sizes=[1, 2]", 0),
    ],
)
def test_a_parameter_is_set_to_what_it_is(
    dlc: Command, folder: Path, value: str, code: int
) -> None:
    (folder / "net.dlm").write_text(MODEL)
    done = dlc("check", "net.dlm", "--set", value)
    assert done.code == code, done.err
    if code:
        assert "none (" in done.err


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("n=", "n is set to '', which is not a value"),
        ("n=((", "n is set to '((', which is not a value"),
        ("n=2 const x = 3", "which is not a value"),
        ("n=abc", "nothing is called abc here"),
        ("n=1.5", "n of Net is a whole number, it cannot be set to a number"),
        ("n=[1, 2]", "n of Net is a whole number, it cannot be set to a list"),
        ("sizes=3", "sizes of Net is a list, it cannot be set to a whole number"),
        ("on=1", "on of Net is true or false, it cannot be set to a whole number"),
        ("act=3", "act of Net is a function or a dtype, it cannot be set to a whole number"),
        ("act=rleu", "did you mean relu?"),
    ],
)
def test_a_parameter_is_not_set_to_what_it_is_not(
    dlc: Command, folder: Path, value: str, said: str
) -> None:
    (folder / "net.dlm").write_text(MODEL)
    done = dlc("check", "net.dlm", "--set", value)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_python_sets_a_text_by_a_text() -> None:
    model = package.compile(text=MODEL, settings={"mode": "other one", "act": "tanh"})
    assert list(model) == ["f"]


@pytest.mark.parametrize(
    "command",
    [
        "compile rows.dlm -o rows.dlm",
        "compile rows.dlm -o other.dlir",
        "compile rows.dlm -o weights.safetensors",
        "opt rows.dlm --passes cse -o rows.dlm",
        "import net.onnx -o net.onnx",
    ],
)
def test_no_model_is_overwritten_by_one_of_another_kind(
    dlc: Command, folder: Path, command: str
) -> None:
    kept = {name: f"{name} as it was" for name in ("other.dlir", "weights.safetensors", "net.onnx")}
    for name, text in kept.items():
        (folder / name).write_text(text)
    kept["rows.dlm"] = (folder / "rows.dlm").read_text()
    done = dlc(*command.split())
    assert (done.code, done.out) == (2, "")
    assert "D0924" in done.err
    assert {name: (folder / name).read_text() for name in kept} == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--disable-pass autodiff", "the pass autodiff cannot be left out"),
        ("--output rows=a.npy --output total=a.npy", "would both be written to a.npy"),
    ],
)
def test_what_would_have_no_effect_is_refused(dlc: Command, given: str, said: str) -> None:
    done = dlc("run", "rows.dlm", "--random-inputs", "0", *given.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
