"""`check_gradients`: right gradients pass, and a wrong one has an error that says how wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.driver.gradcheck.check import check_gradients
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from tests.suites import every

STOPPED = {
    "a product": "export fn f(x: f32[4], y: f32[4]) -> f32 = sum(stop_gradient(x * y) * sin(x))",
    "every round of a scan": "export fn f(xs: f32[4, 3], w: f32[3]) -> f32 =\n"
    "  sum(scan x in xs with h = w { next h = stop_gradient(h) * x + w * h * h })",
    "a branch": "export fn f(x: f32[4]) -> f32 =\n"
    "  if sum(x) > 0 then sum(stop_gradient(exp(x)) * x) else sum(x * x)",
    "a while": "export fn f(x: f32[4]) -> f32 =\n"
    "  sum(while sum(y * y) > 0.1 with y = x limit 9 { next y = stop_gradient(y) * 0.5 + y * 0.1 })",
    "a function with a rule": "fn straight(x: f32[4]) -> f32[4] =\n"
    "  x + stop_gradient(round(x) - x) with vjp(x, dy) = dy\n"
    "export fn f(x: f32[4]) -> f32 = sum(straight(3 * x) ** 2)",
    "all of a function with a rule": "fn cube(x: f32[4]) = x ** 3 with vjp(x, dy) = dy * 3 * x ** 2\n"
    "export fn f(x: f32[4]) -> f32 = sum(stop_gradient(cube(x)) * cube(x))",
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file `model.dlm` in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model.dlm"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("where", every(2, STOPPED))
def test_what_stop_gradient_gives_is_a_constant(write: Path, where: str, order: int) -> None:
    write.write_text(f"dlc 1\n{STOPPED[where]}\n")
    rows = check_gradients(
        CompileRequest("model.dlm"), CallRequest("model.dlm", seed=2), order=order
    ).rows
    assert rows
    assert all(row.is_right and row.checked > 6 for row in rows), rows


def test_a_rule_is_held_to_its_function_where_the_gradient_is_not_stopped(write: Path) -> None:
    write.write_text(
        "dlc 1\nfn halved(x: f32[4]) -> f32[4] = x * stop_gradient(x) with vjp(x, dy) = dy * 2 * x\n"
        "export fn f(x: f32[4]) -> f32 = sum(halved(x))\n"
    )
    (row,) = check_gradients(CompileRequest("model.dlm"), CallRequest("model.dlm", seed=0)).rows
    assert row.error == pytest.approx(0.5, abs=0.2)


def test_kinks_are_left_out_and_counted(write: Path) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[6]) -> f32[6] = relu(x - 0.5)\n")
    inputs = {"x": "[0.5, 0.5, 0.5, 1.5, -1.5, 0.5]"}
    request = CallRequest("model.dlm", None, inputs)
    (row,) = check_gradients(CompileRequest("model.dlm"), request, full=True).rows
    assert row.is_right
    assert (row.kinks, row.checked) == (8 + 4, 2)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_functions_of_every_float_are_checked_in_f64(write: Path, dtype: str) -> None:
    write.write_text(f"dlc 1\nexport fn f(x: {dtype}[5]) -> {dtype}[5] = exp(sin(x)) / 2\n")
    request = CallRequest("model.dlm", seed=0)
    (row,) = check_gradients(CompileRequest("model.dlm"), request).rows
    assert row.error < 1e-8


def test_a_kink_that_is_near_is_stepped_around(write: Path) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[40]) -> f32 = sum(abs(x) * sin(x))\n")
    values = np.linspace(-1e-4, 1e-4, 40)
    inputs = {"x": str(values.tolist())}
    (row,) = check_gradients(
        CompileRequest("model.dlm"), CallRequest("model.dlm", None, inputs)
    ).rows
    assert row.is_right and row.checked > 32


def test_what_the_function_does_not_depend_on_has_no_row(write: Path) -> None:
    write.write_text("dlc 1\nexport fn f(x: f32[4], y: f32[4]) -> f32[4] = x * f32(size(y))\n")
    found = check_gradients(CompileRequest("model.dlm"), CallRequest("model.dlm", seed=0))
    assert [row.name for row in found.rows] == ["x"]


def test_what_is_drawn_is_the_same_in_f64(write: Path) -> None:
    write.write_text(
        "dlc 1\nexport fn f(x: f32[64]) -> f32[64] = where(bernoulli(sigmoid(x)), x, x * x)\n"
    )
    (row,) = check_gradients(CompileRequest("model.dlm"), CallRequest("model.dlm", seed=0)).rows
    assert row.is_right
