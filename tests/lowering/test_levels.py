"""What the optimisation levels may change: -O1 no bit but the sign of zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array, nn
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.attributes import Dense
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Options, parse_passes
from dlc.ir.types import F16, F32, F64, DType, TensorType
from tests.lowering.everywhere import Program, called, model_of, random_inputs, text_after
from tests.suites import every

DTYPES = (F32, F64, F16)


def number(emit: Builder, value: float, like: Value) -> Value:
    return array.constant_like(emit, value, like)


def functions_of_constants(emit: Builder, x: Value) -> Sequence[Value]:
    functions = (array.Exp, array.Log, array.Tanh, array.Sin, array.Erf, array.Sqrt, array.Abs)
    found = [emit(function(number(emit, 0.7, x))) for function in functions]
    powers = emit(array.Power(number(emit, 1.7, x), number(emit, 0.3, x)))
    return [emit(array.Multiply(x, value)) for value in (*found, powers)]


def sums_of_constants(emit: Builder, x: Value) -> Sequence[Value]:
    type = tensor_type(x)
    values = np.linspace(-1, 2, 63).reshape(7, 9).astype(type.dtype.numpy)
    small = emit(array.Constant(Dense.of(values, type.dtype)))
    sums = emit(array.ReduceSum(small, (0, 1)))
    totals = emit(array.CumulativeSum(small, 1))
    product = emit(array.MatMul(small, emit(array.Transpose(small, (1, 0)))))
    return sums, totals, product, emit(array.Negate(x))


def sums_behind_formulas(emit: Builder, x: Value) -> Sequence[Value]:
    turned = emit(array.Transpose(x, (1, 0)))
    squares = emit(array.Multiply(x, x))
    root = emit(array.Sqrt(emit(array.ReduceSum(squares, (1,)))))
    mixed = emit(array.ReduceSum(emit(array.Multiply(turned, turned)), (0,)))
    return emit(array.ReduceSum(turned, (1,))), root, mixed, emit(array.ReduceSum(squares, (0, 1)))


def sums_of_another_width(emit: Builder, x: Value) -> Sequence[Value]:
    wide = emit(array.Cast(emit(array.Exp(emit(array.Cast(x, F64)))), tensor_type(x).dtype))
    total = emit(array.ReduceSum(wide, (1,)))
    return total, emit(array.Cast(emit(array.Cast(total, F64)), F32))


def normalised(emit: Builder, x: Value) -> Sequence[Value]:
    turned = emit(array.Transpose(emit(array.Tanh(x)), (1, 0)))
    return emit(nn.Softmax(turned, 1)), emit(nn.LayerNorm(x, (), (), 1, 1e-5))


@pytest.mark.parametrize("dtype", every(2, DTYPES), ids=str)
@pytest.mark.parametrize(
    "program",
    [
        functions_of_constants,
        sums_of_constants,
        sums_behind_formulas,
        sums_of_another_width,
        normalised,
    ],
)
def test_the_first_level_changes_no_bit(program: Program, dtype: DType) -> None:
    types = [TensorType(dtype, (37, 83))]
    inputs = random_inputs(types, {})
    plain, simplified = (
        called(model_of(program, types, Options(level=level)), inputs) for level in (0, 1)
    )
    for one, other in zip(plain, simplified, strict=True):
        # Equal but for the sign of zero; NaN equals NaN.
        assert np.array_equal(one, other, equal_nan=True)


def test_functions_of_constants_are_left_to_the_machine() -> None:
    text = text_after(
        functions_of_constants, [TensorType(F32, (4,))], parse_passes("canonicalize,dce")
    )
    assert text.count("array.exp") == text.count("array.power") == 1
    assert "array.sqrt" not in text
    assert "array.abs" not in text
