"""Planted mistakes are found without help, and models without one are right at every level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz.texts import random_case
from dlc.driver.compile.entries import entry_points
from dlc.driver.compile.settings import Settings
from dlc.driver.diff.report import Departed, compare_levels
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import open_model
from dlc.errors import CallError, ModelError
from tests.documents import ROOT
from tests.driver.diff.planted import PLANTED, Planted
from tests.driver.diff.planted_more import MORE
from tests.suites import every

QUICK = {
    "a transpose of a square is dropped",
    "gradient of a quotient",
    "a softmax is not 1 in sum",
    "equal types count as equal inputs",
    "tanh is sigmoid",
    "fsub is fadd",
    "a constant of exp is off by 0.1 per mille",
    "a barrier of a sum is left out",
    "a tail mask of a GPU is left out",
}
"""The mistakes of the quick suite: one of each level."""
MOST_LINES = 14
QUICK_SEEDS = 3
EXAMPLES = sorted((ROOT / "examples").glob("*.dlm"))
QUICK_EXAMPLES = {"matrices", "softmax"}
LEVELS = [
    pytest.param(
        path,
        level,
        marks=[] if level == 2 and path.stem in QUICK_EXAMPLES else pytest.mark.long,
        id=f"{path.stem}-O{level}",
    )
    for k, path in enumerate(EXAMPLES)
    for level in (2, (0, 1, 3)[k % 3])
]
"""Each example at the usual level of optimization, and at one of the others."""
ON_A_GPU = [
    *["product", "softmax"],
    *[
        pytest.param(name, marks=pytest.mark.long)
        for name in (
            "first",
            "poly",
            "autoencoder",
            "digits_mlp",
            "gcn",
            "lenet",
            "matrices",
            "robust",
            "tumours",
        )
    ],
]
"""Examples that the evaluator of a GPU's threads finishes in seconds."""


def departed(text: str, folder: Path | None, *, seed: int = 0, target: str = "cpu") -> Departed:
    request = CompileRequest("model.dlm", text=text, settings=Settings(target=target))
    call_request = CallRequest("model.dlm", seed=seed)
    return compare_levels(request, call_request, folder=folder, reduce=folder is not None)


@pytest.mark.parametrize(
    "planted",
    every(
        4,
        [
            pytest.param(one, id=one.name, marks=[] if one.name in QUICK else pytest.mark.long)
            for one in (*PLANTED, *MORE)
        ],
    ),
)
def test_a_planted_mistake_is_named_and_reduced(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.plant(monkeypatch)
    found = departed(planted.text, tmp_path, target=planted.target)
    assert found.fault is not None
    assert (found.fault.level, found.fault.pass_name) == (planted.level, planted.pass_name)
    assert planted.op in found.fault.op
    assert 0 < found.reduced.count("\n") <= MOST_LINES


@pytest.mark.parametrize(
    "planted", [one for one in PLANTED if one.name in QUICK], ids=lambda one: one.name
)
def test_without_the_mistake_nothing_is_found(planted: Planted) -> None:
    assert departed(planted.text, None).fault is None


def test_terms_that_cancel_are_no_fault() -> None:
    """Loops add them in another order, and what is left of them is rounding, above all."""
    text = (
        "dlc 1\nexport fn f(x: f32[8, 64]) -> f32[8] {\n  let a = exp(x * 10.0)\n"
        "  return sum(a - a[:, ::-1], axis=1)\n}\n"
    )
    assert departed(text, None).fault is None


@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=[] if k < QUICK_SEEDS else pytest.mark.long) for k in range(500)]
)
def test_random_models_are_right_at_every_level(seed: int) -> None:
    case = random_case(seed)
    text = case.text(case.dtype)
    for entry in entry_points(open_model("random.dlm", text=text).module):
        call_request = CallRequest("random.dlm", entry.sym_name, dims=case.sizes(0), seed=seed)
        request = CompileRequest("random.dlm", text=text)
        try:
            found = compare_levels(request, call_request, folder=None, reduce=False)
        except (CallError, ModelError):
            continue  # a random index that is out of range, or a model refused for its least sizes
        assert found.fault is None, found.fault


@pytest.mark.parametrize("name", ON_A_GPU)
def test_examples_for_a_gpu_are_right_at_every_level(name: str) -> None:
    path = ROOT / f"examples/{name}.dlm"
    settings = Settings(target="cuda:sm_80")
    for entry in entry_points(open_model(path).module):
        request = CompileRequest(str(path), weights="init:0", settings=settings)
        call_request = CallRequest(str(path), entry.sym_name, seed=0)
        assert compare_levels(request, call_request, folder=None, reduce=False).fault is None


@pytest.mark.parametrize(("path", "level"), LEVELS)
def test_examples_are_right_at_every_level(path: Path, level: int) -> None:
    for entry in entry_points(open_model(path).module):
        request = CompileRequest(str(path), weights="init:0", settings=Settings(level=level))
        call_request = CallRequest(str(path), entry.sym_name, seed=0)
        try:
            found = compare_levels(request, call_request, folder=None, reduce=False)
        except CallError:
            continue  # an example whose inputs are not any numbers
        assert found.fault is None, found.fault


def test_the_folder_shows_the_fault_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[0]
    planted.plant(monkeypatch)
    found = departed(planted.text, tmp_path)
    path = str(tmp_path / "reduced.dlir")
    inputs = dict(np.load(tmp_path / "inputs.npz"))
    given = {name: str(tmp_path / "inputs.npz") for name in inputs}
    again = compare_levels(
        CompileRequest(path), CallRequest(path, inputs=given), folder=None, reduce=False
    )
    assert found.fault is not None
    assert again.fault is not None
    assert again.fault.kind == found.fault.kind
