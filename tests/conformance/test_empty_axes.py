"""Axes without elements: compiled code and evaluator agree on what is there, and on the derivative."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest
from dlc.errors import DlcError
from tests.suites import every

RUNNING = [
    f"{name}(x, axis=1{options})"
    for name in ("cumsum", "cumprod", "cummax", "cummin")
    for options in ("", ", exclusive=true", ", reverse=true", ", exclusive=true, reverse=true")
]
REDUCED = [f"{name}(x, axis=1)" for name in ("max", "min", "sum", "product", "mean", "logsumexp")]
WINDOWS = [
    "max_pool1d(x, 1)", "avg_pool1d(x, 1)", "max_pool1d(x, 1, stride=2)", "conv(x, ones([1, 2, 2]))",
    "conv(x, ones([1, 2, 2]), stride=2)", "conv(x, ones([1, 1, 2]), groups=2)",
    "conv_transpose(x, ones([3, 2, 2]))", "conv_transpose(x, ones([3, 2, 2]), stride=2)",
    "max_pool1d(x, 2, padding=1)", "conv(x, ones([2, 1, 2]), padding=1, groups=2)",
]  # fmt: skip
EMPTY = np.zeros((1, 0, 2), np.float32)


def text_of(result: str, size: str) -> str:
    """The sum of an expression of x, and its derivative."""
    x = f"x: f32[1, {size}, 2]"
    return (
        f"dlc 1\ndim N = 0..40\nfn g({x}) -> f32 = sum({result})\n"
        f"export fn f({x}) -> (f32, f32[1, {size}, 2]) = (g(x), grad(g)(x))"
    )


def compiled(text: str) -> list[NDArray[np.float32]]:
    """What compiled code makes of an empty x."""
    results = dlc.compile(text=text)["f"](EMPTY)
    assert isinstance(results, tuple)
    return [np.asarray(result, np.float32) for result in cast("tuple[object, ...]", results)]


def evaluated(text: str) -> list[NDArray[np.float32]]:
    """What the evaluator makes of an empty x."""
    request = CallRequest(
        "model.dlm", inputs={"x": "zeros"}, dims={"N": 0} if "[1, N" in text else {}
    )
    results, _ = evaluate_entry(CompileRequest("model.dlm", text=text).open(), request)
    return [np.asarray(value.numpy(), np.float32) for _, value in results.values]


@pytest.mark.parametrize(
    ("result", "size"), every(6, itertools.product([*RUNNING, *REDUCED, *WINDOWS], ["N", "0"]))
)
def test_an_empty_axis_has_an_empty_derivative(result: str, size: str) -> None:
    text = text_of(result, size)
    value, derivative = compiled(text)
    assert derivative.shape == EMPTY.shape
    np.testing.assert_array_equal(evaluated(text)[0], value)
    assert evaluated(text)[1].shape == EMPTY.shape


@pytest.mark.parametrize("size", ["N", "0"])
@pytest.mark.parametrize(
    "result",
    ["max_pool1d(x, 2)", "avg_pool1d(x, 3, padding=1)", "conv(x, ones([3, 2, 2]), padding=1)"],
)
def test_a_window_of_several_elements_does_not_fit_into_an_empty_axis(
    result: str, size: str
) -> None:
    text = text_of(result, size)
    for attempt in (compiled, evaluated):
        with pytest.raises(DlcError) as caught:
            attempt(text)
        assert caught.value.diagnostics[0].code == ("D0804" if size == "N" else "D0312")


@pytest.mark.parametrize("pool", ["max_pool1d", "avg_pool1d"])
def test_a_pool_of_no_pictures_is_evaluated_as_compiled(pool: str) -> None:
    text = text_of(f"{pool}(permute(x, [1, 0, 2]), 1)", "N")
    assert evaluated(text)[0] == compiled(text)[0] == 0
