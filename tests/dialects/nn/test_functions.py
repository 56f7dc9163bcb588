"""Functions of neural networks that place array operations, against formulas of SciPy and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import floor

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from dlc.dialects import array, flow, nn, rng
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import BF16, F32, F64, U8, U64, TensorType
from tests.dialects.programs import (
    Build,
    assert_close,
    check_gradient,
    evaluate,
    expanded,
    gradient,
    ops,
    program,
    run,
    tensor,
)

Doubles = NDArray[np.float64]
RANDOM = np.random.default_rng(13)
X = RANDOM.standard_normal((2, 4, 6, 3))
LINE = np.array([-4.0, -3.5, -1.0, -0.2, 0.1, 0.7, 2.5, 3.5])


def sigmoid(x: Doubles) -> Doubles:
    return scipy.special.expit(x)


def elu(x: Doubles, alpha: float) -> Doubles:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


ACTIVATIONS: dict[str, tuple[Build, Callable[[Doubles], Doubles]]] = {
    "relu": (nn.relu, lambda x: np.maximum(x, 0)),
    "gelu": (nn.gelu, lambda x: x * np.asarray(scipy.special.ndtr(x))),
    "gelu_tanh": (
        lambda emit, x: nn.gelu(emit, x, tanh=True),
        lambda x: x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    ),
    "silu": (nn.silu, lambda x: x * sigmoid(x)),
    "softplus": (nn.softplus, lambda x: np.logaddexp(0, x)),
    "softsign": (nn.softsign, lambda x: x / (1 + abs(x))),
    "elu": (lambda emit, x: nn.elu(emit, x, 0.7), lambda x: elu(x, 0.7)),
    "selu": (nn.selu, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    "leaky_relu": (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "hardsigmoid": (nn.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardswish": (nn.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": (nn.mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    built, expected = ACTIVATIONS[name]
    assert_close(evaluate(built, LINE)[0], expected(LINE), rtol=1e-13, atol=1e-15)
    check_gradient(built, LINE, order=2)


KINKS: dict[str, tuple[Build, float, float]] = {
    "relu": (nn.relu, 0, 0),
    "elu": (lambda emit, x: nn.elu(emit, x, 0.7), 0, 0.7),
    "leaky_relu": (nn.leaky_relu, 0, 0.01),
    "softplus": (nn.softplus, 0, 0.5),
    "clip at its lower bound": (lambda emit, x: nn.clip(emit, x, -1, 1), -1, 1),
    "clip at its upper bound": (lambda emit, x: nn.clip(emit, x, -1, 1), 1, 1),
    "hardsigmoid": (nn.hardsigmoid, 3, 1 / 6),
}


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name: str) -> None:
    built, at, expected = KINKS[name]
    assert float(evaluate(gradient(built), np.asarray(at, np.float64))[0]) == expected


@pytest.mark.parametrize("name", ["softplus", "elu", "silu", "mish", "gelu"])
@pytest.mark.parametrize("x", [-800.0, 800.0])
def test_far_out_they_and_their_derivatives_are_finite(name: str, x: float) -> None:
    built, expected = ACTIVATIONS[name]
    at = np.array([x])
    assert_close(evaluate(built, at)[0], expected(at), rtol=1e-14)
    assert_close(evaluate(gradient(built), at)[0], [float(x > 0)], atol=1e-14)


def test_the_second_derivative_of_softplus_has_no_hole_at_zero() -> None:
    (second,) = evaluate(gradient(gradient(nn.softplus)), np.asarray(0.0))
    assert float(second) == 0.25


def test_relu_gradient_at_minus_one_zero_and_two() -> None:
    (found,) = evaluate(gradient(nn.relu), np.array([-1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(found, [0, 0, 1])


# norms and moments


def test_moments_are_mean_and_biased_variance() -> None:
    def built(emit: Builder, x: Value) -> tuple[Value, ...]:
        return nn.moments(emit, x, (0, 2))

    middle, variance = evaluate(built, X)
    assert_close(middle, X.mean(axis=(0, 2)), rtol=1e-12, atol=1e-14)
    assert_close(variance, X.var(axis=(0, 2)), rtol=1e-12)
    check_gradient(built, X, order=2)


def test_batch_norm_uses_the_numbers_of_each_channel() -> None:
    scale, shift, middle = RANDOM.standard_normal((3, 3))
    variance = RANDOM.uniform(0.5, 2, 3)

    def built(emit: Builder, *operands: Value) -> Value:
        return nn.batch_norm(emit, *operands, axis=3, eps=1e-3)

    expected = (X - middle) / np.sqrt(variance + 1e-3) * scale + shift
    inputs = (X, scale, shift, middle, variance)
    assert_close(evaluate(built, *inputs)[0], expected, rtol=1e-12, atol=1e-13)
    check_gradient(built, *inputs)


@pytest.mark.parametrize("axis", [1, 3])
def test_group_norm(axis: int) -> None:
    x = np.moveaxis(RANDOM.standard_normal((2, 4, 6, 4)), 3, axis)
    scale, shift = RANDOM.standard_normal((2, 4))

    def built(emit: Builder, x: Value, scale: Value, shift: Value) -> Value:
        return nn.group_norm(emit, x, scale, shift, groups=2, axis=axis)

    first = np.moveaxis(x, axis, 1)
    parts = first.reshape(2, 2, -1)
    apart = parts - parts.mean(axis=2, keepdims=True)
    parts = apart / np.sqrt(parts.var(axis=2, keepdims=True) + 1e-5)
    normal = parts.reshape(first.shape) * scale[:, None, None] + shift[:, None, None]
    expected = np.moveaxis(normal, 1, axis)
    assert_close(evaluate(built, x, scale, shift)[0], expected, rtol=1e-12, atol=1e-13)
    check_gradient(built, x, scale, shift)


# losses, embeddings, dropout


def test_mean_squared_error() -> None:
    y = RANDOM.standard_normal(X.shape)
    assert_close(evaluate(nn.mse, X, y)[0], ((X - y) ** 2).mean(), rtol=1e-13)
    check_gradient(nn.mse, X, y, order=2)


def test_cross_entropy_with_a_distribution() -> None:
    logits = X[0, 0]
    target = scipy.special.softmax(RANDOM.standard_normal((6, 3)), axis=1)
    expected = -(target * scipy.special.log_softmax(logits, axis=1)).sum(axis=1)
    assert_close(evaluate(nn.soft_cross_entropy, logits, target)[0], expected, rtol=1e-13)
    check_gradient(nn.soft_cross_entropy, logits, target, order=2)


def test_an_embedding_is_rows_of_a_table() -> None:
    table, ids = RANDOM.standard_normal((7, 3)), np.array([[6, 0], [2, 2]], np.uint8)
    np.testing.assert_array_equal(evaluate(nn.embedding, table, ids)[0], table[ids])
    check_gradient(nn.embedding, table, ids)


def test_one_hot() -> None:
    def built(emit: Builder, ids: Value) -> Value:
        return nn.one_hot(emit, ids, 4, F32)

    (found,) = evaluate(built, np.array([3, 0, 4, 255], np.uint8))
    np.testing.assert_array_equal(found, np.eye(256, 4, dtype=np.float32)[[3, 0, 4, 255]])
    assert found.dtype == np.float32


def test_one_hot_counts_further_than_the_ids() -> None:
    module = program(lambda emit, ids: nn.one_hot(emit, ids, 300, F64), [TensorType(U8, (2,))])
    np.testing.assert_array_equal(run(module, np.array([44, 255], np.uint8))[0].sum(axis=1), 1)


def dropped(rate: float) -> Build:
    def built(emit: Builder, x: Value) -> Value:
        key = emit(rng.Key(array.fill(emit, 7, TensorType(U64))))
        return nn.dropout(emit, x, key, rate)

    return built


def test_dropout_keeps_the_mean() -> None:
    x = np.ones(10_000)
    found = evaluate(dropped(0.25), x)[0].astype(np.float64)
    assert set(np.unique(found)) == {0, 1 / 0.75}
    assert abs(found.mean() - 1) < 0.03
    # What was dropped receives nothing, the rest its factor.
    np.testing.assert_array_equal(evaluate(gradient(dropped(0.25)), x)[0], found)


@pytest.mark.parametrize(("rate", "factor"), [(0.0, 1), (1.0, 0)])
def test_dropout_of_nothing_and_of_all(rate: float, factor: float) -> None:
    np.testing.assert_array_equal(evaluate(dropped(rate), LINE)[0], factor * LINE)


# pooling


def windows(
    x: Doubles, size: int, stride: int, pad: int, combine: Callable[[Doubles], float]
) -> Doubles:
    """Of [batch, h, w, c], by loops; places outside are left out."""
    batch, h, w, c = x.shape
    rows, columns = ((n + 2 * pad - size) // stride + 1 for n in (h, w))
    found = np.zeros((batch, rows, columns, c))
    for index in np.ndindex(*found.shape):
        top, left = (place * stride - pad for place in index[1:3])
        part = x[index[0], max(top, 0) : top + size, max(left, 0) : left + size, index[3]]
        found[index] = combine(part)
    return found


def test_max_pool() -> None:
    def built(emit: Builder, x: Value) -> Value:
        return nn.max_pool(emit, x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))

    np.testing.assert_array_equal(evaluate(built, X)[0], windows(X, 3, 2, 1, np.max))
    check_gradient(built, X)


@pytest.mark.parametrize("count_padding", [False, True])
def test_avg_pool(count_padding: bool) -> None:
    def built(emit: Builder, x: Value) -> Value:
        pads = ((1, 1), (1, 1))
        return nn.avg_pool(
            emit, x, (3, 3), strides=(2, 2), padding=pads, count_padding=count_padding
        )

    combine: Callable[[Doubles], float] = (lambda x: x.sum() / 9) if count_padding else np.mean
    assert_close(evaluate(built, X)[0], windows(X, 3, 2, 1, combine), rtol=1e-12, atol=1e-14)
    check_gradient(built, X, order=2)


def test_pools_take_the_strides_of_their_window_and_channels_in_front() -> None:
    def built(emit: Builder, x: Value) -> Value:
        return nn.avg_pool(emit, x, (2, 2), dims="nchw")

    channels_first = X.transpose(0, 3, 1, 2)
    expected = windows(X, 2, 2, 0, np.mean).transpose(0, 3, 1, 2)
    assert_close(evaluate(built, channels_first)[0], expected, rtol=1e-12, atol=1e-14)
    # Every window is whole: no windows of ones are counted.
    assert len(ops(program(built, [tensor(2, 3, 4, 6)]), array.ReduceWindow)) == 1


def test_what_a_window_has_in_the_picture_is_counted_once_for_all_channels() -> None:
    def built(emit: Builder, x: Value) -> Value:
        return nn.avg_pool(emit, x, (3, 3), padding=((1, 1), (1, 1)), dims="nchw")

    summed, counted = ops(program(built, [tensor(2, 3, 4, 6)]), array.ReduceWindow)
    assert array.tensor_type(summed.result).shape == (2, 3, 2, 2)
    assert array.tensor_type(counted.result).shape == (1, 1, 2, 2)


def test_pools_over_the_whole_picture() -> None:
    assert_close(evaluate(nn.global_avg_pool, X)[0], X.mean(axis=(1, 2)), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(evaluate(nn.global_max_pool, X)[0], X.max(axis=(1, 2)))


def test_narrow_means_are_summed_wide() -> None:
    module = program(nn.global_avg_pool, [TensorType(BF16, (1, 64, 64, 2))])
    (total,) = ops(module, array.ReduceSum)
    assert array.tensor_type(total.result).dtype is F32


# resizing


def place(i: int, old: int, new: int, coordinates: str) -> Fraction:
    match coordinates:
        case "half_pixel":
            return (i + Fraction(1, 2)) * old / new - Fraction(1, 2)
        case "asymmetric":
            return Fraction(i * old, new)
        case _:
            return Fraction(i * (old - 1), max(new - 1, 1))


ROUND: dict[str, Callable[[Fraction], int]] = {
    "floor": floor,
    "ceil": lambda x: -floor(-x),
    "round_prefer_floor": lambda x: -floor(Fraction(1, 2) - x),
    "round_prefer_ceil": lambda x: floor(x + Fraction(1, 2)),
}
COORDINATES = ("half_pixel", "asymmetric", "align_corners")


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUND)
@pytest.mark.parametrize(("rows", "columns"), [(8, 18), (7, 4), (1, 3)])
def test_nearest(coordinates: str, rounding: str, rows: int, columns: int) -> None:
    sizes: Mapping[int, Size] = {1: rows, 2: columns}

    def built(emit: Builder, x: Value) -> Value:
        return nn.resize_nearest(emit, x, sizes, coordinates=coordinates, rounding=rounding)

    def taken(old: int, new: int) -> list[int]:
        near = [ROUND[rounding](place(i, old, new, coordinates)) for i in range(new)]
        return [min(max(index, 0), old - 1) for index in near]

    expected = X[:, taken(4, rows)][:, :, taken(6, columns)]
    np.testing.assert_array_equal(evaluate(built, X)[0], expected)


def along_lines(x: Doubles, axis: int, new: int, coordinates: str) -> Doubles:
    """Each line along an axis, interpolated by NumPy."""
    old = x.shape[axis]
    at = [float(place(i, old, new, coordinates)) for i in range(new)]
    lines = np.moveaxis(x, axis, -1).reshape(-1, old)
    found = np.array([np.interp(at, list(range(old)), line) for line in lines])
    return np.moveaxis(found.reshape(*np.moveaxis(x, axis, -1).shape[:-1], new), -1, axis)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(("rows", "columns"), [(8, 18), (7, 4), (1, 3), (4, 6)])
def test_linear(coordinates: str, rows: int, columns: int) -> None:
    sizes: Mapping[int, Size] = {1: rows, 2: columns}

    def built(emit: Builder, x: Value) -> Value:
        return nn.resize_linear(emit, x, sizes, coordinates=coordinates)

    expected = along_lines(along_lines(X, 1, rows, coordinates), 2, columns, coordinates)
    assert_close(evaluate(built, X)[0], expected, rtol=1e-12, atol=1e-13)
    check_gradient(built, X)


def test_twice_the_size_repeats_each_element_for_every_size() -> None:
    h = symbol("H")

    def built(emit: Builder, x: Value) -> Value:
        return nn.resize_nearest(emit, x, {1: 2 * h})

    module = program(built, [TensorType(F64, (2, h))])
    assert not ops(module, array.Gather)
    (found,) = run(module, X[0, :2, :, 0], dims={"H": 6})
    np.testing.assert_array_equal(found, np.repeat(X[0, :2, :, 0], 2, axis=1))


def test_symbolic_sizes_are_resized_exactly() -> None:
    h, n = symbol("H"), symbol("N")
    types = [TensorType(F64, (2, h))]
    module = program(lambda emit, x: nn.resize_linear(emit, x, {1: n}), types)
    line = X[0, :2, :, 0]
    expected = along_lines(line, 1, 4, "half_pixel")
    assert_close(run(module, line, dims={"H": 6, "N": 4})[0], expected, rtol=1e-13)


def test_what_softplus_is_made_of_is_gone_in_the_end() -> None:
    module = expanded(nn.softplus, [tensor(3)])
    assert not ops(module, flow.Custom)
    assert not ops(expanded(gradient(nn.softplus), [tensor(3)]), flow.Custom)
