"""Products of bf16 in pairs: at every level, for every way in which the factors are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import dlc
from dlc.dialects import array, vec
from dlc.ir.attributes import encode
from dlc.ir.core import Array, Block, Builder, Evaluation, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BF16, F32, I32, TensorType, VectorType
from dlc.runtime.cpu.features import host_features
from dlc.target import Target
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import Program, check
from tests.suites import every

ZEN = Target(CpuTarget.named("znver5"))
"""A processor that multiplies bf16 in pairs."""
B = symbol("B")


def multiplied(*, transposed: bool) -> Program:
    """The product of two matrices, rounded to bf16 before and after."""

    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        x, w = emit(array.Cast(x, BF16)), emit(array.Cast(w, BF16))
        if transposed:
            w = emit(array.Transpose(w, (1, 0)))
        product = emit(array.MatMul(x, w))
        return (emit(array.Cast(product, F32)),)

    return program


@pytest.mark.parametrize(
    ("m", "k", "n", "transposed"),
    every(
        3,
        [
            (m, k, n, transposed)
            for m, k, n in ((1, 34, 20), (5, 30, 70), (9, 2, 64), (3, 1030, 17), (2, 31, 5))
            for transposed in (False, True)
        ],
    ),
)
def test_a_product_is_the_same_at_every_level(m: int, k: int, n: int, transposed: bool) -> None:
    weights = (n, k) if transposed else (k, n)
    types = TensorType(F32, (m, k)), TensorType(F32, weights)
    context = check(multiplied(transposed=transposed), *types, target=ZEN, level=3, rtol=0.01)
    assert any("pairs of bf16" in each.what for each in context.log) == (k % 2 == 0)


def test_a_number_of_rows_that_is_known_at_the_call_may_be_one() -> None:
    types = TensorType(F32, (B, 36)), TensorType(F32, (36, 40))
    sizes = [{"B": 1}, {"B": 2}, {"B": 13}]
    check(
        multiplied(transposed=False),
        *types,
        target=ZEN,
        level=3,
        rtol=0.01,
        dims={"B": (1, 64)},
        at=sizes,
    )


def test_factors_of_two_dtypes_make_no_pairs() -> None:
    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        narrow = emit(array.Cast(w, BF16))
        return (emit(array.MatMul(x, emit(array.Cast(narrow, F32)))),)

    types = TensorType(F32, (4, 8)), TensorType(F32, (8, 6))
    context = check(program, *types, target=ZEN, level=3)
    assert not any("pairs of bf16" in each.what for each in context.log)


def test_pairs_are_added_one_after_the_other_and_what_is_below_the_normal_numbers_is_zero() -> None:
    pairs = VectorType(I32, 2)
    op = vec.DotPairs(*Block([pairs, pairs, VectorType(F32, 2)]).arguments)
    lhs, rhs = in_pairs(1, 2**24, 2.0**-127, 2), in_pairs(1, 1, 2.0**100, 2.0**-127)
    found = op.evaluate(Evaluation({}), lhs, rhs, np.asarray([1, 3], np.float32))
    # 1 + 2^24 rounds to 2^24 before the other product comes.
    np.testing.assert_array_equal(found, [2**24, 3])


def in_pairs(*numbers: float) -> Array:
    """Numbers as bf16, of which two fill an i32."""
    return encode(np.asarray(numbers, np.float32), BF16).view(np.int32)


@pytest.mark.skipif(
    "avx512bf16" not in host_features(), reason="the processor has no pairs of bf16"
)
def test_machine_code_adds_and_flushes_as_the_evaluator_does() -> None:
    numbers = [1.0, 2.0**24, -3.0, 2.0**-127, 2.0**-126, 2.0**-70, -(2.0**-60), 0.0]
    x = np.asarray([numbers, numbers[::-1]], np.float32)
    w = np.asarray([numbers[k:] + numbers[:k] for k in range(8)], np.float32)
    text = "dlc 1\nexport fn f(x: f32[2, 8], w: f32[8, 8]) -> f32[2, 8] = f32(bf16(x)) @ f32(bf16(w))\n"
    model = dlc.compile(text=text, level=3)
    factors = [encode(each, BF16) for each in (x, w)]
    sums = np.zeros((2, 8), np.float32)
    for k in range(0, 8, 2):
        rows = np.repeat(factors[0][:, k : k + 2], 8, axis=0).reshape(-1)
        columns = np.tile(factors[1][k : k + 2].T, (2, 1)).reshape(-1)
        op = vec.DotPairs(*Block([VectorType(I32, 16)] * 2 + [VectorType(F32, 16)]).arguments)
        inputs = [np.ascontiguousarray(each).view(np.int32) for each in (rows, columns)]
        sums = op.evaluate(Evaluation({}), *inputs, sums.reshape(-1)).reshape(2, 8)
    np.testing.assert_array_equal(np.asarray(model.f(x, w)), sums)
