"""What the array operations know about themselves before anything is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dlc
from dlc.dialects import array
from dlc.ir.attributes import Dense
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, TensorType
from tests.op_examples.example import HERE
from tests.suites import together

Build = Callable[[Builder, Value], Op]


def folded(build: Build, dtype: DType = F32) -> tuple[Value, Value | Dense | None]:
    """The argument of a block, and what an operation on it folds to."""
    block = Block([TensorType(dtype, (2, 3))])
    emit = Builder(block, HERE)
    (x,) = block.arguments
    return x, build(emit, x).fold()


def number(emit: Builder, like: Value, value: float) -> Value:
    return array.constant_like(emit, value, like)


SAME: list[Build] = [
    lambda e, x: array.Negate(e(array.Negate(x))),
    lambda e, x: array.Add(x, number(e, x, 0)),
    lambda e, x: array.Add(number(e, x, 0), x),
    lambda e, x: array.Subtract(x, number(e, x, 0)),
    lambda e, x: array.Multiply(x, number(e, x, 1)),
    lambda e, x: array.Multiply(number(e, x, 1), x),
    lambda e, x: array.Divide(x, number(e, x, 1)),
    lambda e, x: array.Power(x, number(e, x, 1)),
    lambda e, x: array.Maximum(x, x),
    lambda e, x: array.Select(number(e, e(array.Compare(x, x, "lt")), 1), x, number(e, x, 5)),
    lambda e, x: array.Cast(e(array.Cast(x, F64)), F32),
    lambda e, x: array.Cast(x, F32),
    lambda e, x: array.Bitcast(e(array.Bitcast(x, I32)), F32),
    lambda e, x: array.Reshape(e(array.Reshape(x, (6,))), (2, 3)),
    lambda e, x: array.Reshape(x, (2, 3)),
    lambda e, x: array.Transpose(e(array.Transpose(x, (1, 0))), (1, 0)),
    lambda e, x: array.Reverse(e(array.Reverse(x, (1,))), (1,)),
    lambda e, x: array.Broadcast(x, (2, 3), (0, 1)),
    lambda e, x: array.ReduceSum(x, ()),
    lambda e, x: array.Slice(x, (0, 0), (2, 3), (1, 1)),
    lambda e, x: array.Pad(x, e(array.Fill(0.0, TensorType(F32))), (0, 0), (0, 0), (0, 0)),
    lambda e, x: array.Concatenate((x,), 0),
]


@together("build", SAME)
def test_what_changes_nothing_is_its_operand(build: Build) -> None:
    x, result = folded(build)
    assert result is x


OTHER: list[Build] = [
    lambda e, x: array.Multiply(x, number(e, x, 0)),
    lambda e, x: array.Divide(x, number(e, x, 2)),
    lambda e, x: array.Cast(e(array.Cast(x, F16)), F32),
    lambda e, x: array.Cast(e(array.Cast(x, I64)), F32),
    lambda e, x: array.Subtract(x, x),
]


@pytest.mark.parametrize("build", OTHER)
def test_what_may_change_a_float_stays(build: Build) -> None:
    _, result = folded(build)
    assert result is None


def test_an_integer_times_0_is_0() -> None:
    block = Block([TensorType(I32, (4,))])
    emit = Builder(block, HERE)
    zero = number(emit, block.arguments[0], 0)
    assert array.Multiply(block.arguments[0], zero).fold() is zero


@pytest.mark.parametrize(("dtype", "ones"), [(BOOL, True), (I8, -1), (U8, 255)])
def test_bits_are_masked_by_all_and_by_none(dtype: DType, ones: int) -> None:
    block = Block([TensorType(dtype, (4,))])
    emit = Builder(block, HERE)
    (x,) = block.arguments
    every, none = number(emit, x, ones), number(emit, x, 0)
    assert array.And(x, every).fold() is x
    assert array.And(x, none).fold() is none
    assert array.Or(x, none).fold() is x
    assert array.Or(x, every).fold() is every


@pytest.mark.parametrize(
    ("narrow", "wide", "there_and_back"),
    [
        (F32, F64, True),
        (BF16, F32, True),
        (BF16, F16, False),
        (F16, BF16, False),
        (I32, F64, True),
        (I32, F32, False),
        (U8, I8, False),
        (U8, I32, True),
        (I8, U8, False),
        (BOOL, U8, True),
    ],
)
def test_a_cast_there_and_back_is_nothing_where_every_value_fits(
    narrow: DType, wide: DType, there_and_back: bool
) -> None:
    def build(emit: Builder, x: Value) -> Op:
        return array.Cast(emit(array.Cast(x, wide)), narrow)

    x, result = folded(build, narrow)
    assert (result is x) == there_and_back


def test_small_constants_are_computed() -> None:
    block = Block()
    emit = Builder(block, HERE)
    two = emit(array.Fill(2.0, TensorType(F32, (3,))))
    rising = emit(array.Constant(Dense.of(np.array([1, 2, 3], np.float32), F32)))
    assert array.Multiply(two, rising).fold() == Dense.of(np.array([2, 4, 6], np.float32), F32)
    whole = emit(array.Constant(Dense.of(np.array([1, 2, 3], np.int32), I32)))
    assert array.ReduceSum(whole, (0,)).fold() == Dense.of(np.array(6, np.int32), I32)
    assert array.ReduceSum(rising, (0,)).fold() is None, "the machine adds in its own order"
    assert array.Exp(rising).fold() is None, "the machine has its own formula"
    assert array.Compare(two, rising, "lt").fold() == Dense.of(np.array([False, False, True]), BOOL)
    assert array.Iota((3,), 0, F32).fold() == Dense.of(np.array([0, 1, 2], np.float32), F32)


def test_large_constants_are_not() -> None:
    block = Block()
    emit = Builder(block, HERE)
    large = emit(array.Fill(2.0, TensorType(F32, (257,))))
    assert array.Negate(large).fold() is None
    small = emit(array.Fill(2.0, TensorType(F32, ())))
    assert array.Broadcast(small, (257,), ()).fold() is None


def test_functions_whose_last_bit_may_differ_say_so() -> None:
    assert array.Exp.approximate
    assert array.Power.approximate
    assert not array.Sqrt.approximate
    assert not array.Add.approximate


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    ("result", "body"),
    [
        ("f32[1]", "[1.0, 2.0, 3.0, 4.0][S - 1 : S]"),
        ("f32[7]", "pad([1.0, 2.0, 3.0], [(S, 4 - S)])"),
        ("f32", "[1.0, 2.0, 3.0, 4.0][S - 1]"),
    ],
)
def test_a_table_read_from_a_size_on_is_left_to_the_call(
    result: str, body: str, level: int
) -> None:
    text = f"dlc 1\ndim S = 1..4\nexport fn f(x: f32[S]) -> {result} = {body}\n"
    found = dlc.compile(text=text, level=level).f(np.ones(2, np.float32))
    wanted = {"f32[1]": [2], "f32[7]": [0, 0, 1, 2, 3, 0, 0], "f32": 2}
    np.testing.assert_array_equal(found, wanted[result])
