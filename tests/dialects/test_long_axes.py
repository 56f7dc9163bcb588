"""Axes whose places or length exceed i32: refused before anything is computed, or counted in i64."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.errors import CallError, ModelError

SIZE = 2**31
"""One more than an i32 can be."""
HEAD = "export fn f(y: f32) -> "

PLACES = {
    "i32 = argmax(full([N], y))": "axis 0 of f32[N] is too long",
    "i32 = argmin(full([N], y))": "axis 0 of f32[N] is too long",
    "i32[2] = top_k(full([N], y), 2).places": "axis 0 of f32[N] is too long",
    "i32[N] = argsort(full([N], y))": "axis 0 of i32[N] is too long",
    "i32[N] = arange(N)": "axis 0 of i32[N] is too long",
    "i32[2, N] = iota([2, N], 1)": "axis 1 of i32[2, N] is too long",
    "f32[1, N] = eye(1, N)": "axis 1 of i32[1, N] is too long",
    "i32 = categorical(full([N], y))": "axis 0 of f32[N] is too long",
    "i32 = searchsorted(full([N], y), 0.5)": "the size N is larger than an i32 can be",
    "i32 = N + 1": "the size N + 1 is larger than an i32 can be",
    "i32[2] = full([2], N)": "the size N is larger than an i32 can be",
    "i32 = if y > 0 then argmax(full([N], y)) else 0": "axis 0 of f32[N] is too long",
}


@pytest.mark.parametrize("result", PLACES)
def test_a_call_with_an_axis_too_long_for_i32_is_refused(result: str) -> None:
    model = dlc.compile(text=f"dlc 1\ndim N\n{HEAD}{result}")
    with pytest.raises(CallError) as caught:
        model["f"](1.0, N=SIZE)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "D0804"
    assert PLACES[result] in diagnostic.message


@pytest.mark.parametrize("result", PLACES)
def test_an_axis_that_is_known_to_be_too_long_is_not_compiled(result: str) -> None:
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=f"dlc 1\nconst N = {SIZE}\n{HEAD}{result}")
    assert caught.value.diagnostics[0].code in ("D0308", "D0323")


def test_the_longest_axis_of_places_is_the_largest_i32() -> None:
    shape = f"{SIZE - 1}"
    text = f"dlc 1\nexport fn f(x: f32[{shape}]) -> i32 = argmax(x)"
    assert "array.argmax" in graph(text)


@pytest.mark.parametrize("size", ["N", str(SIZE)])
def test_the_derivative_of_a_maximum_counts_a_long_axis_in_i64(size: str) -> None:
    text = f"dlc 1\ndim N\nfn m(x: f32[{size}]) -> f32 = max(x)\n"
    shown = graph(f"{text}export fn f(x: f32[{size}]) -> f32[{size}] = grad(m)(x)")
    assert "dtype = i64" in shown
    assert "i32" not in shown


def test_other_dtypes_wrap_as_they_say() -> None:
    model = dlc.compile(text="dlc 1\ndim N\nexport fn f(x: f32[N]) -> i8[N] = arange(N, dtype=i8)")
    counted = np.asarray(model["f"](np.zeros(130, np.float32)))
    assert counted[-3:].tolist() == [127, -128, -127]


def test_a_range_whose_numbers_are_no_i32_is_refused() -> None:
    loop = f"scan i in {SIZE - 2}..{SIZE + 1} with s = 0 {{ next s = i }}"
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=f"dlc 1\nexport fn f(x: f32) -> i32 = {loop}")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "D0323"
    assert f"the range goes to {SIZE}" in diagnostic.message


def test_a_product_that_is_too_long_for_blas_is_generated() -> None:
    text = f"dlc 1\nexport fn f(x: f64[8, {SIZE}], y: f64[{SIZE}, 8]) -> f64[8, 8] = x @ y"
    assert "#kernel.pack_inline<" in show_stage(
        CompileRequest("m.dlm", text=text), Shown("kernel", after="pack")
    )


def graph(text: str) -> str:
    """The text of the graph level."""
    return show_stage(CompileRequest("m.dlm", text=text), Shown("graph"))
