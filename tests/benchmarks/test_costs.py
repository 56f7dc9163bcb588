"""`python -m benchmarks costs`: every row of the table is measured, or is said to be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import costs
from benchmarks.cost_fit import FITTED, error, fitted
from benchmarks.kernel_estimates import Found
from dlc.dialects import kernel
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.tune.measure import Effort, MeasuredRow, measured
from dlc.driver.tune.probes import PROBES
from dlc.frontend.elaborate import elaborate
from dlc.ir.passes import Context, Manager
from dlc.target.cpu_costs import USUAL_COSTS
from dlc.target.estimates import picoseconds
from dlc.target.table import rows
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

CHOSEN = {"other_element", "tile"}
CACHES = {"cached_bytes", "near_bytes"}
"""Sizes of caches, which the model assumes."""


@pytest.fixture
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as gpu:
        yield gpu


def test_every_row_is_measured_or_chosen() -> None:
    known = {*PROBES, *FITTED, "barrier"} | CHOSEN | CACHES
    assert {row.name for row in rows(USUAL_COSTS)} == known


def test_a_slower_machine_has_a_ratio_above_1() -> None:
    row = next(row for row in rows(USUAL_COSTS) if row.name == "product")
    slower = str(MeasuredRow(row, 3.0 * row.value))
    assert slower.split()[:4] == ["product", "12", "36.0", "3.00"]
    assert str(MeasuredRow(row, None)).split()[2] == "-"


def test_rows_are_measured_here() -> None:
    now = measured(["product", "scanned_element", "tile"], Effort(1, 0.001))
    assert now.keys() == {"product", "scanned_element"}
    assert all(0 < picoseconds < 1e6 for picoseconds in now.values())


def test_rows_of_a_gpu_are_measured(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "TRANSFERRED", 4096)
    now = costs.measured_on_gpu(["launch", "transfer", "memory_byte", "scanned_element"])
    assert now.keys() == {"launch", "transfer", "memory_byte"}
    assert min(now["launch"], now["memory_byte"]) > 0


def test_a_row_is_fitted_to_kernels() -> None:
    sizes = {"N": 4096}
    text = "dlc 1\ndim N = 1..8192\nexport fn f(x: f32[N, 64]) -> f32[N, 64] = exp(exp(x))\n"
    module = elaborate("model.dlm", text=text).module
    Manager(Context()).run(module, pipeline("graph", "kernel", 2))
    (op,) = [op for op in module.walk() if isinstance(op, kernel.Generic)]
    twice = replace(USUAL_COSTS, kernel_operation=2 * USUAL_COSTS.kernel_operation)
    wrong = Found("net", "generic", "", picoseconds(op, sizes, twice) / 1e6, op, sizes, USUAL_COSTS)
    found = fitted([wrong], USUAL_COSTS, ["kernel_operation"])
    assert error([wrong], USUAL_COSTS) > 0.5
    assert error([wrong], found) < 0.03
