"""`dlc stubs`: what a type checker knows of a model, and that the module runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.runtime.model import Model
from tests.cli.conftest import Command
from tests.documents import ROOT
from tests.frontend.programs import as_list

MODEL = """dlc 1
dim B = 1..64, N
module Digits() {
  param w: f32[784, 10] = zeros()
  ## The probability of each digit.
  export fn predict(image: f32[B, 784], bias: f32 = 0) -> f32[B, 10] = softmax(image @ w + bias)
  export fn best(image: f32[B, 784]) -> (digit: i32[B], score: f32[B]) =
    (argmax(image @ w), max(image @ w, axis=-1))
  export fn narrow(lambda: bf16[B], from: f32 = 1, last: f32) -> (bf16[B], i8[B]) =
    (lambda, i8(lambda))
  export fn empty() -> f32[N] = zeros([N])
  export fn save(x: f32) -> f32 = x
}
"""
RIGHT = """
import numpy as np
from numpy.typing import NDArray

import dlc
from my_digits import MyDigits, load

model: MyDigits = load()
x = np.zeros((2, 784), np.float32)
y: NDArray[np.float32] = model.predict(x, bias=2)
digit: NDArray[np.int32] = model.best(x).digit
narrow: dlc.Tensor = model.narrow(x[0], last=1).result0
empty: NDArray[np.float32] = model.empty(N=3)
"""
WRONG = """
from my_digits import load

model = load()
model.predict()
model.empty()
model.best([1]).digits
"""


@pytest.mark.long
def test_a_type_checker_knows_the_entry_points(dlc: Command, folder: Path) -> None:
    (folder / "my-digits.dlm").write_text(MODEL)
    assert dlc("stubs", "my-digits.dlm", "-o", "my_digits.py").code == 0
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "stubPath": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "my_digits.py"]
    done = subprocess.run(
        [*command, "right.py", "wrong.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["rule"])
        for each in found
        if each["severity"] == "error"
    ]
    assert set(errors) == {
        ("wrong.py", 5, "reportCallIssue"),
        ("wrong.py", 6, "reportCallIssue"),
        ("wrong.py", 7, "reportAttributeAccessIssue"),
        ("wrong.py", 7, "reportUnknownMemberType"),
    }


def test_the_module_loads_what_was_compiled(dlc: Command, folder: Path) -> None:
    (folder / "my-digits.dlm").write_text(MODEL)
    assert dlc("compile", "my-digits.dlm").code == 0
    text = dlc("stubs", "my-digits.dlc").out
    assert "dlc.load(path" in text
    assert json.loads(dlc("stubs", "my-digits.dlc", "--json").out)["text"].strip() == text.strip()
    module: dict[str, object] = {}
    exec(compile(text, "my_digits.py", "exec"), module)
    load = cast("Callable[[Path], Model]", module["load"])
    (y,) = as_list(load(folder / "my-digits.dlc").predict(np.zeros((1, 784), np.float32)))
    np.testing.assert_allclose(y, np.full((1, 10), 0.1), rtol=1e-6)
