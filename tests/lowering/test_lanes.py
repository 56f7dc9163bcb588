"""Registers of neighbouring elements: those that reach beyond an end, halves of wide ones, what is left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import loop, nn, vec
from dlc.driver.pipelines import pipeline
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
from tests.lowering.everywhere import check, function_of

VECTOR_BYTES = [32, 64]


def neighbours(emit: Builder, x: Value) -> Sequence[Value]:
    """Each number divided by what it and four neighbours along memory are."""
    return (nn.local_response_norm(emit, x, size=5, alpha=0.5, beta=0.75, bias=1.0, axis=1),)


def largest(emit: Builder, x: Value) -> Sequence[Value]:
    """The largest of windows, for each channel."""
    return (nn.max_pool(emit, x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1))),)


@pytest.mark.parametrize("vector_bytes", VECTOR_BYTES)
@pytest.mark.parametrize("channels", [1, 3, 16, 24, 37, 96])
def test_windows_along_memory(channels: int, vector_bytes: int) -> None:
    check(neighbours, TensorType(F32, (3, channels)), vector_bytes=vector_bytes)


@pytest.mark.parametrize("vector_bytes", VECTOR_BYTES)
@pytest.mark.parametrize("channels", [7, 8, 24, 31])
def test_windows_across_memory(channels: int, vector_bytes: int) -> None:
    check(largest, TensorType(F32, (1, 5, 6, channels)), vector_bytes=vector_bytes)


def test_neighbours_are_read_one_by_one_at_the_ends_only() -> None:
    module, _ = function_of(neighbours, [TensorType(F32, (3, 96))], {})
    Manager(Context(options=Options())).run(module, pipeline("graph", "loop", 2))
    gathers = [op for op in module.walk() if isinstance(op, vec.Gather)]
    assert gathers
    for gather in gathers:
        branch = gather.parent and gather.parent.parent
        assert isinstance(branch, loop.If)
        assert any(isinstance(op, vec.Load) for op in branch.then)
