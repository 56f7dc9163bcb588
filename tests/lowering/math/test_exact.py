"""Integer operations, conversions and fused multiply-adds in machine code: the evaluator's bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.scalar_functions import Array, Compiled, Expansions, evaluated, expanded
from dlc.dialects import scalar
from dlc.ir.core import Builder, Op, Value
from dlc.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from dlc.lowering.math import EXPANSIONS, expansions
from dlc.target.cpu import CpuTarget
from tests import suites
from tests.suites import together

OLD = expansions(fma=False, half=False)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, BF16, F32, F64)
OPERATIONS = (
    scalar.Divide,
    scalar.FloorDivide,
    scalar.Remainder,
    scalar.TruncatedRemainder,
    scalar.Power,
    scalar.ShiftLeft,
    scalar.ShiftRight,
)
LANES = 8


def bits(dtype: DType, count: int) -> Array:
    """Patterns of bits: all there are of 8 and 16; of more, small, large and random ones."""
    unsigned = np.dtype(f"u{dtype.bytes}")
    if dtype.bits <= 16:
        found = np.arange(1 << dtype.bits).astype(unsigned)
    else:
        top = 1 << (dtype.bits - 1)
        near = [base + k for base in (0, 1, top >> 1, top) for k in range(-9, 10)]
        edges = np.array([n % (2 * top) for n in near], np.uint64)
        drawn = np.random.default_rng(7).integers(0, 2 * top - 1, count, np.uint64, endpoint=True)
        shifted = drawn >> (np.arange(count) % dtype.bits).astype(np.uint64)
        found = np.concatenate([edges, drawn, shifted]).astype(unsigned)
    return found.view(dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Every pair of some numbers."""
    some = bits(dtype, 60)
    some = some[:: max(1, len(some) // 256)]
    x, y = np.meshgrid(some, some)
    return x.ravel(), y.ravel()


def directly(make: Callable[..., Op]) -> Callable[[Builder, Sequence[Value]], Value]:
    """The operation itself, not what it expands to."""
    return lambda emit, operands: emit(make(*operands))


def assert_same_bits(got: Array, want: Array, dtype: DType) -> None:
    """But for which NaN it is."""
    unsigned = np.dtype(f"u{dtype.bytes}")
    differ = got.view(unsigned) != want.astype(got.dtype).view(unsigned)
    differ &= ~(is_nan(got, dtype) & is_nan(want, dtype))
    assert not differ.any(), np.flatnonzero(differ)[:10]


def is_nan(x: Array, dtype: DType) -> NDArray[np.bool_]:
    if dtype is BF16:
        return (x.view(np.uint16) & 0x7FFF) > 0x7F80
    return np.isnan(x) if dtype.is_float else np.zeros(len(x), np.bool_)


@together(("operation", "dtype"), itertools.product(OPERATIONS, INTEGERS))
def test_integer_operations_have_a_result_for_all_operands(
    operation: type[Op], dtype: DType
) -> None:
    x, y = pairs(dtype)
    want = evaluated(directly(operation), [dtype] * 2)(x, y)
    got = Compiled(expanded(operation), [dtype] * 2, LANES)(x, y)
    np.testing.assert_array_equal(got, want)


def convert(target: DType) -> Callable[[Value], Op]:
    return lambda value: scalar.Cast(value, target)


@together(
    ("source", "target", "processor"),
    suites.pairs([*INTEGERS, *FLOATS], [*INTEGERS, *FLOATS], ["x86-64-v2", "x86-64-v3"]),
)
def test_conversions_round_and_saturate_as_the_evaluator_does(
    source: DType, target: DType, processor: str
) -> None:
    table: Expansions = OLD if processor == "x86-64-v2" else EXPANSIONS
    make, x = convert(target), bits(source, 20_000)
    body = expanded(make, table) if source is not target else directly(make)
    got = Compiled(body, [source], LANES, CpuTarget.named(processor))(x)
    assert_same_bits(got, evaluated(directly(make), [source])(x), target)


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_a_fused_multiply_add_rounds_once(dtype: DType, processor: str) -> None:
    drawn = bits(dtype, 30_000)
    rng = np.random.default_rng(8)
    x, y, z = (rng.permutation(drawn) for _ in range(3))
    with np.errstate(all="ignore"):
        near = (-x * y).astype(dtype.numpy)
    x, y, z = np.concatenate([x, x]), np.concatenate([y, y]), np.concatenate([z, near])
    body = expanded(scalar.Fma, OLD) if processor == "x86-64-v2" else directly(scalar.Fma)
    got = Compiled(body, [dtype] * 3, LANES // 2, CpuTarget.named(processor))(x, y, z)
    assert_same_bits(got, evaluated(directly(scalar.Fma), [dtype] * 3)(x, y, z), dtype)
