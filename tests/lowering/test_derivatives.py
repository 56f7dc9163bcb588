"""Derivatives as machine code, compared with the evaluated graph after every pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dlc.dialects import array, flow, nn
from dlc.ir.core import Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.types import F32, TensorType
from tests.dialects.programs import Build, emitted, gradient, region
from tests.lowering.everywhere import Program, check
from tests.suites import each_value, every


def f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def slope(build: Build, order: int = 1) -> Program:
    """A program that computes a derivative by all inputs."""
    for _ in range(order):
        build = gradient(build)

    def built(emit: Builder, *arguments: Value) -> Sequence[Value]:
        return emitted(build, emit, arguments)

    return built


def bounded(emit: Builder, x: Value) -> Value:
    """x / (1 + x * x)."""
    square = emit(array.Multiply(x, x))
    return emit(array.Divide(x, emit(array.Add(square, array.constant_like(emit, 1, x)))))


def recurrent(emit: Builder, h: Value, xs: Value, w: Value) -> tuple[Value, ...]:
    def step(emit: Builder, i: Value, h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        following = bounded(emit, emit(array.Add(emit(array.MatMul(h, w)), x)))
        return following, emit(array.Multiply(following, h))

    body = region(step, [flow.COUNTER, f32(2, 6), f32(2, 6), f32(6, 6)])
    return emit.all(flow.Scan((h,), (xs,), (w,), body, 5, (1,), (0,)))


def choice(emit: Builder, x: Value, y: Value) -> tuple[Value, ...]:
    def yes(emit: Builder, x: Value, y: Value) -> Value:
        return bounded(emit, emit(array.Multiply(x, y)))

    def no(emit: Builder, x: Value, y: Value) -> Value:
        return emit(array.Multiply(x, x))

    total = emit(array.ReduceSum(x, (0,)))
    positive = emit(array.Compare(total, array.constant_like(emit, 0, total), "gt"))
    branches = region(yes, [f32(6)] * 2), region(no, [f32(6)] * 2)
    return emit.all(flow.If(positive, (x, y), *branches))


def shrinking(emit: Builder, x: Value, w: Value) -> tuple[Value, ...]:
    def large(emit: Builder, x: Value, w: Value) -> Value:
        size = emit(array.ReduceSum(emit(array.Abs(x)), (0,)))
        return emit(array.Compare(size, array.constant_like(emit, 0.3, size), "gt"))

    def step(emit: Builder, x: Value, w: Value) -> Value:
        return bounded(emit, emit(array.Multiply(x, bounded(emit, w))))

    regions = region(large, [f32(6)] * 2), region(step, [f32(6)] * 2)
    return emit.all(flow.While((x,), (w,), *regions, 30))


def layers(emit: Builder, x: Value, w1: Value, b1: Value, w2: Value) -> Value:
    hidden = nn.relu(emit, emit(nn.Linear(x, w1, (b1,))))
    y = emit(nn.Linear(hidden, w2, ()))
    return nn.mse(emit, y, array.constant_like(emit, 0.5, y))


def pictures(emit: Builder, x: Value, w: Value, b: Value) -> Value:
    one = (1, 1)
    y = emit(nn.Conv(x, w, (b,), one, (one, one), one, one))
    return nn.avg_pool(emit, bounded(emit, y), (2, 2))


LOOPS: dict[str, tuple[Build, Sequence[TensorType]]] = {
    "scan": (recurrent, [f32(2, 6), f32(2, 5, 6), f32(6, 6)]),
    "if": (choice, [f32(6), f32(6)]),
    "while": (shrinking, [f32(6), f32(6)]),
}
NETWORKS: dict[str, tuple[Build, Sequence[TensorType]]] = {
    "layers": (layers, [f32(3, 4), f32(4, 5), f32(5), f32(5, 2)]),
    "pictures": (pictures, [f32(2, 6, 6, 3), f32(3, 3, 3, 4), f32(4)]),
}


@pytest.mark.parametrize(("name", "level"), each_value(LOOPS, [0, 1, 2]))
def test_derivatives_through_control_flow(name: str, level: int) -> None:
    build, types = LOOPS[name]
    check(slope(build), *types, level=level)


@pytest.mark.parametrize("name", every(2, ["scan", "while"]))
def test_second_derivatives_through_loops(name: str) -> None:
    build, types = LOOPS[name]
    check(slope(build, 2), *types, rtol=1e-4)


@pytest.mark.parametrize(("level", "name"), every(6, itertools.product([2, 0, 1], NETWORKS)))
def test_derivatives_of_networks(name: str, level: int) -> None:
    build, types = NETWORKS[name]
    check(slope(build), *types, level=level)


@pytest.mark.parametrize(
    ("stride", "dims"), every(4, [(2, "nchw"), (1, "nchw"), (2, "nhwc"), (1, "nhwc")])
)
def test_the_gradient_of_a_convolution_by_its_kernel(stride: int, dims: str) -> None:
    """Its window is the whole result, and with a batch of any size its channels are symbolic."""

    def convolved(emit: Builder, x: Value, w: Value) -> Value:
        y = emit(array.Convolution(x, w, (stride,) * 2, ((1, 1),) * 2, (1, 1), (1, 1), 1, dims))
        axes = tuple(range(4))
        return emit(array.ReduceSum(emit(array.Multiply(y, y)), axes))

    batch = symbol("B")
    picture = (batch, 6, 7, 3) if dims == "nhwc" else (batch, 3, 6, 7)
    window = (3, 3, 3, 4) if dims == "nhwc" else (4, 3, 3, 3)
    types = [TensorType(F32, picture), f32(*window)]
    sizes = [{"B": 1}, {"B": 5}]
    check(slope(convolved), *types, dims={"B": (1, 8)}, at=sizes, rtol=1e-4)
