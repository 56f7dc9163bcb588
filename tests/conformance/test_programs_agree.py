"""Whole programs: the evaluator and the machine code of every entry point give the same numbers."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import CallRequest, call
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest, make_model
from dlc.runtime.arrays.tensor import Tensor
from tests.suites import every

FOLDER = Path(__file__).parent / "programs"
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "f16": 2e-3, "bf16": 1e-2}
"""Of the largest magnitude of a result; integers and conditions are equal."""


PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.dlm"))


@pytest.mark.parametrize(
    ("name", "level"),
    every(2, [*every(2, product(PROGRAMS, [2])), *every(8, product(PROGRAMS, [0]))]),
)
def test_machine_code_gives_what_the_evaluator_gives(
    name: str, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    path = str(FOLDER / f"{name}.dlm")
    model, _ = make_model(CompileRequest(path, settings=Settings(level)))
    for entry in model.entry_points:
        request = CallRequest(path, entry, seed=3)
        wanted, _ = evaluate_entry(CompileRequest(path).open(), request)
        found = call(model, request)
        for (_, one), (_, other) in zip(wanted.values, found.values, strict=True):
            assert one.shape == other.shape
            assert agree(one, other), f"{entry}\n{one.values()}\n{other.values()}"


def agree(one: Tensor, other: Tensor) -> bool:
    if one.dtype not in TOLERANCE:
        return one.tolist() == other.tolist()
    x, y = (tensor.values().astype(np.float64) for tensor in (one, other))
    scale = max(float(np.abs(x).max(initial=0)), 1e-6)
    return bool(np.allclose(x, y, rtol=0, atol=TOLERANCE[one.dtype] * scale, equal_nan=True))
