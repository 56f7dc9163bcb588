"""Gradients of whole functions as machine code, of first and second order, against differences.

`programs/` has the functions: each `export fn` is two checks. The texts are in f32, so that the kernels
of networks are what runs; the same functions in f64 are held to 1e-6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from dlc.driver.compile.entries import entry_functions
from dlc.driver.compile.settings import Settings
from dlc.driver.gradcheck.check import Check, Effort, compile_gradients
from dlc.driver.gradcheck.check_values import values_of
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.runtime.model import Model

FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.dlm"))
LEVELS = {"places": 0, "windows": 3}
"""How much is optimised where it is not -O2."""
SECOND = {"a_choice_in_a_loop", "until"}
"""Functions of `control`, a choice and a loop, whose second order is in every run; that takes long."""
EFFORT = Effort(directions=2, samples=6)


def cases() -> Iterator[ParameterSet]:
    """Every function of every text, with each order."""
    for name in NAMES:
        for order in (1, 2):
            for function in functions(name):
                marks = [] if is_quick(name, function, order) else [pytest.mark.long]
                yield pytest.param(name, function, order, marks=marks)


@cache
def functions(name: str) -> list[str]:
    """The functions of a text that are checked."""
    text = (FOLDER / f"{name}.dlm").read_text("utf-8")
    return re.findall(r"export fn (\w+)", text)


def is_quick(name: str, function: str, order: int) -> bool:
    """Whether a derivative of a function is in every run."""
    if order == 2:
        return name == "control" and function in SECOND
    return functions(name).index(function) % 5 == 0


@pytest.mark.parametrize(("name", "function", "order"), list(cases()))
def test_its_gradient_is_that_of_differences(name: str, function: str, order: int) -> None:
    quick = is_quick(name, function, order)
    checks, model = compiled(name, order, LEVELS.get(name, 2), quick)
    check(checks[function], model)


@pytest.mark.long
@pytest.mark.parametrize("name", ["control", "derivatives", "products", "layers"])
@pytest.mark.parametrize("level", [0, 3])
def test_it_is_the_same_at_other_levels(name: str, level: int) -> None:
    checks, model = compiled(name, 1, level)
    for one in checks.values():
        check(one, model)


def check(one: Check, model: Model) -> None:
    """Hold a gradient to the differences, and see that there were some."""
    rows = one.rows(model, EFFORT)
    assert rows
    for row in rows:
        assert row.error <= 1e-6 and row.narrow <= 1e-4, row
        assert row.checked or not row.kinks, row


@cache
def compiled(
    name: str, order: int, level: int, quick: bool | None = None
) -> tuple[dict[str, Check], Model]:
    """The checks of all functions of a text, or the quick ones, or the others, by name, and their model."""
    path = str(FOLDER / f"{name}.dlm")
    opened = CompileRequest(path).open()
    checks: dict[str, Check] = {}
    for function in entry_functions(opened.module):
        if quick is not None and quick != is_quick(name, function.sym_name, order):
            continue
        values = values_of(opened, function, CallRequest(path, function.sym_name, seed=3), None)
        checks[function.sym_name] = Check(opened.module, function, values, order)
    return checks, compile_gradients(opened, list(checks.values()), Settings(level=level))
