"""Concatenations along rows, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import parse_passes
from dlc.ir.types import BOOL, F16, F32, F64, I8, DType, TensorType
from tests.lowering.everywhere import check, text_after


def joined(emit: Builder, *parts: Value) -> Sequence[Value]:
    return (emit(array.Concatenate(parts, 2)),)


def parts(dtype: DType, *widths: Size, rows: Size = 5) -> list[TensorType]:
    return [TensorType(dtype, (3, rows, width)) for width in widths]


@pytest.mark.parametrize("dtype", [F32, F64, I8, BOOL, F16])
def test_pieces_of_any_width_and_dtype(dtype: DType) -> None:
    check(joined, *parts(dtype, 16, 35, 64))


def test_rows_of_any_number() -> None:
    types = parts(F32, 20, 17, rows=symbol("T"))
    check(joined, *types, dims={"T": (0, 50)}, at=[{"T": 0}, {"T": 7}])


def test_pieces_that_are_empty_along_another_axis() -> None:
    check(joined, *parts(F32, 2, 3, rows=0))


def test_what_is_computed_before_and_behind_a_concatenation() -> None:
    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        pair = [emit(array.Negate(x)), emit(array.Exp(y))]
        both = emit(array.Concatenate(pair, 2))
        return both, emit(array.Multiply(both, both))

    check(program, *parts(F32, 24, 40))


def test_narrow_pieces_are_chosen_element_by_element() -> None:
    check(joined, *parts(F32, 3, 1, 15))
    passes = parse_passes("lower_to_kernels")
    assert "kernel.concatenate" not in text_after(joined, parts(F32, 3, 20), passes)
    assert "kernel.concatenate" in text_after(joined, parts(F32, 16, 20), passes)


def test_many_pieces_are_joined_in_groups() -> None:
    check(joined, *parts(F32, *range(16, 46)))
