"""Transcendental functions as generated code computes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.math_accuracy import (
    FUNCTIONS,
    LANES,
    Floats,
    Function,
    all_singles,
    samples,
    ulps,
    worst,
)
from benchmarks.scalar_functions import HERE, Compiled, evaluated, expanded
from dlc.dialects import scalar
from dlc.dialects.scalar import element
from dlc.ir.core import OPS, Block, Builder, Op
from dlc.ir.types import F32, F64, DType, VectorType
from dlc.lowering.math import EXPANSIONS, expansions
from dlc.lowering.math.coefficients import INVERSE_PI, INVERSE_PI_BITS
from dlc.target.cpu import CpuTarget
from tests.suites import every, together

TABLE = Path(__file__).parents[3] / "docs" / "math.md"
OLD = expansions(fma=False, half=False)
OLD_TARGET = CpuTarget.named("x86-64-v2")


@dataclass(frozen=True, slots=True)
class Published:
    """What the table says of a function and a dtype."""

    ulps: float
    operands: tuple[float, ...]
    complete: bool
    """Whether all numbers were tried."""


def published() -> dict[tuple[str, DType], Published]:
    """The table of `docs/math.md`."""
    rows: dict[tuple[str, DType], Published] = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"[0-9.]+", cells[2]):
            name, tried, *figures = cells
            for dtype, (error, at) in zip((F32, F64), (figures[:2], figures[2:]), strict=True):
                operands = tuple(float(x) for x in at.split(","))
                complete = dtype is F32 and tried == "all"
                rows[name, dtype] = Published(float(error), operands, complete)
    return rows


PUBLISHED = published()
ROUNDING = 0.0005
"""Of the figures in the table."""
CASES = [
    pytest.param(function, dtype, id=f"{function.name}-{dtype}")
    for function in FUNCTIONS.values()
    for dtype in (F32, F64)
]


def column(values: tuple[float, ...], dtype: DType) -> tuple[Floats, ...]:
    """One operand each as arrays of one element."""
    return tuple(np.array([value], dtype.numpy) for value in values)


def exact(function: Function, operands: tuple[Floats, ...]) -> Floats:
    finer = np.float64 if operands[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return function.reference(*[x.astype(finer) for x in operands])


def joined(function: Function, dtype: DType, count: int) -> tuple[Floats, ...]:
    parts = list(samples(function, dtype, count, seed=2))
    return tuple(np.concatenate([part[k] for part in parts]) for k in range(function.inputs))


def assert_same(got: Floats, want: Floats) -> None:
    """Bit for bit, but for which NaN it is."""
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want)
    )


def test_every_function_is_in_the_table() -> None:
    assert {name for name, _ in PUBLISHED} == set(FUNCTIONS)


@together(("function", "dtype"), CASES)
def test_no_error_exceeds_the_published_one(function: Function, dtype: DType) -> None:
    hold_to_the_published(function, dtype, 40_000 if dtype is F32 else 20_000)


@pytest.mark.long
@pytest.mark.parametrize(("function", "dtype"), CASES)
def test_no_error_of_many_exceeds_the_published_one(function: Function, dtype: DType) -> None:
    hold_to_the_published(function, dtype, 500_000 if dtype is F32 else 200_000)


def hold_to_the_published(function: Function, dtype: DType, count: int) -> None:
    found = worst(function, samples(function, dtype, count)).ulps
    assert found <= PUBLISHED[function.name, dtype].ulps + ROUNDING


@together(("function", "dtype"), CASES)
def test_the_published_error_occurs_where_the_table_says(function: Function, dtype: DType) -> None:
    row = PUBLISHED[function.name, dtype]
    operands = column(row.operands, dtype)
    error = ulps(function.compiled(dtype)(*operands), exact(function, operands))
    assert error[0] == pytest.approx(row.ulps, abs=ROUNDING)


@pytest.mark.parametrize(("function", "dtype"), every(10, CASES))
def test_machine_code_gives_the_bits_of_the_evaluator(function: Function, dtype: DType) -> None:
    operands = joined(function, dtype, 8000)
    body = expanded(function.op)
    want = evaluated(body, [dtype] * function.inputs)(*operands)
    assert_same(function.compiled(dtype)(*operands), want)
    assert_same(Compiled(body, [dtype] * function.inputs, 1)(*operands), want)


@pytest.mark.parametrize(("function", "dtype"), every(6, CASES))
def test_old_processors_compute_within_two_ulps_without_a_library(
    function: Function, dtype: DType
) -> None:
    operands = joined(function, dtype, 20_000)
    body = expanded(function.op, OLD)
    dtypes = [dtype] * function.inputs
    got = Compiled(body, dtypes, LANES[dtype] // 2, OLD_TARGET)(*operands)
    assert_same(got, evaluated(body, dtypes)(*operands))
    assert ulps(got, exact(function, operands)).max() <= 2


def near_multiples_of_half_pi() -> Iterator[float]:
    """For every exponent, the f64 numbers that are nearest to multiples of pi / 2.

    They are the denominators of convergents of the continued fraction of `2**exponent * 2 / pi`.
    """
    for exponent in range(-30, 972):
        top, bottom = (
            (INVERSE_PI << 1 << max(exponent, 0)),
            1 << (INVERSE_PI_BITS + max(-exponent, 0)),
        )
        before, last = 1, 0
        while bottom and last < 1 << 53:
            if last >= 1 << 40:
                yield float(last) * 2.0**exponent
            whole, (top, bottom) = top // bottom, (bottom, top % bottom)
            before, last = last, whole * last + before


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_near_multiples_of_half_pi_are_reduced_well(name: str) -> None:
    function = FUNCTIONS[name]
    angles = np.array(list(near_multiples_of_half_pi()))
    assert len(angles) > 5000
    got = function.compiled(F64)(angles)
    assert np.abs(np.sin(angles)).min() < 1e-17
    assert ulps(got, exact(function, (angles,))).max() <= 1.2


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_powers_are_exact_where_the_result_is_a_number_of_the_dtype(dtype: DType) -> None:
    base, exponent = np.meshgrid(np.arange(-13, 14), np.arange(0, 7))
    x, y = base.ravel().astype(dtype.numpy), exponent.ravel().astype(dtype.numpy)
    got = FUNCTIONS["power"].compiled(dtype)(x, y)
    np.testing.assert_array_equal(got, (base.astype(np.int64) ** exponent).ravel())


@together(("function", "dtype"), CASES)
def test_no_published_error_is_above_two_ulps(function: Function, dtype: DType) -> None:
    assert PUBLISHED[function.name, dtype].ulps <= 2


@pytest.mark.long
@pytest.mark.parametrize("name", [f.name for f in FUNCTIONS.values() if f.inputs == 1])
def test_no_f32_number_has_an_error_above_two_ulps(name: str) -> None:
    found = worst(FUNCTIONS[name], all_singles()).ulps
    assert found <= 2
    said = PUBLISHED[name, F32]
    assert not said.complete or found == pytest.approx(said.ulps, abs=ROUNDING)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_sigmoid_of_very_negative_numbers_is_denormal_and_not_zero(dtype: DType) -> None:
    x = np.array([-100 if dtype is F32 else -740]).astype(dtype.numpy)
    got = FUNCTIONS["sigmoid"].compiled(dtype)(x)
    assert 0 < got[0] < 2.0 ** (-126 if dtype is F32 else -1022)


BASIC = {
    scalar.Negate, scalar.Abs, scalar.Not, scalar.Floor, scalar.Round, scalar.Trunc, scalar.Sqrt,
    scalar.Add, scalar.Subtract, scalar.Multiply, scalar.Divide, scalar.Fma, scalar.And, scalar.Or,
    scalar.Xor, scalar.RawDivide, scalar.RawShiftLeft, scalar.RawShiftRight, scalar.Constant,
    scalar.Compare, scalar.Select, scalar.Cast, scalar.Bitcast,
}  # fmt: skip


def placed(function: Function, dtype: DType, lanes: int) -> list[Op]:
    """The operations that an expansion consists of."""
    block = Block([VectorType(dtype, lanes)] * function.inputs)
    expanded(function.op)(Builder(block, HERE), block.arguments)
    return list(block)


@together(("function", "dtype"), CASES)
def test_an_expansion_consists_of_basic_operations(function: Function, dtype: DType) -> None:
    operations = placed(function, dtype, LANES[dtype])
    assert {type(op) for op in operations} <= BASIC
    assert all(element(op.lhs.type).is_float for op in operations if isinstance(op, scalar.Divide))


def test_exp_in_f32_takes_few_operations() -> None:
    operations = placed(FUNCTIONS["exp"], F32, 8)
    assert sum(not isinstance(op, scalar.Constant) for op in operations) <= 26


def test_every_scalar_operation_is_basic_or_has_an_expansion() -> None:
    others = {scalar.Sign, scalar.Ceil, scalar.Maximum, scalar.Minimum}
    known = BASIC | set(EXPANSIONS) | others
    assert {
        name for name, cls in OPS.items() if name.startswith("scalar.") and cls not in known
    } == set()
