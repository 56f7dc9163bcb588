"""Attention as one kernel: blocks of keys, masks, and rows that see nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects import nn
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Options
from dlc.ir.types import BOOL, F16, F32, TensorType
from tests.lowering.everywhere import Program, called, check, model_of, random_inputs
from tests.suites import every


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def attention(causal: Size | None = None) -> Program:
    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        query, keys, values, *mask = operands
        return (emit(nn.Attention(query, keys, values, mask, 0.25, causal)),)

    return program


def logarithms(causal: Size | None = None) -> Program:
    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        query, keys, values, *mask = operands
        return emit.all(nn.Attention(query, keys, values, mask, 0.25, causal, True))

    return program


def floats(types: Sequence[TensorType]) -> list[NDArray[np.float32]]:
    return [np.asarray(x, np.float32) for x in random_inputs(types, {})]


SIZES = [(1, 1, 4, 4), (5, 70, 8, 16), (50, 130, 16, 20), (7, 64, 3, 1)]


@pytest.mark.parametrize(
    ("m", "n", "d", "e", "causal"), every(4, itertools.product(SIZES, [None, 0, 65]))
)
def test_attention_in_blocks_of_keys(m: int, n: int, d: int, e: int, causal: int | None) -> None:
    check(attention(causal), f32(2, 3, m, d), f32(2, 3, n, d), f32(2, 3, n, e))


def test_a_mask_of_numbers_is_added() -> None:
    check(attention(), f32(2, 9, 8), f32(2, 75, 8), f32(2, 75, 8), f32(2, 9, 75))


def test_the_logarithms_of_the_sums_are_a_second_result() -> None:
    check(logarithms(), f32(2, 3, 50, 8), f32(2, 3, 130, 8), f32(2, 3, 130, 5))
    check(logarithms(-2), f32(5, 8), f32(7, 8), f32(7, 8))  # two queries see no key


def test_attention_of_any_size() -> None:
    b, t = symbol("B"), symbol("T")
    sizes: list[Mapping[str, int]] = [{"B": 1, "T": 1}, {"B": 2, "T": 67}]
    bounds = {"B": (1, 4), "T": (1, 100)}
    check(attention(0), f32(b, t, 8), f32(b, t, 8), f32(b, t, 8), dims=bounds, at=sizes)


def test_attention_in_half_precision_is_decomposed() -> None:
    types = [TensorType(F16, shape) for shape in ((4, 8), (9, 8), (9, 8))]
    check(attention(), *types, rtol=2e-3)


def test_a_mask_hides_keys_and_a_query_without_keys_gives_nan() -> None:
    types = [f32(6, 8), f32(80, 8), f32(80, 8), TensorType(BOOL, (6, 80))]
    query, keys, values = floats(types[:3])
    mask = np.ones((6, 80), np.bool_)
    mask[1] = False
    mask[2, :64] = False  # the first block has nothing for it
    mask[3, 64:] = False
    model = model_of(attention(), types, Options())
    found = np.asarray(called(model, [query, keys, values, mask])[0], np.float32)
    scores = np.where(mask, query @ keys.T * np.float32(0.25), -np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - np.max(scores, -1, keepdims=True))
        wanted = powers @ values / np.sum(powers, -1, keepdims=True)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    types = [f32(3, 8), f32(150, 8), f32(150, 8)]
    query, keys, values = floats(types)
    (found,) = called(model_of(attention(), types, Options()), [query * 500, keys, values])
    assert np.isfinite(found).all()


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    types = [f32(4, 100, 32), f32(4, 90, 32), f32(4, 90, 32)]
    inputs = random_inputs(types, {})
    one = model_of(attention(), types, Options())
    two = model_of(attention(), types, Options(), threads=2)
    np.testing.assert_array_equal(called(one, inputs)[0], called(two, inputs)[0], strict=True)
