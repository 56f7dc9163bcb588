"""Running totals, sorting, scattered updates and random bits at every level."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dlc.dialects import array, rng
from dlc.ir.core import Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.types import F16, F32, F64, I8, I32, I64, U32, DType, TensorType
from tests.lowering.everywhere import check
from tests.suites import every

LEVELS = (0, 2)
DTYPES = (F32, F64, I32, I8)


@pytest.mark.parametrize(("dtype", "level"), every(3, itertools.product(DTYPES, LEVELS)))
def test_running_totals_along_any_axis(dtype: DType, level: int) -> None:
    def totals(emit: Builder, x: Value) -> Sequence[Value]:
        kinds = [
            (axis, reverse, exclusive)
            for axis in (0, 1, 2)
            for reverse in (False, True)
            for exclusive in (False, True)
        ]
        sums = [emit(array.CumulativeSum(x, *kind)) for kind in kinds]
        return [*sums, emit(array.CumulativeProduct(x, 1)), emit(array.CumulativeMax(x, 2))]

    check(totals, TensorType(dtype, (3, 7, 70)), level=level)


@pytest.mark.parametrize(("dtype", "level"), every(3, itertools.product(DTYPES, LEVELS)))
def test_sorting_along_any_axis_takes_values_along(dtype: DType, level: int) -> None:
    def sorts(emit: Builder, x: Value) -> Sequence[Value]:
        places = emit(array.Iota((5, 33, 4), 1, I32))
        return (
            *emit.all(array.Sort(x, (places,), 1)),
            *emit.all(array.Sort(x, (places,), 0, True)),
            *emit.all(array.TopK(x, 1, 3)),
            *emit.all(array.TopK(x, 2, 4, False)),
        )

    check(sorts, TensorType(dtype, (5, 33, 4)), level=level)


@pytest.mark.parametrize(
    ("dtype", "mode", "level"),
    every(6, itertools.product([*DTYPES, F16], ["set", "add", "multiply", "max", "min"], LEVELS)),
)
def test_updates_that_meet_in_a_place_come_in_order(dtype: DType, mode: str, level: int) -> None:
    def scatters(emit: Builder, x: Value, rows: Value, cells: Value) -> Sequence[Value]:
        index = emit(array.Remainder(emit(array.Iota((9,), 0, I64)), array.fill(emit, 4, nine)))
        other = emit(array.Remainder(emit(array.Iota((9,), 0, I64)), array.fill(emit, 3, nine)))
        return (
            emit(array.Scatter(x, rows, (index,), (0,), mode)),
            emit(array.Scatter(x, cells, (index, other), (0, 1), mode)),
        )

    nine = TensorType(I64, (9,))
    types = [TensorType(dtype, shape) for shape in ((6, 70), (9, 70), (9,))]
    check(scatters, *types, level=level, rtol=1e-3 if dtype is F16 else 1e-5)


def test_random_bits_are_those_of_the_evaluator() -> None:
    def bits(emit: Builder, key: Value, number: Value) -> Sequence[Value]:
        folded = emit(rng.Fold(key, number))
        return folded, emit(rng.Bits(folded, (3, 7, 5))), emit(rng.Bits(key, (8,)))

    check(bits, TensorType(U32, (2,)), TensorType(I64))


def test_work_in_order_serves_every_size() -> None:
    n, m = symbol("N"), symbol("M")

    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return (
            emit(array.CumulativeSum(x, 0)),
            emit(array.CumulativeSum(x, 1)),
            *emit.all(array.Sort(x, (), 0)),
            *emit.all(array.Sort(x, (), 1)),
        )

    sizes = [{"N": 1, "M": 1}, {"N": 40, "M": 3}, {"N": 2, "M": 131}]
    dims: dict[str, tuple[int, int | None]] = {"N": (1, None), "M": (1, 200)}
    check(program, TensorType(F32, (n, m)), dims=dims, at=sizes)
