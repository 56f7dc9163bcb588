"""Loads that an empty array cannot serve are found by how their indices are kept inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlc.dialects import kernel
from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.lowering.kernel_code.empty_arrays import extents_perhaps_zero

Found = Callable[[str, str], set[str]]


@pytest.fixture
def found() -> Found:
    """The extents that may be 0 of all loads of x, in a program with a named size."""

    def found(bounds: str, result: str) -> set[str]:
        text = f"dlc 1\ndim N = {bounds}\nexport fn f(x: f32[N, 4]) -> {result}\n"
        opened = open_model("m.dlm", text=text)
        lower(opened, Settings(1), "kernel")
        loads = [op for op in opened.module.walk() if isinstance(op, kernel.Load)]
        assert loads
        return {str(extent) for load in loads for extent in extents_perhaps_zero(load)}

    return found


@pytest.mark.parametrize(
    ("bounds", "result", "expected"),
    [
        ("0..", "f32[_, 4] = pad(x, [[1, 1], [0, 0]])", "N"),
        ("1..", "f32[_, 4] = pad(x, [[1, 1], [0, 0]])", ""),
        ("0..", "f32[N, 6] = pad(x, [[0, 0], [1, 1]])", ""),
        ("0..", "f32[N, 4] = 2 * exp(x)", ""),
        ("2..", "f32[_, 4] = exp(x[1:, :])", ""),
    ],
)
def test_only_loads_of_what_may_be_empty_need_a_branch(
    found: Found, bounds: str, result: str, expected: str
) -> None:
    assert found(bounds, result) == set(expected.split())
