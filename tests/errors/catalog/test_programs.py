"""What the error pages show besides model texts causes its code: commands, Python and IR.

They run in a folder with the files that they name. A page whose program is an excerpt, or needs what is not
here, stands in `EXCERPTS`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dlc
from dlc.cli import main
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import read_ir
from dlc.errors import DlcError
from dlc.errors.catalog import PAGES
from dlc.ir.verify import verify
from dlc.runtime.arrays import safetensors
from dlc.runtime.artifact.contents import Artifact
from tests.errors.catalog.test_pages import SHOWN
from tests.suites import every, together

MLP = """dlc 1
import nn (Linear)
dim B = 1..64

module Mlp(hidden = 16) {
  use net = chain(Linear(784, hidden), relu, Linear(hidden, 10))
  export fn predict(image: f32[B, 784]) -> (scores: f32[B, 10]) {
    let hidden_values = net(image)
    return (scores = softmax(hidden_values))
  }
}
"""
POLY = """dlc 1
export fn y(x: f32[2, 2]) -> f32[2, 2] = x * x
export fn z(x: f32[2, 2]) -> f32[2, 2] = x + x
"""
EXP = """dlc 1
export fn f(x: f32[8]) -> f32[8] = exp(x)
"""
CUBE = """dlc 1
fn cube(x: f32[4]) -> f32[4] = x ** 3 with vjp(x, dy) = dy * 2 * x ** 2
export fn f(x: f32[4]) -> f32[4] = cube(x)
"""
TWO = """dlc 1
export fn f(x: f32[4, 4]) -> f32[4, 4] = (x @ x) @ (x + 1)
"""
LONG = "\n".join(
    [
        "dlc 1",
        "export fn f(x: f32[4]) -> f32[4] {",
        "  let y0 = x",
        *[f"  let y{k + 1} = sin(y{k})" for k in range(3001)],
        "  return y3001",
        "}\n",
    ]
)
PREPARED = {
    "model": 'model = dlc.load("mlp.dlc")',
    "image": "image = np.zeros((2, 784), np.float32)",
    "weights": 'weights = {n: np.array(w) for n, w in dlc.load("mlp.dlc").weights.items()}',
    "counter": "counter = dlc.compile(text=COUNTER)",
    "pool.map(lambda _: session": "counter = dlc.compile(text=COUNTER.replace('[2]', '[20000]'))",
}
"""What Python on the pages takes as given, by the word that needs it.

Calls in which threads are to meet take longer, as other processes may have the processors.
"""
COUNTER = """dlc 1
export fn f(inout total: f32[2]) -> f32[2] {
  set total = total + 1
  return total
}
"""


TRAINED = """dlc 1
import nn (Linear)
dim B = 1..8
module Digits() {
  use net = chain(flatten, Linear(64, 10))
  export fn predict(image: f32[B, 8, 8]) -> f32[B, 10] = net(image)
}
train Digits {
  DATA
  loss(image: f32[B, 8, 8], label: i32[B]) = mean(cross_entropy(predict(image), label))
  optimizer = adam()
  batch = 8
  epochs = 1
}
"""
"""A text around a line that says where examples come from."""


TRAINING, FRAMEWORK, INSTALLED, GPU, FILE = (
    "a part of a train block, whose data are not here",
    "a program of another framework",
    "what is installed, or the environment",
    "a GPU, or its driver",
    "a file that is not here, or a part of one",
)
EXCERPTS: dict[str, str] = {
    "D0100": "the code of errors in texts that have no other one",
    "D0106": "a part of a text, a long one",
    "D0161": "an operation that a tool reads as another one",
    **dict.fromkeys(("D0405", "D0408"), "a part of a text"),
    "D0510": "an initialiser of IR; a text with another name is refused before (D0201)",
    **dict.fromkeys(("D0539", "D0542", "D0543", "D0546", "D0547"), TRAINING),
    **dict.fromkeys(("D0548", "D0551", "D0553", "D0815", "D0816", "D0925"), TRAINING),
    **dict.fromkeys(("D0711", "D0712", "D0908"), FILE),
    **dict.fromkeys(
        ("D0380", "D0381", "D0740", "D0823", "D0824", "D0936", "D0937"), "processes that MPI starts"
    ),
    "D0825": "a call of millions of kernels",
    **dict.fromkeys(("D0717", "D0718", "D0719", "D0725", "D0726", "D0935"), FRAMEWORK),
    **dict.fromkeys(("D0702", "D0714", "D0729", "D0730", "D0926"), GPU),
    **dict.fromkeys(
        ("D0608", "D0614", "D0615", "D0703", "D0705", "D0921", "D0922", "D0923", "D0962"), INSTALLED
    ),
    "D0960": "a request to an editor",
    "D0819": "two threads that meet, or do not",
}
"""Codes whose page shows an excerpt, or a program that does not run here, and what it is."""

RUN = [
    code
    for code, page in PAGES.items()
    if page.wrong and code not in SHOWN and code not in EXCERPTS
]
"""Codes whose programs are run."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {"mlp.dlm": MLP, "poly.dlm": POLY, "exp.dlm": EXP, "cube.dlm": CUBE}
    for name, text in {**texts, "labels.txt": "cat\ndog\n"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    model = dlc.compile(folder / "mlp.dlm", weights="init:0")
    model.save(folder / "mlp.dlc")
    data = (folder / "mlp.dlc").read_bytes()
    (folder / "half.dlc").write_bytes(data[: len(data) // 2])
    newer = bytearray(data)
    newer[8] += 1
    (folder / "newer.dlc").write_bytes(newer)
    (folder / "half.safetensors").write_bytes(b"\xff" * 40)
    (folder / "half.onnx").write_bytes(b"\x08\x09\x3a\x7f")
    (folder / "long.dlm").write_text(LONG, encoding="utf-8")
    plan = show_stage(CompileRequest("two.dlm", text=TWO), Shown("plan"))
    (folder / "plan.dlir").write_text(plan, encoding="utf-8")
    overlap = plan.replace(
        "offset = 64 : i64}> : () -> !mem.root", "offset = 0 : i64}> : () -> !mem.root"
    )
    (folder / "overlap.dlir").write_text(overlap, encoding="utf-8")
    (folder / "common.dlm").write_text("dlc 1\nfn norm(x) = x * 2\n")
    tensors = {name: model.weights.tensor(name) for name in model.weights}
    safetensors.write(folder / "mlp.safetensors", tensors)
    np.save(folder / "image.npy", np.zeros((2, 784), np.float32))
    images, labels = np.zeros((40, 8, 8), np.float32), np.zeros(40, np.int32)
    np.savez(folder / "digits.npz", images=images, labels=labels)
    np.savez(folder / "uneven.npz", images=images, labels=labels[1:])
    (folder / "holes.csv").write_text("a,b\n1,2\n,3\n", encoding="utf-8")
    data = 'data = npz("digits.npz", image="images", label="labels")'
    (folder / "digits.dlm").write_text(TRAINED.replace("DATA", data), encoding="utf-8")
    right = CUBE.replace("dy * 2", "dy * 3")
    (folder / "right.dlm").write_text(right, encoding="utf-8")
    kernels = show_stage(CompileRequest(str(folder / "exp.dlm")), Shown("kernel"))
    (folder / "kernels.dlir").write_text(kernels, encoding="utf-8")
    other = show_stage(CompileRequest(str(folder / "exp.dlm")), Shown("llvm"))
    (folder / "other.ll").write_text(other.replace("fmul", "fsub"), encoding="utf-8")
    return folder


def codes_of(
    program: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> set[str]:
    """The codes of the errors that a program ends with."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("DLC_CACHE", str(files / "cache"))
    if program.startswith(("func ", '"', "%")):
        return _codes_of_ir(program)
    if _is_text(program):
        return _codes_of_text(program)
    if re.match(r'data = \w+\("', program):
        return _codes_of_data(program, files)
    if program.startswith("dlc "):
        command = shlex.split(program, comments=True)
        capsys.readouterr()
        main([*command[1:], "--json"])
        told: object = json.loads(capsys.readouterr().out)
        failed = cast("dict[str, list[dict[str, str]]]", told if isinstance(told, dict) else {})
        return {each["code"] for each in failed.get("errors", ())}
    return _codes_of_python(program)


def _is_text(program: str) -> bool:
    """Whether a program is the text of a model."""
    return bool(re.match(r"dlc \d|fn |export |const |import \"", program))


def _codes_of_text(text: str) -> set[str]:
    try:
        dlc.compile(text=text, weights="init:0").close()
    except DlcError as error:
        return {each.code for each in error.diagnostics}
    return set()


def _codes_of_data(line: str, files: Path) -> set[str]:
    (files / "trained.dlm").write_text(TRAINED.replace("DATA", line), encoding="utf-8")
    try:
        dlc.trainer(files / "trained.dlm").evaluate()
    except DlcError as error:
        return {each.code for each in error.diagnostics}
    return set()


def _codes_of_ir(text: str) -> set[str]:
    try:
        verify(read_ir(text, "shown.dlir"))
    except DlcError as error:
        return {each.code for each in error.diagnostics}
    return set()


def _codes_of_python(program: str) -> set[str]:
    names: dict[str, object] = {
        "dlc": dlc,
        "np": np,
        "Path": Path,
        "hashlib": hashlib,
        "COUNTER": COUNTER,
        "Artifact": Artifact,
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "threading": threading,
    }
    before = [line for word, line in PREPARED.items() if word in program]
    try:
        exec("\n".join([*before, program]), names)
    except DlcError as error:
        return {each.code for each in error.diagnostics}
    return set()


@together("code", RUN)
def test_the_wrong_program_of_a_page_causes_its_code(
    code: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code in codes_of(PAGES[code].wrong, files, monkeypatch, capsys)


@together("code", every(2, RUN))
def test_the_right_program_of_a_page_does_not(
    code: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code not in codes_of(PAGES[code].right, files, monkeypatch, capsys)


@together("code", PAGES)
def test_a_page_has_a_program_or_says_why_no_short_one_causes_its_code(code: str) -> None:
    page = PAGES[code]
    assert bool(page.wrong) != bool(page.without)
    assert bool(page.wrong) >= bool(page.right)


def test_every_excerpt_is_one_of_a_page() -> None:
    assert {code for code in EXCERPTS if not PAGES[code].wrong} == set()
