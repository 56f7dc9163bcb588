"""The random numbers: known answers of the generator, and what a statistician would ask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects import array, rng
from dlc.dialects.func import Return
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import Shape, symbol
from dlc.ir.types import F32, F64, I32, I64, DType, TensorType
from tests.op_examples.example import HERE, Numbers

KEY = np.array([1, 2], np.uint32)


def words(*numbers: int) -> tuple[NDArray[np.uint64], ...]:
    return tuple(np.array([number], np.uint64) for number in numbers)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a8885a308d313198a2e03707344",
            "a4093822299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_generator_gives_the_known_answers(counter: str, key: str, expected: str) -> None:
    """The vectors for philox4x32-10 that its authors publish with Random123 (kat_vectors)."""
    x0, x1, x2, x3 = words(*[int(counter[k : k + 8], 16) for k in range(0, 32, 8)])
    found = rng.philox((x0, x1, x2, x3), (int(key[:8], 16), int(key[8:], 16)))
    assert " ".join(f"{int(word[0]):08x}" for word in found) == expected


def draw(build: Callable[[Value], Op], key: Array = KEY, **dims: int) -> Numbers:
    """The first result of an operation on a key."""
    block = Block([rng.KEY])
    emit = Builder(block, HERE)
    op = emit.place(build(block.arguments[0]))
    emit.place(Return(op.results[:1]))
    (result,) = Evaluation(dims).run(block, [key])
    return result


def bits(shape: Shape) -> Callable[[Value], Op]:
    return lambda key: rng.Bits(key, shape)


def test_a_number_depends_on_its_place_and_not_on_the_size() -> None:
    long = draw(bits((1000,)))
    np.testing.assert_array_equal(draw(bits((7,))), long[:7])
    np.testing.assert_array_equal(draw(bits((10, 100))).ravel(), long)
    np.testing.assert_array_equal(draw(bits((symbol("B"), 10)), B=3).ravel(), long[:30])


def test_other_keys_give_other_numbers() -> None:
    seen = {
        draw(bits((4,)), np.array(key, np.uint32)).tobytes()
        for key in [(0, 0), (0, 1), (1, 0), (1, 1)]
    }
    assert len(seen) == 4


def fold(number: int) -> Numbers:
    block = Block([rng.KEY])
    emit = Builder(block, HERE)
    data = emit(array.Fill(number, TensorType(I64)))
    emit.place(Return((emit(rng.Fold(block.arguments[0], data)),)))
    (result,) = Evaluation().run(block, [KEY])
    return result


def test_folded_keys_differ_from_each_other_and_from_the_numbers_drawn() -> None:
    keys = {fold(number).tobytes() for number in range(100)}
    assert len(keys) == 100
    drawn = draw(bits((400,))).reshape(-1, 2)
    assert not keys & {row.tobytes() for row in drawn}


COUNT = 100_000


def uniform(dtype: DType) -> Numbers:
    return draw(lambda key: rng.Uniform(key, (COUNT,), dtype)).astype(np.float64)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_uniforms_fill_the_unit_interval_evenly(dtype: DType) -> None:
    numbers = uniform(dtype)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.bincount((numbers * 50).astype(np.int64), minlength=50)
    assert chi_square(counts, [1 / 50] * 50) < 100  # 49 degrees: above 100 once in 40,000 keys


def chi_square(counts: NDArray[np.int64], probabilities: Sequence[float]) -> float:
    expected = np.array(probabilities) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_neighbours_are_independent() -> None:
    numbers = uniform(F32) - 0.5
    for distance in (1, 2, 3, 4, 8):
        correlation = 12 * float(np.mean(numbers[:-distance] * numbers[distance:]))
        assert abs(correlation) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_normals_have_the_moments_of_the_normal_distribution(dtype: DType) -> None:
    numbers = draw(lambda key: rng.Normal(key, (COUNT,), dtype)).astype(np.float64)
    error = 5 / math.sqrt(COUNT)
    assert abs(numbers.mean()) < error
    assert abs((numbers**2).mean() - 1) < error * math.sqrt(2)
    assert abs((numbers**3).mean()) < error * math.sqrt(15)
    assert abs((numbers**4).mean() - 3) < error * math.sqrt(96)
    assert np.isfinite(numbers).all()


def test_a_probability_is_met() -> None:
    block = Block([rng.KEY])
    emit = Builder(block, HERE)
    quarter = emit(array.Fill(0.25, TensorType(F32, (COUNT,))))
    emit.place(Return((emit(rng.Bernoulli(block.arguments[0], quarter)),)))
    (result,) = Evaluation().run(block, [KEY])
    assert abs(np.count_nonzero(result) / COUNT - 0.25) < 5 * math.sqrt(0.25 * 0.75 / COUNT)


def categories(logits: Numbers) -> NDArray[np.int64]:
    block = Block([rng.KEY, TensorType(F32, logits.shape)])
    emit = Builder(block, HERE)
    key, scores = block.arguments
    emit.place(Return((emit(rng.Categorical(key, scores, 1)),)))
    (result,) = Evaluation().run(block, [KEY, logits])
    return np.bincount(result.astype(np.int64), minlength=logits.shape[1])


def test_categories_come_as_often_as_their_softmax_says() -> None:
    weights = [0.1, 0.2, 0.3, 0.4]
    logits = np.tile(np.log(np.array(weights, np.float32)) + 7, (COUNT, 1))
    assert chi_square(categories(logits), weights) < 25  # 3 degrees: once in 60,000 keys


def test_a_category_that_is_excluded_never_comes() -> None:
    logits = np.tile(np.array([-np.inf, 0, -np.inf], np.float32), (COUNT, 1))
    assert categories(logits).tolist() == [0, COUNT, 0]


def test_a_permutation_has_each_number_once_and_every_order_equally_often() -> None:
    large = draw(lambda key: rng.Permutation(key, 1000))
    assert sorted(large.tolist()) == list(range(1000))
    orders: dict[bytes, int] = {}
    for seed in range(1200):
        key = np.array([seed, 0], np.uint32)
        order = draw(lambda k: rng.Permutation(k, 3), key).tobytes()
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 6
    assert (
        chi_square(np.array(list(orders.values())), [1 / 6] * 6) < 30
    )  # 5 degrees: once in 60,000


def test_whole_numbers_come_equally_often() -> None:
    block = Block([rng.KEY])
    emit = Builder(block, HERE)
    low, high = (emit(array.Fill(end, TensorType(I32))) for end in (-3, 4))
    emit.place(Return((emit(rng.RandInt(block.arguments[0], low, high, (COUNT,))),)))
    (result,) = Evaluation().run(block, [KEY])
    assert chi_square(np.bincount(result.astype(np.int64) + 3), [1 / 7] * 7) < 35
