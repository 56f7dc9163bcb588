"""Derivatives that can be checked by hand: the classic examples, kinks, and what lets none through."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import dlc
from dlc.runtime.model import Model

Numbers = NDArray[np.float32]

CLASSICS = """\
dlc 1
fn poly(x: f32[..]) = 3 * x ** 2 + 2 * x + 3
fn total(x: f32[..], y: f32[..], z: f32[..]) -> f32 = sum(x * y + z)

export fn polynomial(x: f32[2, 2]) -> (y: f32[2, 2], dy: f32[2, 2]) =
  (y = poly(x), dy = vjp(poly)(x, dy=ones([2, 2])))
export fn by_all(x: f32[3, 4], y: f32[3, 4], z: f32[3, 4]) -> (f32[3, 4], f32[3, 4], f32[3, 4]) =
  grad(total, wrt=(x, y, z))(x, y, z)
"""

KINKS = """\
dlc 1
fn relus(x: f32[5]) -> f32 = sum(relu(x))
fn sizes(x: f32[5]) -> f32 = sum(abs(x))
fn clipped(x: f32[5]) -> f32 = sum(clip(x, -1, 1))
fn largest(x: f32[5]) -> f32 = max(x)
fn smallest(x: f32[5]) -> f32 = min(x)
fn either(x: f32[5]) -> f32 = sum(maximum(x, zeros([5])))
fn pooled(x: f32[5]) -> f32 = sum(max_pool1d(reshape(x, [1, 5, 1]), 2, stride=1))
fn stepped(x: f32[5]) -> f32 = sum(floor(x) + round(x) + sign(x))

export fn of_relu(x: f32[5]) -> f32[5] = grad(relus)(x)
export fn of_abs(x: f32[5]) -> f32[5] = grad(sizes)(x)
export fn of_clip(x: f32[5]) -> f32[5] = grad(clipped)(x)
export fn of_max(x: f32[5]) -> f32[5] = grad(largest)(x)
export fn of_min(x: f32[5]) -> f32[5] = grad(smallest)(x)
export fn of_maximum(x: f32[5]) -> f32[5] = grad(either)(x)
export fn of_max_pool(x: f32[5]) -> f32[5] = grad(pooled)(x)
export fn of_steps(x: f32[5]) -> f32[5] = grad(stepped)(x)
"""

STOPPED = """\
dlc 1
fn weighted(x: f32[3], y: f32[3]) -> f32 = sum(stop_gradient(x * y) * x)
fn walked(xs: f32[4, 3], w: f32[3]) -> f32 =
  sum(scan x in xs with h = w { next h = stop_gradient(h) * x + w })
fn straight(x: f32[3]) -> f32[3] = round(x) with vjp(x, dy) = dy
fn squares(x: f32[3]) -> f32 = sum(straight(x) ** 2)

export fn half(x: f32[3], y: f32[3]) -> (f32[3], f32[3]) = grad(weighted, wrt=(x, y))(x, y)
export fn in_a_loop(xs: f32[4, 3], w: f32[3]) -> f32[3] = grad(walked, wrt=w)(xs, w)
export fn straight_through(x: f32[3]) -> f32[3] = grad(squares)(x)
"""


@cache
def model(text: str) -> Model:
    """A text, compiled once."""
    return dlc.compile(text=text)


def called(text: str, entry: str, *inputs: ArrayLike) -> list[Numbers]:
    """All results of an entry point."""
    found = model(text).entry_points[entry](*[np.asarray(x, np.float32) for x in inputs])
    results = cast("Sequence[Numbers]", found if isinstance(found, tuple) else (found,))
    return [np.asarray(result) for result in results]


def test_the_polynomial_of_the_classic_example_has_its_gradient() -> None:
    y, dy = called(CLASSICS, "polynomial", [[1, 2], [3, 4]])
    assert y.tolist() == [[8, 19], [36, 59]]
    assert dy.tolist() == [[8, 14], [20, 26]]


def test_the_sum_of_x_y_and_z_has_the_gradients_y_x_and_ones() -> None:
    x, y, z = np.random.default_rng(0).standard_normal((3, 3, 4)).astype(np.float32)
    dx, dy, dz = called(CLASSICS, "by_all", x, y, z)
    np.testing.assert_array_equal(dx, y)
    np.testing.assert_array_equal(dy, x)
    np.testing.assert_array_equal(dz, np.ones((3, 4)))


@pytest.mark.parametrize(
    ("entry", "x", "wanted"),
    [
        ("of_relu", [-1, -0.0, 0, 1, 2], [0, 0, 0, 1, 1]),
        ("of_abs", [-1, -0.0, 0, 1, 2], [-1, 0, 0, 1, 1]),
        ("of_clip", [-2, -1, 0, 1, 2], [0, 1, 1, 1, 0]),
        ("of_max", [1, 3, 2, 3, 3], [0, 1, 0, 0, 0]),
        ("of_min", [1, 3, 1, 3, 1], [1, 0, 0, 0, 0]),
        ("of_maximum", [-1, 0, 0, 1, 2], [0, 1, 1, 1, 1]),
        ("of_max_pool", [2, 2, 1, 3, 3], [1, 1, 0, 2, 0]),
        ("of_steps", [0.5, 1, 2, 0, -3], [0, 0, 0, 0, 0]),
    ],
)
def test_kinks_have_the_derivative_that_is_written_down(
    entry: str, x: list[float], wanted: list[float]
) -> None:
    (found,) = called(KINKS, entry, x)
    assert found.tolist() == wanted


def test_nothing_goes_through_what_stops_it() -> None:
    x, y = np.array([1.5, -2, 3], np.float32), np.array([2, 0.5, -1], np.float32)
    dx, dy = called(STOPPED, "half", x, y)
    np.testing.assert_array_equal(dx, x * y)
    np.testing.assert_array_equal(dy, np.zeros(3))
    (dw,) = called(STOPPED, "in_a_loop", np.ones((4, 3)), x)
    np.testing.assert_array_equal(dw, np.ones(3))


def test_a_rule_of_its_own_is_what_counts() -> None:
    (found,) = called(STOPPED, "straight_through", [0.6, 1.4, -2.5])
    assert found.tolist() == [2, 2, -4]
