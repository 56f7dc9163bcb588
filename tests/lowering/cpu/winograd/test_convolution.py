"""Convolutions in Winograd's form: every size of tiles and panels, epilogues, rounding errors, threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.kernel.winograd import ERROR
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, F64, TensorType
from dlc.target import Target
from tests.lowering.everywhere import (
    Program,
    called,
    check,
    function_of,
    model_of,
    random_inputs,
)
from tests.suites import each_value, every
from tests.targets import AVX2, AVX512

PADDINGS = [pytest.param((1, 1)), pytest.param((0, 0)), pytest.param((2, 0))]
"""Before and behind each axis of a picture."""
RTOL = 3e-5
"""Of the largest element: results are compared with direct sums."""


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def convolution(emit: Builder, x: Value, w: Value, low: int = 1, high: int = 1) -> Value:
    pads = ((low, high), (low, high))
    return emit(array.Convolution(x, w, (1, 1), pads, (1, 1), (1, 1), 1, "nhwc"))


def layer(low: int, high: int) -> Program:
    """A convolution with a bias, something added, and what is negative cut off."""

    def network(emit: Builder, x: Value, w: Value, b: Value, residual: Value) -> Sequence[Value]:
        y = convolution(emit, x, w, low, high)
        y = emit(array.Add(y, emit(array.Broadcast(b, tensor_type(y).shape, (3,)))))
        y = emit(array.Add(y, residual))
        return (emit(array.Maximum(y, array.constant_like(emit, 0, y))),)

    return network


def check_layer(
    picture: tuple[int, int, int, int], outputs: int, pads: tuple[int, int], target: Target
) -> Context:
    batch, height, width, channels = picture
    larger = sum(pads) - 2
    types = (
        f32(*picture),
        f32(3, 3, channels, outputs),
        f32(outputs),
        f32(batch, height + larger, width + larger, outputs),
    )
    return check(layer(*pads), *types, conv="winograd", rtol=RTOL, target=target)


def forms(context: Context) -> set[str]:
    """The forms that were chosen."""
    return {each.what.partition(":")[0] for each in context.log if "Winograd" in each.what}


@pytest.mark.parametrize(
    ("height", "width", "pads", "target"),
    each_value([3, 4, 18, 21], [5, 22, 28], PADDINGS, [AVX2, AVX512]),
)
def test_a_layer_of_any_height_and_width(
    height: int, width: int, pads: tuple[int, int], target: Target
) -> None:
    check_layer((2, height, width, 5), 7, pads, target)


@pytest.mark.parametrize(
    ("channels", "outputs", "target"),
    every(13, itertools.product([1, 8, 16, 37], [16, 24, 65, 130], [AVX2, AVX512])),
)
def test_a_layer_of_any_number_of_channels(channels: int, outputs: int, target: Target) -> None:
    check_layer((1, 7, 9, channels), outputs, (1, 1), target)


def test_both_forms_are_used() -> None:
    small = check_layer((1, 4, 4, 3), 4, (1, 1), AVX2)
    large = check_layer((1, 32, 32, 3), 4, (1, 1), AVX2)
    assert forms(small) == {"Winograd form F(2 x 2, 3 x 3)"}
    assert forms(large) == {"Winograd form F(4 x 4, 3 x 3)"}


def test_an_epilogue_that_is_too_long_for_registers() -> None:
    def deep(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        y = convolution(emit, x, w)
        for _ in range(20):
            y = emit(array.Add(emit(array.Multiply(y, y)), array.constant_like(emit, -0.5, y)))
            y = emit(array.Minimum(y, array.constant_like(emit, 1, y)))
        return (y,)

    check(deep, f32(1, 9, 8, 5), f32(3, 3, 5, 20), conv="winograd", rtol=1e-3)


def test_an_epilogue_with_wider_numbers_than_the_sums() -> None:
    def wider(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        y = emit(array.Cast(convolution(emit, x, w), F64))
        y = emit(array.Multiply(y, array.constant_like(emit, 1.0 / 3, y)))
        return (emit(array.Cast(y, F32)),)

    check(wider, f32(1, 9, 8, 5), f32(3, 3, 5, 20), conv="winograd", rtol=RTOL)


def test_pictures_whose_sizes_only_a_call_knows() -> None:
    b, h, w = (symbol(name) for name in "BHW")

    def network(emit: Builder, x: Value, weights: Value) -> Sequence[Value]:
        return (convolution(emit, x, weights),)

    dims: dict[str, tuple[int, int | None]] = {"B": (0, None), "H": (1, None), "W": (1, None)}
    sizes = [{"B": 1, "H": 1, "W": 1}, {"B": 0, "H": 4, "W": 4}, {"B": 3, "H": 17, "W": 30}]
    types = f32(b, h, w, 5), f32(3, 3, 5, 20)
    check(network, *types, conv="winograd", dims=dims, at=sizes, rtol=RTOL)


def test_a_size_that_only_a_call_knows_is_the_batch_where_there_is_one() -> None:
    def network(emit: Builder, x: Value, weights: Value) -> Sequence[Value]:
        return (convolution(emit, x, weights),)

    types = f32(symbol("B"), 8, 8, 64), f32(3, 3, 64, 64)
    dims: dict[str, tuple[int, int | None]] = {"B": (1, None)}
    chosen: list[bool] = []
    for batch in (None, 2, 32):
        context = Context(options=Options(batch=batch))
        module, _ = function_of(network, types, dims)
        Manager(context).run(module, pipeline("graph", "loop", 2))
        chosen.append("Winograd form F(4 x 4, 3 x 3)" in forms(context))
    assert chosen == [True, False, True]


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    types = [f32(2, 30, 31, 16), f32(3, 3, 16, 130), f32(130), f32(2, 30, 31, 130)]
    inputs = random_inputs(types, {})
    options = Options(conv="winograd")
    one, two = (model_of(layer(1, 1), types, options, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(called(one, inputs)[0], called(two, inputs)[0], strict=True)


STORED = """dlc 1
module Layer {{
  param w: f32[3, 3, {channels}, 16] = zeros()
  export fn f(x: f32[2, {size}, {size}, {channels}]) -> f32[2, {size}, {size}, 16] = conv(x, w, padding=1)
}}
"""


@pytest.mark.parametrize(
    ("size", "channels", "m", "positive"),
    each_value([(6, 16, 2), (6, 128, 2), (32, 16, 4), (32, 128, 4)], [False, True]),
)
def test_rounding_errors_are_within_what_is_stated(
    size: int, channels: int, m: int, positive: bool
) -> None:
    """Against float64, with pictures of both signs, and as they are after a relu."""
    random = np.random.default_rng(0)
    w = random.standard_normal((3, 3, channels, 16), np.float32)
    x = random.standard_normal((2, size, size, channels), np.float32)
    if positive:
        x = np.maximum(x, 0)
    exact = _exact(x, w)
    errors: dict[str, float] = {}
    for conv in ("direct", "winograd"):
        text = STORED.format(channels=channels, size=size)
        with dlc.compile(text=text, weights={"w": w}, conv=conv, threads=1) as model:
            errors[conv] = float(np.sqrt(((np.asarray(model.f(x)) - exact) ** 2).mean()))
    assert errors["winograd"] != errors["direct"]
    assert errors["winograd"] <= ERROR[m] * errors["direct"]


def _exact(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float64]:
    """The convolution with a padding of 1, in float64."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    _, height, width, _ = x.shape
    taps = [(h, v) for h in range(3) for v in range(3)]
    return np.sum([padded[:, h : h + height, v : v + width] @ w[h, v] for h, v in taps], axis=0)


def test_the_gradient_of_a_picture_takes_the_form_with_the_reversed_kernel() -> None:
    text = """dlc 1
fn loss(x: f32[2, 9, 8, 5], w: f32[3, 3, 5, 20]) -> f32 = sum(conv(x, w, padding=1) ** 3)
export fn f(x: f32[2, 9, 8, 5], w: f32[3, 3, 5, 20]) -> f32[2, 9, 8, 5] = grad(loss, wrt=x)(x, w)
"""
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((2, 9, 8, 5), (3, 3, 5, 20)))
    direct, form = (
        np.asarray(dlc.compile(text=text, conv=conv).f(x, w)) for conv in ("direct", "winograd")
    )
    assert not np.array_equal(direct, form)
    np.testing.assert_allclose(form, direct, rtol=0, atol=RTOL * float(np.abs(direct).max()))


@pytest.mark.parametrize(("limit", "level"), [("limit exact", 2), ("", 1)])
def test_where_no_bit_may_change_the_sum_is_direct(limit: str, level: int) -> None:
    text = STORED.format(channels=32, size=16).replace("dlc 1\n", f"dlc 1\n{limit}\n")
    random = np.random.default_rng(0)
    w = random.standard_normal((3, 3, 32, 16), np.float32)
    x = random.standard_normal((2, 16, 16, 32), np.float32)
    direct, auto = (
        np.asarray(dlc.compile(text=text, weights={"w": w}, level=level, conv=conv).f(x))
        for conv in ("direct", "auto")
    )
    np.testing.assert_array_equal(direct, auto)
