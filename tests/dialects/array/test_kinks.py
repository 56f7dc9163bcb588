"""Where a function has no derivative: the one that the language takes, as `docs/semantics.md` says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.types import F64, I64
from tests.op_examples.derivative import derivative
from tests.op_examples.example import Build, Example, Numbers, given


def received(
    build: Build, inputs: Sequence[object], dy: object, result: int = 0
) -> list[list[float]]:
    """What each f64 input receives when one result receives `dy`, the others nothing."""
    operands = [
        given(F64 if isinstance(np.asarray(row).flat[0], float) else I64, row) for row in inputs
    ]
    example = Example(build, operands, lambda: np.zeros(()))
    block = derivative(example, 1)
    cotangents: list[Numbers] = []
    for number, argument in enumerate(block.arguments[len(operands) :]):
        shape = example.shape_of(argument)
        cotangents.append(np.asarray(dy, np.float64) if number == result else np.zeros(shape))
    found = example.run(block, [operand.array for operand in operands], cotangents)
    return [row.tolist() for row in found]


@pytest.mark.parametrize("choice", [array.Maximum, array.Minimum])
def test_of_two_equals_the_first_receives_the_derivative(choice: type[array.Binary]) -> None:
    def build(x: Value, y: Value) -> Op:
        return choice(x, y)

    assert received(build, [[1.0], [1.0]], [5.0]) == [[5.0], [0.0]]


def test_the_absolute_value_is_flat_at_0() -> None:
    assert received(array.Abs, [[0.0, -2.0]], [1.0, 1.0]) == [[0.0, -1.0]]


def test_x_to_the_0_is_flat_at_0() -> None:
    build: Build = array.Power
    assert received(build, [[0.0], [0.0]], [1.0]) == [[0.0], [0.0]]


def test_the_first_of_equals_in_an_axis_receives_the_derivative() -> None:
    x = [[1.0, 3.0], [3.0, 3.0]]
    assert received(lambda x: array.ReduceMax(x, (1,)), [x], [1.0, 2.0]) == [[[0, 1], [2, 0]]]
    assert received(lambda x: array.ReduceMax(x, (0, 1)), [x], 1.0) == [[[0, 1], [0, 0]]]
    assert received(lambda x: array.ReduceMin(x, (0,)), [x], [1.0, 2.0]) == [[[1, 2], [0, 0]]]


def test_a_nan_that_is_the_maximum_receives_the_derivative() -> None:
    x = [1.0, float("nan"), 3.0]
    assert received(lambda x: array.ReduceMax(x, (0,)), [x], 1.0) == [[0, 1, 0]]


def test_the_first_of_equals_in_a_window_receives_the_derivative() -> None:
    def pool(x: Value) -> Op:
        return array.ReduceWindow(x, "max", (3,), (1,), ((0, 0),), (1,))

    assert received(pool, [[2.0, 5.0, 5.0, 5.0]], [1.0, 10.0]) == [[0, 11, 0, 0]]


def test_the_running_maximum_stays_with_the_first_of_equals() -> None:
    def build(x: Value) -> Op:
        return array.CumulativeMax(x, 0)

    assert received(build, [[3.0, 1.0, 3.0, 4.0]], [1, 2, 4, 8]) == [[7, 0, 0, 8]]


def test_a_product_with_zeros_has_the_derivative_of_the_polynomial() -> None:
    def build(x: Value) -> Op:
        return array.ReduceProduct(x, (0,))

    assert received(build, [[0.0, 2.0, 3.0]], 1.0) == [[6, 0, 0]]
    assert received(build, [[0.0, 2.0, 0.0]], 1.0) == [[0, 0, 0]]


def test_only_the_update_that_stays_receives_the_derivative() -> None:
    def build(x: Value, u: Value, i: Value) -> Op:
        return array.Scatter(x, u, (i,), (0,))

    target, updates = received(build, [[1.0, 1.0], [5.0, 6.0], [0, 0]], [3.0, 4.0])
    assert (target, updates) == ([0, 4], [0, 3])


def test_of_a_scattered_maximum_the_target_comes_first() -> None:
    def build(x: Value, u: Value, i: Value) -> Op:
        return array.Scatter(x, u, (i,), (0,), "max")

    target, updates = received(build, [[5.0, 1.0], [5.0, 2.0, 2.0], [0, 1, 1]], [3.0, 4.0])
    assert (target, updates) == ([3, 0], [0, 4, 0])


def test_of_equal_elements_the_best_k_take_the_first() -> None:
    assert received(lambda x: array.TopK(x, 0, 1), [[2.0, 2.0]], [1.0]) == [[1, 0]]


def test_what_does_not_change_has_derivative_0() -> None:
    for build in (array.Floor, array.Ceil, array.Round, array.Trunc, array.Sign):
        assert received(build, [[0.5, 2.0]], [1.0, 1.0]) == [[0, 0]]


def test_relu_is_flat_at_0() -> None:
    """As `maximum(0, x)`: of equals the first, which is the constant."""
    build: Build = array.Maximum
    assert received(build, [[0.0] * 3, [-1.0, 0.0, 2.0]], [1.0] * 3)[1] == [0, 0, 1]
