"""Depthwise convolutions: windows at the borders of every width, and channels that fill no register."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import F32, TensorType
from dlc.target import Target
from tests.lowering.everywhere import Program, check
from tests.suites import each_value
from tests.targets import AVX2, AVX512


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def layer(stride: int, dilation: int, padding: int, channels: int) -> Program:
    """A depthwise convolution with a bias, and its source added where the sizes agree."""

    def network(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        pads = ((padding, padding), (padding, padding))
        steps, gaps = (stride, stride), (dilation, dilation)
        y = emit(array.Convolution(x, w, steps, pads, gaps, (1, 1), channels, "nhwc"))
        y = emit(array.Add(y, emit(array.Broadcast(b, tensor_type(y).shape, (3,)))))
        return (emit(array.Add(y, x)),) if tensor_type(y).shape == tensor_type(x).shape else (y,)

    return network


def check_layer(
    picture: tuple[Size, Size, Size, int],
    window: int = 3,
    stride: int = 1,
    dilation: int = 1,
    target: Target = AVX512,
) -> None:
    channels = picture[-1]
    padding = dilation * (window // 2)
    types = f32(*picture), f32(window, window, 1, channels), f32(channels)
    check(layer(stride, dilation, padding, channels), *types, target=target)


@pytest.mark.parametrize(
    ("width", "window", "stride", "target"),
    each_value([1, 2, 5, 6, 7, 10, 11, 13, 14], [3, 5, 7], [1, 2], [AVX2, AVX512]),
)
def test_a_picture_of_any_width(width: int, window: int, stride: int, target: Target) -> None:
    check_layer((2, 4, width, 8), window, stride, 1, target)


@pytest.mark.parametrize(
    ("height", "window", "stride"), each_value([1, 2, 3, 5, 8], [3, 5, 7], [1, 2])
)
def test_a_picture_of_any_height(height: int, window: int, stride: int) -> None:
    check_layer((2, height, 9, 8), window, stride, target=AVX2)


@pytest.mark.parametrize("channels", [1, 3, 16, 24, 31, 40, 63])
def test_any_number_of_channels(channels: int) -> None:
    check_layer((1, 3, 9, channels))


@pytest.mark.parametrize("dilation", [2, 3, 9])
def test_windows_with_gaps_that_reach_over_both_borders(dilation: int) -> None:
    check_layer((1, 5, 12, 8), dilation=dilation)


def test_a_picture_whose_height_is_known_when_it_is_called() -> None:
    types = f32(2, symbol("H"), 6, 8), f32(3, 3, 1, 8), f32(8)
    dims = {"H": (1, 20)}
    check(layer(1, 1, 1, 8), *types, dims=dims, at=[{"H": 1}, {"H": 4}, {"H": 7}], target=AVX2)


def test_a_picture_whose_width_is_known_when_it_is_called() -> None:
    types = f32(1, 3, symbol("W"), 8), f32(3, 3, 1, 8), f32(8)
    dims = {"W": (1, 20)}
    check(layer(1, 1, 1, 8), *types, dims=dims, at=[{"W": 2}, {"W": 11}], target=AVX512)
