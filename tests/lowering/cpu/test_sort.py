"""Sorting and selection as machine code: dtypes, lengths, ties, zeros, NaN, and orders that are hard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import array
from dlc.dialects.array.order import sorting
from dlc.ir.core import Builder, Value
from dlc.ir.types import F32, I64, DType, TensorType
from dlc.target import Target
from tests.frontend.programs import as_list
from tests.lowering.everywhere import check
from tests.suites import each_value
from tests.targets import AVX2, AVX512

Numbers = NDArray[Any]
DTYPES = ("f64", "f32", "f16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool")
LENGTHS = (1, 64, 65, 300, 9000)
"""Below and above the bounds between the ways to sort."""


def drawn(dtype: str, length: int) -> Numbers:
    """Elements with many ties, the extremes of the dtype, and for floats zeros of both signs and NaN."""
    random = np.random.default_rng(length)
    kind = DType.named[dtype].numpy
    if kind.kind == "f":
        few = random.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5], length)
        return np.where(random.random(length) < 0.5, few, random.standard_normal(length)).astype(
            kind
        )
    if kind.kind == "b":
        return random.random(length) < 0.5
    ends = np.iinfo(kind.name)
    wide = random.integers(ends.min, ends.max, length, kind.name, endpoint=True)
    near = random.integers(0, 4, length).astype(kind)
    found = np.where(random.random(length) < 0.5, near, wide)
    found[: min(2, length)] = [ends.min, ends.max][:length]
    return found


@pytest.mark.parametrize(("dtype", "length"), each_value(DTYPES, LENGTHS))
def test_order_is_stable_and_bits_are_kept(dtype: str, length: int) -> None:
    type = f"{dtype}[2, {length}]"
    model = dlc.compile(
        text=f"""dlc 1
export fn rising(x: {type}) -> (y: {type}, at: i32[2, {length}]) = (sort(x), argsort(x))
export fn falling(x: {type}) -> (y: {type}, at: i32[2, {length}]) =
  (sort(x, descending=true), argsort(x, descending=true))
"""
    )
    x = np.stack([drawn(dtype, length), drawn(dtype, length)[::-1]])
    for entry, descending in (model.rising, False), (model.falling, True):
        y, at = as_list(entry(x))
        wanted = sorting(x, DType.named[dtype], 1, descending=descending)
        np.testing.assert_array_equal(at, wanted)
        assert y.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


@pytest.mark.parametrize(
    ("dtype", "k", "order"),
    each_value(("f32", "f64", "i16"), (1, 40, 700), ("random", "rising", "falling", "equal")),
)
def test_a_selection_takes_the_first_of_the_whole_order(dtype: str, k: int, order: str) -> None:
    model = dlc.compile(
        text=f"""dlc 1
dim N = {k}..
export fn best(x: {dtype}[N]) -> (values: {dtype}[{k}], places: i32[{k}]) = top_k(x, {k})
export fn least(x: {dtype}[5000]) -> (values: {dtype}[{k}], places: i32[{k}]) =
  top_k(x, {k}, largest=false)
"""
    )
    for length in (5000, 700, 1000):
        x = drawn(dtype, length)
        if order == "equal":
            x[:] = 1
        elif order != "random":
            x = np.sort(x)[:: -1 if order == "falling" else 1].copy()
        for entry, descending in (model.best, True), (model.least, False):
            if entry is model.least and length != 5000:
                continue
            values, places = as_list(entry(x))
            wanted = sorting(x, DType.named[dtype], 0, descending=descending)[:k]
            np.testing.assert_array_equal(places, wanted)
            assert values.tobytes() == x[wanted].tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32", "u8"])
def test_a_few_of_a_row_are_the_first_of_the_whole_order(dtype: str) -> None:
    kind = DType.named[dtype]
    for k in (1, 3, 8):
        type = f"(values: {dtype}[R, {k}], places: i32[R, {k}])"
        model = dlc.compile(
            text=f"""dlc 1
dim N = {k}..
dim R = 1..9
export fn best(x: {dtype}[R, N]) -> {type} = top_k(x, {k})
export fn least(x: {dtype}[R, N]) -> {type} = top_k(x, {k}, largest=false)
"""
        )
        for length in (8, 9, 15, 129, 1000):
            random = drawn(dtype, length)
            worst = np.nan if kind.is_float else np.iinfo(kind.numpy.name).max
            rows = [random, np.sort(random), np.sort(random)[::-1], np.full_like(random, 1)]
            rows += [np.full_like(random, worst), np.full_like(random, 0)]
            x = np.stack(rows)
            for entry, descending in (model.best, True), (model.least, False):
                values, places = as_list(entry(x))
                wanted = sorting(x, kind, 1, descending=descending)[:, :k]
                np.testing.assert_array_equal(places, wanted)
                assert values.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize(("dtype", "axis"), [(F32, 0), (F32, 1), (I64, 1)])
def test_a_selection_is_the_same_at_every_level(dtype: DType, axis: int, target: Target) -> None:
    def selects(emit: Builder, x: Value) -> list[Value]:
        return [value for k in (1, 3, 20) for value in emit.all(array.TopK(x, axis, k))]

    check(selects, TensorType(dtype, (133, 2) if axis == 0 else (2, 133)), target=target)


@pytest.mark.parametrize("dtype", [F32, I64])
def test_sorting_by_digits_is_right_at_every_level(dtype: DType) -> None:
    def sorts(emit: Builder, x: Value) -> list[Value]:
        return [*emit.all(array.Sort(x, (), 0, True)), *emit.all(array.TopK(x, 0, 3))]

    check(sorts, TensorType(dtype, (130, 2)))


def test_rows_may_be_empty() -> None:
    model = dlc.compile(
        text="""dlc 1
dim N = 0..
export fn f(x: f32[N]) -> (y: f32[N], at: i32[N]) = (sort(x), argsort(x, descending=true))
"""
    )
    for length in (0, 1, 5):
        y, at = as_list(model.f(np.arange(length, dtype=np.float32)))
        assert list(y) == list(range(length))
        assert list(at) == [*reversed(range(length))]


def test_results_are_the_same_on_any_number_of_threads() -> None:
    text = "dlc 1\nexport fn f(x: f32[64, 700]) -> f32[64, 700] = sort(x)\n"
    x = drawn("f32", 64 * 700).reshape(64, 700)
    models = [dlc.compile(text=text, threads=count) for count in (1, 2)]
    one, two = (as_list(model.f(x))[0].tobytes() for model in models)
    assert one == two
