"""Normalisations by known numbers: one scale and one shift, and none behind a convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.attributes import Dense
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.passes import Options
from dlc.ir.types import F32, TensorType
from tests.lowering.everywhere import (
    Program,
    assert_close,
    called,
    function_of,
    model_of,
    random_inputs,
    text_after,
)

CHANNELS = 6

SIMPLER = pipeline("graph", "graph", 2)


def table(emit: Builder, seed: int) -> Value:
    """A number for each channel."""
    numbers = np.random.default_rng(seed).uniform(0.5, 1.5, CHANNELS).astype(np.float32)
    return emit(array.Constant(Dense.of(numbers, F32)))


def normalised(emit: Builder, x: Value, axis: int = 1) -> Value:
    """`(x - mean) / sqrt(variance) * scale + shift` for each channel."""
    shape = tensor_type(x).shape
    mean, variance, scale, shift = (
        emit(array.Broadcast(value, shape, (axis,)))
        for value in (
            table(emit, 0),
            emit(array.Rsqrt(table(emit, 1))),
            table(emit, 2),
            table(emit, 3),
        )
    )
    centered = emit(array.Multiply(emit(array.Subtract(x, mean)), variance))
    return emit(array.Add(emit(array.Multiply(centered, scale)), shift))


def alone(emit: Builder, x: Value) -> Sequence[Value]:
    return (normalised(emit, x),)


def behind(emit: Builder, x: Value) -> Sequence[Value]:
    numbers = np.random.default_rng(9).standard_normal((CHANNELS, 3, 1, 1)).astype(np.float32)
    kernel = emit(array.Constant(Dense.of(numbers, F32)))
    ones, none = (1, 1), ((0, 0), (0, 0))
    y = emit(array.Convolution(x, kernel, ones, none, ones, ones, 1, "nchw"))
    return (normalised(emit, y),)


def agrees(program: Program, type: TensorType) -> None:
    """The machine code computes what the graph means."""
    inputs = random_inputs([type], {})
    _, function = function_of(program, [type], {})
    expected = Evaluation().run(function.body, inputs)
    assert_close(called(model_of(program, [type], Options()), inputs), expected, 1e-5, "code")


PICTURE = TensorType(F32, (2, CHANNELS, 5, 7))
COLOURS = TensorType(F32, (2, 3, 5, 7))


def test_a_normalisation_is_one_scale_and_one_shift() -> None:
    function, _, _ = text_after(alone, [PICTURE], SIMPLER).partition('"weight.derived"')
    assert function.count('"array.multiply"') == function.count('"array.add"') == 1
    assert '"array.rsqrt"' not in function
    agrees(alone, PICTURE)


def test_behind_a_convolution_it_is_a_shift_only() -> None:
    function, _, _ = text_after(behind, [COLOURS], SIMPLER).partition('"weight.derived"')
    assert '"array.multiply"' not in function
    assert function.count('"array.add"') == 1
    agrees(behind, COLOURS)


def test_what_is_repeated_over_a_picture_is_kept_once_for_each_channel() -> None:
    text = text_after(alone, [PICTURE], SIMPLER)
    kept = [line for line in text.split("\n") if '"weight.derived"' in line]
    assert kept
    assert all(f"tensor<{CHANNELS}xf32>" in line for line in kept)
