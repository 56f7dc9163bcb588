"""Formulas that read across what they write go down the rows, one register wide."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array
from dlc.ir.core import Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BOOL, F16, F32, F64, I64, DType, TensorType
from tests.lowering.everywhere import check
from tests.suites import pairs

LEVELS = (0, 2)


def turned(emit: Builder, x: Value) -> Sequence[Value]:
    return [emit(array.Transpose(x, axes)) for axes in ((0, 2, 1), (2, 1, 0), (1, 2, 0))]


def added(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Add(x, emit(array.Transpose(y, (1, 0))))),)


@pytest.mark.parametrize(
    ("shape", "dtype", "level"),
    pairs(
        [pytest.param(shape, id=str(shape)) for shape in ((3, 40, 70), (1, 9, 1), (2, 1, 65))],
        [pytest.param(dtype, id=str(dtype)) for dtype in (F32, F64, F16, I64)],
        LEVELS,
    ),
)
def test_transposes_of_any_axes(shape: tuple[int, ...], dtype: DType, level: int) -> None:
    check(turned, TensorType(dtype, shape), level=level, rtol=1e-3 if dtype is F16 else 1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_a_sum_with_a_transpose(level: int) -> None:
    check(added, TensorType(F32, (130, 70)), TensorType(F32, (70, 130)), level=level)


def test_transposes_serve_every_size() -> None:
    n, m = symbol("N"), symbol("M")
    dims: dict[str, tuple[int, int | None]] = {"N": (0, None), "M": (0, None)}
    sizes = [{"N": 0, "M": 3}, {"N": 5, "M": 0}, {"N": 1, "M": 77}, {"N": 33, "M": 8}]
    types = TensorType(F32, (n, m)), TensorType(F32, (m, n))
    check(added, *types, dims=dims, at=sizes)


def test_bools_turn_too() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        positive = emit(array.Compare(x, array.fill(emit, 0, TensorType(F32, (9, 30))), "gt"))
        assert positive.type is TensorType(BOOL, (9, 30))
        return (emit(array.Transpose(positive, (1, 0))),)

    check(program, TensorType(F32, (9, 30)))
