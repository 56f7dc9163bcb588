"""Gradients of kernels in Winograd's form: any size of tiles and panels, parts, rounding, threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import array
from dlc.dialects.kernel.winograd_gradient import FEWEST_PIXELS, GRADIENT_ERROR, SHORT_ERROR
from dlc.driver.compile.compile import lower
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
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


def gradient(low: int = 1, high: int = 1) -> Program:
    """The gradient of a kernel, as the derivative of a convolution writes it."""

    def network(emit: Builder, x: Value, dy: Value) -> Sequence[Value]:
        picture, window = (
            emit(array.Transpose(value, axes))
            for value, axes in ((x, (3, 1, 2, 0)), (dy, (1, 2, 0, 3)))
        )
        pads, ones = ((low, high), (low, high)), (1, 1)
        found = emit(array.Convolution(picture, window, ones, pads, ones, ones, 1, "nhwc"))
        return (emit(array.Transpose(found, (1, 2, 0, 3))),)

    return network


def check_gradient(
    picture: tuple[int, int, int, int], outputs: int, pads: tuple[int, int], target: Target
) -> Context:
    batch, height, width, _ = picture
    larger = sum(pads) - 2
    cotangent = f32(batch, height + larger, width + larger, outputs)
    return check(
        gradient(*pads), f32(*picture), cotangent, conv="winograd", rtol=RTOL, target=target
    )


def forms(context: Context) -> set[str]:
    """The forms that were chosen."""
    return {each.what.partition(":")[0] for each in context.log if "Winograd" in each.what}


@pytest.mark.parametrize(
    ("height", "width", "pads", "target"),
    each_value([3, 4, 18, 21], [5, 22, 28], PADDINGS, [AVX2, AVX512]),
)
def test_pictures_of_any_height_and_width(
    height: int, width: int, pads: tuple[int, int], target: Target
) -> None:
    check_gradient((2, height, width, 5), 7, pads, target)


@pytest.mark.parametrize(
    ("channels", "outputs", "target"),
    every(13, itertools.product([1, 8, 37, 140], [16, 24, 65, 130], [AVX2, AVX512])),
)
def test_any_number_of_channels_on_both_sides(channels: int, outputs: int, target: Target) -> None:
    check_gradient((1, 7, 9, channels), outputs, (1, 1), target)


def test_both_sizes_of_tiles_are_used() -> None:
    small = check_gradient((1, 2, 2, 16), 16, (1, 1), AVX2)
    large = check_gradient((1, 32, 32, 16), 16, (1, 1), AVX2)
    assert forms(small) == {"Winograd form F(3 x 3, 2 x 2) of the gradient"}
    assert forms(large) == {"Winograd form F(3 x 3, 4 x 4) of the gradient"}


def test_pictures_whose_sizes_only_a_call_knows() -> None:
    b, h, w = (symbol(name) for name in "BHW")
    dims: dict[str, tuple[int, int | None]] = {"B": (0, None), "H": (1, None), "W": (1, None)}
    sizes = [{"B": 1, "H": 1, "W": 1}, {"B": 0, "H": 4, "W": 4}, {"B": 3, "H": 17, "W": 30}]
    types = f32(b, h, w, 5), f32(b, h, w, 20)
    found = check(gradient(), *types, conv="winograd", dims=dims, at=sizes, rtol=RTOL)
    assert forms(found)


def many_tiles(batch: Size) -> tuple[TensorType, TensorType]:
    """Pictures and cotangents whose sums are divided into parts."""
    return f32(batch, 32, 32, 32), f32(batch, 32, 32, 32)


def test_long_sums_are_divided_into_parts_that_may_be_empty() -> None:
    dims: dict[str, tuple[int, int | None]] = {"B": (0, None)}
    sizes = [{"B": 0}, {"B": 1}]
    context = check(gradient(), *many_tiles(symbol("B")), dims=dims, at=sizes, rtol=RTOL)
    (parts,) = [each.figures["parts"] for each in context.log if "Winograd" in each.what]
    assert parts == 3


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    types = many_tiles(8)
    inputs = random_inputs(types, {})
    one, two = (model_of(gradient(), types, Options(), threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(called(one, inputs)[0], called(two, inputs)[0], strict=True)


TEXT = """dlc 1
fn y(x: {x}, w: {w}) -> {dy} = conv(x, w, padding=1{dims})
export fn f(x: {x}, w: {w}, dy: {dy}) -> {w} = vjp(y, wrt=w)(x, w, dy=dy)
"""


def text_of(batch: int, size: int, channels: int, outputs: int, *, last: bool = True) -> str:
    """A model of one gradient, of pictures with channels last or first."""
    if last:
        shapes = (
            (batch, size, size, channels),
            (3, 3, channels, outputs),
            (batch, size, size, outputs),
        )
    else:
        shapes = (
            (batch, channels, size, size),
            (outputs, channels, 3, 3),
            (batch, outputs, size, size),
        )
    x, w, dy = (f"f32[{', '.join(map(str, shape))}]" for shape in shapes)
    return TEXT.format(x=x, w=w, dy=dy, dims="" if last else ', dims="nchw"')


@pytest.mark.parametrize(
    ("batch", "size", "channels", "m", "positive"),
    every(
        5,
        itertools.product(
            [
                *((3, 6, 16, 2), (24, 2, 64, 2), (2, 7, 16, 4), (4, 8, 64, 4), (2, 20, 16, 4)),
                *((1, 2, 64, 2), (2, 2, 16, 2), (1, 4, 16, 2)),
                *((1, 7, 16, 4), (1, 8, 32, 4), (3, 3, 16, 4), (3, 4, 4, 4), (2, 4, 4, 4)),
            ],
            [False, True],
        ),
    ),
)
def test_rounding_errors_are_within_what_is_stated(
    batch: int, size: int, channels: int, m: int, positive: bool
) -> None:
    """Against float64, with pictures of both signs, and as they are after a relu."""
    types = [f32(batch, size, size, channels)] * 2
    x, dy = (each.astype(np.float32) for each in random_inputs(types, {}))
    if positive:
        x = np.maximum(x, 0)
    exact, errors = _exact(x, dy), dict[str, float]()
    for conv in ("direct", "winograd"):
        (found,) = called(model_of(gradient(), types, Options(conv=conv)), [x, dy])
        errors[conv] = float(np.sqrt(((found.astype(np.float64) - exact) ** 2).mean()))
    context = Context(options=Options(conv="winograd"))
    Manager(context).run(function_of(gradient(), types, {})[0], pipeline("graph", "loop", 2))
    assert forms(context) == {f"Winograd form F(3 x 3, {m} x {m}) of the gradient"}
    assert errors["winograd"] != errors["direct"]
    stated = GRADIENT_ERROR if batch * size**2 >= FEWEST_PIXELS else SHORT_ERROR
    assert errors["winograd"] <= stated[m] * errors["direct"]


@pytest.mark.parametrize(("least", "level", "m"), [(1, 2, 2), (2, 2, 4), (1, 3, 4)])
def test_no_call_within_the_bounds_has_a_larger_error_than_the_level_allows(
    least: int, level: int, m: int
) -> None:
    """Of pictures of 7 x 7 pixels one is too few for the form with larger tiles, and two are enough."""
    text = text_of(0, 7, 64, 64).replace("f32[0,", "f32[B,")
    text = text.replace("dlc 1\n", f"dlc 1\ndim B = {least}..64\n")
    job = lower(open_model("gradient.dlm", text=text), Settings(level), "plan")
    assert forms(job.model.context) == {f"Winograd form F(3 x 3, {m} x {m}) of the gradient"}


def _exact(x: NDArray[np.float32], dy: NDArray[np.float32]) -> NDArray[np.float64]:
    """The gradient with a padding of 1, in float64."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    _, height, width, channels = x.shape
    rows = dy.astype(np.float64).reshape(-1, dy.shape[-1])
    windows = [
        padded[:, h : h + height, v : v + width].reshape(-1, channels).T @ rows
        for h in range(3)
        for v in range(3)
    ]
    return np.reshape(windows, (3, 3, channels, dy.shape[-1]))


def test_pictures_with_the_channels_first_take_the_form_too() -> None:
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((2, 16, 9, 9), np.float32) for _ in range(2))
    w = np.zeros((16, 16, 3, 3), np.float32)
    text = text_of(2, 9, 16, 16, last=False)
    direct, form = (
        np.asarray(dlc.compile(text=text, conv=conv).f(x, w, dy)) for conv in ("direct", "winograd")
    )
    assert not np.array_equal(direct, form)
    np.testing.assert_allclose(form, direct, rtol=0, atol=RTOL * float(np.abs(direct).max()))


@pytest.mark.parametrize(("limit", "level"), [("limit exact", 2), ("", 1)])
def test_where_no_bit_may_change_the_sum_is_direct(limit: str, level: int) -> None:
    text = text_of(2, 16, 32, 32).replace("dlc 1\n", f"dlc 1\n{limit}\n")
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((2, 16, 16, 32), np.float32) for _ in range(2))
    w = np.zeros((3, 3, 32, 32), np.float32)
    direct, auto = (
        np.asarray(dlc.compile(text=text, level=level, conv=conv).f(x, w, dy))
        for conv in ("direct", "auto")
    )
    np.testing.assert_array_equal(direct, auto)


def test_no_matrix_of_windows_is_in_memory() -> None:
    """The direct sum stores one that is 9 times as large as the picture; the form needs sums alone."""
    text = text_of(32, 32, 64, 64)
    picture = 32 * 32 * 32 * 64 * 4
    direct, form = (
        dlc.compile(text=text, conv=conv).f.working_memory() for conv in ("direct", "auto")
    )
    assert direct >= 9 * picture
    assert form < picture
