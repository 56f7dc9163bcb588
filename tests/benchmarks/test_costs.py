"""`python -m benchmarks costs`: every row of the table is measured, or is said to be chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import costs
from dlc.driver.tune.measure import Effort, MeasuredRow, measured
from dlc.driver.tune.probes import PROBES
from dlc.target.cpu_costs import USUAL_COSTS
from dlc.target.table import rows
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

CHOSEN = {"other_element", "tile"}
FITTED = {
    "cached_bytes", "kernel_operation", "kernel_start", "kernel_step", "near_bytes", "strided_element",
}  # fmt: skip
"""Rows of whole kernels, which `benchmarks costs --networks` compares with the kernels of networks."""


@pytest.fixture
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as gpu:
        yield gpu


def test_every_row_is_measured_or_chosen() -> None:
    assert {row.name for row in rows(USUAL_COSTS)} == {*PROBES, "barrier"} | CHOSEN | FITTED


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
