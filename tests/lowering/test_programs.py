"""Small graph functions through every level, at every optimisation level."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import F32, F64, I8, I32, I64, U8, TensorType
from tests.lowering.everywhere import check
from tests.suites import every

LEVELS = (0, 1, 2, 3)


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def relu(emit: Builder, x: Value) -> Value:
    return emit(array.Maximum(array.constant_like(emit, 0, x), x))


def bias(emit: Builder, x: Value, b: Value) -> Value:
    shape = tensor_type(x).shape
    return emit(array.Add(x, emit(array.Broadcast(b, shape, (len(shape) - 1,)))))


@pytest.mark.parametrize("level", LEVELS)
def test_a_small_network(level: int) -> None:
    def network(emit: Builder, x: Value, w1: Value, b1: Value, w2: Value) -> Sequence[Value]:
        h = relu(emit, bias(emit, emit(array.MatMul(x, w1)), b1))
        y = emit(array.MatMul(h, w2))
        squares = emit(array.ReduceSum(emit(array.Multiply(y, y)), (1,)))
        return y, emit(array.Divide(squares, array.constant_like(emit, 10, squares)))

    check(network, f32(32, 64), f32(64, 128), f32(128), f32(128, 10), level=level)


@pytest.mark.parametrize("level", every(2, LEVELS))
def test_sums_along_any_axes(level: int) -> None:
    def sums(emit: Builder, x: Value) -> Sequence[Value]:
        axes = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
        return [emit(array.ReduceSum(x, which)) for which in axes]

    check(sums, f32(7, 13, 37), level=level)
    check(sums, f32(1, 130, 2), level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_transposes(level: int) -> None:
    def transposes(emit: Builder, x: Value) -> Sequence[Value]:
        y = emit(array.Negate(x))
        return [emit(array.Transpose(y, axes)) for axes in ((2, 0, 1), (1, 0, 2), (2, 1, 0))]

    check(transposes, f32(5, 6, 19), level=level)


def test_conversions_and_comparisons() -> None:
    def conversions(emit: Builder, x: Value) -> Sequence[Value]:
        zero = array.constant_like(emit, 0, x)
        narrow = emit(array.Cast(x, U8))
        return (
            emit(array.Cast(x, I32)),
            emit(array.Cast(narrow, F32)),
            emit(array.Cast(emit(array.Cast(x, F64)), I8)),
            emit(array.Compare(x, zero, "gt")),
            emit(array.Select(emit(array.Compare(x, zero, "le")), x, zero)),
        )

    check(conversions, f32(5, 77))


@pytest.mark.parametrize("level", [0, 2])
def test_parts_of_tensors(level: int) -> None:
    def parts(emit: Builder, x: Value) -> Sequence[Value]:
        seven = array.fill(emit, 7, f32())
        some = emit(array.Slice(x, (0, 0, 0), (5, 4, 11), (1, 1, 1)))
        back = emit(array.Reverse(x, (0, 2)))
        return (
            emit(array.Slice(x, (1, 0, 2), (4, 10, 9), (2, 1, 3))),
            back,
            emit(array.Pad(x, seven, (1, 0, 2), (0, 3, 1), (1, 0, 2))),
            emit(array.Concatenate([x, back, some], 1)),
            emit(array.Iota((3, 4), 1, I32)),
            emit(array.ArgMax(x, 1)),
            emit(array.ArgMin(x, 2)),
            emit(array.ReduceMax(x, (0, 2))),
        )

    check(parts, f32(5, 10, 11), level=level)


def test_many_tensors_are_put_together_in_groups() -> None:
    def mixed(emit: Builder, x: Value) -> Sequence[Value]:
        rows = [emit(array.Slice(x, (k, 0), (k + 1, 3), (1, 1))) for k in range(100)]
        return (emit(array.Concatenate(tuple(rows[::-1]), 0)),)

    check(mixed, f32(100, 3))


@pytest.mark.parametrize("level", [0, 2])
def test_gathers_and_dynamic_slices(level: int) -> None:
    def gathers(emit: Builder, x: Value) -> Sequence[Value]:
        rows = emit(array.Iota((2, 3), 1, I32))
        start = array.fill(emit, 2, TensorType(I64))
        none = array.fill(emit, 0, TensorType(I64))
        part = emit(array.DynamicSlice(x, [start, none], (3, 4)))
        return (
            emit(array.Gather(x, [rows], (0,))),
            part,
            emit(array.DynamicUpdateSlice(x, emit(array.Negate(part)), [none, start])),
        )

    check(gathers, f32(6, 9), level=level)


@pytest.mark.parametrize("level", [0, 2])
def test_pooling(level: int) -> None:
    def pools(emit: Builder, x: Value) -> Sequence[Value]:
        ones = (1, 1, 1, 1)
        none = ((0, 0),) * 4
        padded = ((0, 0), (1, 1), (1, 1), (0, 0))
        return (
            emit(array.ReduceWindow(x, "max", (1, 3, 3, 1), (1, 2, 2, 1), padded, ones)),
            emit(array.ReduceWindow(x, "sum", (1, 2, 2, 1), (1, 2, 2, 1), none, ones)),
        )

    check(pools, f32(2, 9, 9, 5), level=level)


PRODUCTS = [(1, 5, 3), (7, 13, 17), (6, 16, 16), (100, 300, 50), (13, 64, 100), (64, 1, 33)]


@pytest.mark.parametrize(
    ("m", "k", "n", "matmul"), every(3, itertools.product(PRODUCTS, ["blas", "generated"]))
)
def test_products_with_an_epilogue(m: int, k: int, n: int, matmul: str) -> None:
    def product(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        return (relu(emit, bias(emit, emit(array.MatMul(x, w)), b)),)

    check(product, f32(m, k), f32(k, n), f32(n), matmul=matmul, rtol=1e-4)
    check(product, f32(3, m, k), f32(3, k, n), f32(n), matmul=matmul, rtol=1e-4)


@pytest.mark.parametrize("matmul", ["blas", "generated"])
def test_products_in_f64(matmul: str) -> None:
    def product(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        return (emit(array.MatMul(x, w)),)

    check(product, TensorType(F64, (33, 20)), TensorType(F64, (20, 19)), matmul=matmul, rtol=1e-12)


CONVOLUTIONS = [
    # batch, size, channels, outputs, window, stride, padding, dilation
    (1, 8, 5, 7, 3, 1, 1, 1),
    (2, 9, 16, 32, 3, 2, 1, 1),
    (1, 7, 3, 20, 5, 1, 2, 1),
    (1, 12, 8, 16, 3, 1, 2, 2),
    (3, 6, 8, 16, 1, 1, 0, 1),
    (1, 9, 8, 16, 1, 2, 0, 1),
    (1, 4, 4, 4, 3, 1, 1, 1),
]


@pytest.mark.parametrize(
    ("case", "matmul"),
    every(6, itertools.product(map(pytest.param, CONVOLUTIONS), ["blas", "generated"])),
)
def test_convolutions_with_an_epilogue(
    case: tuple[int, int, int, int, int, int, int, int], matmul: str
) -> None:
    batch, size, channels, outputs, window, stride, padding, dilation = case

    def convolution(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        pads = ((padding, padding),) * 2
        y = emit(array.Convolution(x, w, (stride,) * 2, pads, (dilation,) * 2, (1, 1)))
        return (relu(emit, bias(emit, y, b)),)

    shape = f32(batch, size, size + 1, channels)
    kernel = f32(window, window, channels, outputs)
    check(convolution, shape, kernel, f32(outputs), matmul=matmul, rtol=1e-4)


def test_convolutions_of_every_other_kind() -> None:
    def kinds(emit: Builder, x: Value, w: Value, grouped: Value) -> Sequence[Value]:
        pads = ((1, 1), (1, 1))
        wide = ((2, 2), (2, 2))
        ones = (1, 1)
        return (
            emit(array.Convolution(x, w, ones, wide, ones, (2, 2))),
            emit(array.Convolution(x, grouped, ones, pads, ones, ones, 4)),
        )

    check(kinds, f32(2, 9, 9, 8), f32(3, 3, 8, 6), f32(3, 3, 2, 8), rtol=1e-4)


def test_convolution_with_channels_first() -> None:
    def convolution(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        ones = (1, 1)
        pads = ((1, 1), (1, 1))
        return (emit(array.Convolution(x, w, ones, pads, ones, ones, 1, "nchw")),)

    check(convolution, f32(2, 8, 9, 9), f32(6, 8, 3, 3), rtol=1e-4)


def test_one_program_serves_every_size_in_its_bounds() -> None:
    b, t = symbol("B"), symbol("T")

    def network(emit: Builder, x: Value, w: Value, shift: Value) -> Sequence[Value]:
        flat = emit(array.MatMul(emit(array.Reshape(x, (b * t, 64))), w))
        h = bias(emit, emit(array.Reshape(flat, (b, t, 32))), shift)
        q = emit(array.Sqrt(emit(array.Abs(h))))
        return (
            h,
            emit(array.ReduceSum(h, (1,))),
            emit(array.ReduceSum(q, (2,))),
            emit(array.Transpose(q, (1, 0, 2))),
        )

    sizes = [{"B": 1, "T": 1}, {"B": 3, "T": 7}, {"B": 64, "T": 50}, {"B": 2, "T": 13}]
    dims = {"B": (1, None), "T": (1, 50)}
    check(network, f32(b, t, 64), f32(64, 32), f32(32), dims=dims, at=sizes, rtol=1e-4)
