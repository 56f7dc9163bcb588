"""Registers of neighbouring elements: those that reach beyond an end, halves of wide ones, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import pytest

from dlc.dialects import array, kernel, loop, nn, vec
from dlc.dialects.kernel.products import Conv
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
from dlc.target import Target
from tests.lowering.everywhere import check, function_of
from tests.targets import AVX2, AVX512

TARGETS = [AVX2, AVX512]


def neighbours(emit: Builder, x: Value) -> Sequence[Value]:
    """Each number divided by what it and four neighbours along memory are."""
    return (nn.local_response_norm(emit, x, size=5, alpha=0.5, beta=0.75, bias=1.0, axis=1),)


def largest(emit: Builder, x: Value) -> Sequence[Value]:
    """The largest of windows, for each channel."""
    return (nn.max_pool(emit, x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1))),)


@pytest.mark.parametrize("target", TARGETS, ids=attrgetter("name"))
@pytest.mark.parametrize("channels", [1, 3, 16, 24, 37, 96])
def test_windows_along_memory(channels: int, target: Target) -> None:
    check(neighbours, TensorType(F32, (3, channels)), target=target)


@pytest.mark.parametrize("target", TARGETS, ids=attrgetter("name"))
@pytest.mark.parametrize("channels", [7, 8, 24, 31])
def test_windows_across_memory(channels: int, target: Target) -> None:
    check(largest, TensorType(F32, (1, 5, 6, channels)), target=target)


def test_neighbours_are_read_one_by_one_at_the_ends_only() -> None:
    module, _ = function_of(neighbours, [TensorType(F32, (3, 96))], {})
    Manager(Context(options=Options())).run(module, pipeline("graph", "loop", 2))
    gathers = [op for op in module.walk() if isinstance(op, vec.Gather)]
    assert gathers
    for gather in gathers:
        branch = gather.parent and gather.parent.parent
        assert isinstance(branch, loop.If)
        assert any(isinstance(op, vec.Load) for op in branch.then)


@pytest.mark.parametrize("target", TARGETS, ids=attrgetter("name"))
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_few_channels_behind_rows_that_were_in_front_of_them(channels: int, target: Target) -> None:
    def turned(emit: Builder, x: Value) -> Sequence[Value]:
        pixels = emit(array.Transpose(x, (0, 2, 3, 1)))
        zero = array.fill(emit, 0, TensorType(F32, ()))
        padded = emit(array.Pad(pixels, zero, (0, 1, 2, 0), (0, 0, 1, 0), (0, 0, 0, 0)))
        return (emit(array.Multiply(padded, padded)),)

    check(turned, TensorType(F32, (2, channels, 3, 29)), target=target)


@pytest.mark.parametrize("target", TARGETS, ids=attrgetter("name"))
def test_few_columns_of_a_single_matrix(target: Target) -> None:
    def turned(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.Multiply(*[emit(array.Transpose(x, (1, 0)))] * 2)),)

    check(turned, TensorType(F32, (3, 117)), target=target)


def test_a_picture_of_few_channels_is_written_once_with_its_border() -> None:
    def seen(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        halved = emit(array.Multiply(x, array.constant_like(emit, 0.5, x)))
        pads = ((1, 1), (1, 1))
        return (emit(nn.Conv(halved, w, (), (1, 1), pads, (1, 1), (1, 1), 1, "nchw")),)

    types = TensorType(F32, (1, 3, 8, 9)), TensorType(F32, (5, 3, 3, 3))
    check(seen, *types, matmul="generated")
    module, _ = function_of(seen, types, {})
    Manager(Context(options=Options(matmul="generated"))).run(
        module, pipeline("graph", "kernel", 2)
    )
    (conv,) = [op for op in module.walk() if isinstance(op, Conv)]
    picture = conv.lhs.op
    assert isinstance(picture, kernel.Generic)
    assert [kernel.array_type(value).shape for value in picture.arrays] == [(1, 3, 8, 9)]
    assert conv.padding == ((0, 0), (0, 0))
