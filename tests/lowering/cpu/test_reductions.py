"""Large reductions are shared by threads in parts that only the shape decides."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array, mem, nn, vec
from dlc.dialects.array.elementwise import tensor_type
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BOOL, F16, F32, F64, I32, DType, TensorType
from tests.lowering.everywhere import called, check, function_of, model_of, random_inputs
from tests.suites import every

SHAPES = [(70_000,), (1 << 17,), (3, 40_001), (301, 7, 50), (2, 65_536, 1), (65_537, 2)]
SHAPE_CASES = [pytest.param(shape, id=str(shape)) for shape in SHAPES]


def sums(emit: Builder, x: Value) -> Sequence[Value]:
    rank = len(tensor_type(x).shape)
    everything = tuple(range(rank))
    squares = emit(array.Multiply(x, x))
    return [
        emit(array.ReduceSum(x, everything)),
        emit(array.ReduceSum(squares, everything)),
        emit(array.ReduceMax(x, everything)),
        emit(array.ReduceMin(x, everything[-1:])),
        emit(array.ReduceSum(x, everything[:1])),
    ]


@pytest.mark.parametrize(("shape", "level"), every(4, itertools.product(SHAPE_CASES, [2, 0])))
def test_large_reductions_are_right(shape: tuple[int, ...], level: int) -> None:
    check(sums, TensorType(F32, shape), level=level, rtol=2e-4)


@pytest.mark.parametrize("dtype", [F64, F16, I32], ids=str)
def test_large_reductions_of_other_numbers_are_right(dtype: DType) -> None:
    check(sums, TensorType(dtype, (70_001,)), rtol=2e-3 if dtype is F16 else 1e-9)


def test_all_of_many_bools() -> None:
    def both(emit: Builder, x: Value) -> Sequence[Value]:
        zero = array.fill(emit, 3.5, tensor_type(x))
        below = emit(array.Compare(x, zero, "lt"))
        assert below.type is TensorType(BOOL, (70_000,))
        return emit(array.ReduceAnd(below, (0,))), emit(array.ReduceOr(below, (0,)))

    check(both, TensorType(F32, (70_000,)))


@pytest.mark.parametrize("shape", every(2, SHAPE_CASES))
def test_the_bits_are_the_same_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    types = [TensorType(F32, shape)]
    inputs = random_inputs(types, {})
    one, two, three = (
        called(model_of(sums, types, Options(), threads=threads), inputs) for threads in (1, 2, 3)
    )
    for a, b, c in zip(one, two, three, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
        np.testing.assert_array_equal(a, c, strict=True)


def test_a_large_sum_is_many_tiles_and_then_one() -> None:
    def total(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.ReduceSum(x, (0,))),)

    module, _ = function_of(total, [TensorType(F32, (1 << 20,))], {})
    Manager(Context()).run(module, pipeline("graph", "loop", 2))
    program = module.symbol("f")
    assert isinstance(program, mem.Program)
    parts, rest = [op for op in program.walk() if isinstance(op, mem.Call)]
    assert isinstance(parts.tiles, int)
    assert parts.tiles > 8
    assert rest.tiles == 1


@pytest.mark.parametrize("columns", [16, 40, 144])
def test_threads_share_the_columns_of_a_pool_of_one_picture(columns: int) -> None:
    def pool(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.ReduceSum(x, (1, 2))),)

    picture = TensorType(F32, (1, 112, 112, columns))
    module, _ = function_of(pool, [picture], {})
    Manager(Context()).run(module, pipeline("graph", "loop", 2))
    program = module.symbol("f")
    assert isinstance(program, mem.Program)
    (call,) = [op for op in program.walk() if isinstance(op, mem.Call)]
    assert call.tiles == -(-columns // 16)
    check(pool, picture, rtol=2e-4)


@pytest.mark.parametrize(("level", "dtype"), every(10, itertools.product([2, 0], [F32, F64, F16])))
def test_softmax_along_any_axis(dtype: DType, level: int) -> None:
    def softmaxes(emit: Builder, x: Value) -> Sequence[Value]:
        kinds = (nn.Softmax, nn.LogSoftmax)
        return [emit(kind(x, axis)) for kind in kinds for axis in (0, 1, 2)]

    check(
        softmaxes, TensorType(dtype, (5, 7, 70)), level=level, rtol=2e-3 if dtype is F16 else 2e-6
    )


@pytest.mark.parametrize("width", [1, 7, 8, 63, 64, 65, 127, 200])
def test_columns_are_summed_in_any_width(width: int) -> None:
    def columns(emit: Builder, x: Value) -> Sequence[Value]:
        sums = emit(array.ReduceSum(emit(array.Multiply(x, x)), (0,)))
        return sums, emit(array.ReduceMax(x, (0,)))

    check(columns, TensorType(F32, (50, width)))


def weighted_columns(emit: Builder, x: Value, weights: Value) -> Sequence[Value]:
    """The sum of each column, each row times a number of its own."""
    shape = tensor_type(x).shape
    rows = emit(array.Broadcast(weights, shape, (0,)))
    return (emit(array.ReduceSum(emit(array.Multiply(x, rows)), (0,))),)


@pytest.mark.parametrize("width", [3, 16, 70])
def test_columns_of_weighted_rows_are_summed(width: int) -> None:
    check(weighted_columns, TensorType(F32, (90, width)), TensorType(F32, (90,)), rtol=1e-5)


@pytest.mark.parametrize(("width", "gathers"), [(256, False), (3, True)])
def test_weighted_rows_are_read_as_they_lie(width: int, gathers: bool) -> None:
    """The gradient of a normalisation's scale is such a sum; a few columns are gathered instead."""
    types = [TensorType(F32, (90, width)), TensorType(F32, (90,))]
    module, _ = function_of(weighted_columns, types, {})
    Manager(Context()).run(module, pipeline("graph", "loop", 2))
    assert any(isinstance(op, vec.Gather) for op in module.walk()) == gathers
