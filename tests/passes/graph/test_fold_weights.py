"""What is computed from weights alone: not what a call's sizes have a part in."""

from __future__ import annotations

import numpy as np
import pytest

import dlc

X = np.arange(1, 5, dtype=np.float32)
W = np.arange(10, dtype=np.float32)

RESULTS = {
    "sum(x) * (w / N)[:3]": 10 * W[:3] / 4,
    "sum(x) * w[N:N + 3]": 10 * W[4:7],
    "sum(x) * pad(w, [(N, 0)])[4:7]": 10 * W[:3],
    "sum(x) * (w + f32(N))[:3]": 10 * (W[:3] + 4),
    "sum(x) * ([1.0, 2.0, 3.0] / N)": 10 * np.array([1, 2, 3]) / 4,
}


@pytest.mark.parametrize("result", RESULTS)
def test_a_weight_and_a_size_of_the_call_meet_in_the_call(result: str) -> None:
    text = (
        "dlc 1\ndim N = 1..7\nmodule M() {\n  param w: f32[10] = zeros()\n"
        f"  export fn f(x: f32[N]) -> f32[3] = {result}\n}}\n"
    )
    model = dlc.compile(text=text, weights={"w": W})
    np.testing.assert_allclose(np.asarray(model["f"](X)), RESULTS[result], rtol=1e-6)


def test_a_picture_of_a_named_size_has_a_derivative_when_it_is_resized() -> None:
    text = (
        "dlc 1\ndim N = 1..40\nfn g(x: f32[1, N, 2]) -> f32 = sum(resize(x, [4]))\n"
        "export fn f(x: f32[1, N, 2]) -> f32[1, N, 2] = grad(g)(x)"
    )
    found = np.asarray(dlc.compile(text=text)["f"](np.ones((1, 2, 2), np.float32)))
    np.testing.assert_array_equal(found, np.full((1, 2, 2), 2))


TEXT = """dlc 1
dim T = 1..9
export fn f(x: f32[T]) -> f32[3] = f32([1, 2, 5] * size(x))
export fn g(x: f32[T], y: f32[3]) -> f32[3] = y + sqrt(f32([4, 9, 16]) * f32(size(x)))
"""


@pytest.mark.parametrize("level", range(4))
def test_constants_that_meet_a_size_are_computed_in_each_call(level: int) -> None:
    model = dlc.compile(text=TEXT, level=level)
    for size in (1, 4):
        x = np.ones(size, np.float32)
        np.testing.assert_array_equal(model.f(x), np.array([1, 2, 5], np.float32) * size)
        wanted = 1 + np.sqrt(np.array([4, 9, 16], np.float32) * size)
        found = np.asarray(model.g(x, np.ones(3, np.float32)))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    model.close()
