"""Examples of random numbers: the generator and the distributions again, in Python's integers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from dlc.dialects import rng
from dlc.ir.core import Op, Value
from dlc.ir.dims import Shape, symbol
from dlc.ir.types import BF16, F16, F32, F64, I8, I32, I64, U32, U64, DType
from tests.op_examples.example import Example, Numbers, drawn, examples, given, wrap

B = symbol("B")
KEY = given(U32, [0x12345678, 0x9ABCDEF0])
MASK = 0xFFFFFFFF


def block(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds of Philox4x32 as its paper states them."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for number in range(10):
        bump0, bump1 = number * 0x9E3779B9 & MASK, number * 0xBB67AE85 & MASK
        high0, low0 = divmod(0xD2511F53 * x0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * x2, 1 << 32)
        x0, x1, x2, x3 = (
            high1 ^ x1 ^ (k0 + bump0 & MASK),
            low1,
            high0 ^ x3 ^ (k1 + bump1 & MASK),
            low0,
        )
    return [x0, x1, x2, x3]


def words(key: Numbers) -> Iterator[int]:
    """The random words of a key in order."""
    number = 0
    while True:
        yield from block([number & MASK, number >> 32, 0, 0], key.tolist())
        number += 1


def in_order(
    key: Numbers, shape: tuple[int, ...], element: Callable[[Iterator[int]], float]
) -> Numbers:
    """Elements made of the next words, row-major."""
    source = words(key)
    result = np.empty(shape, object)
    for place in np.ndindex(shape):
        result[place] = element(source)
    return result


def drawing(
    shape: tuple[int, ...], element: Callable[[Iterator[int]], float]
) -> Callable[[Numbers], Numbers]:
    """The same, as a function of the key."""
    return lambda key: in_order(key, shape, element)


def long(source: Iterator[int]) -> int:
    low, high = next(source), next(source)
    return high << 32 | low


def uniform(dtype: DType) -> Callable[[Iterator[int]], float]:
    if dtype is F64:
        return lambda source: (long(source) >> 11) / 2**53
    bits = {F32: 24, F16: 11, BF16: 8}[dtype]
    return lambda source: (next(source) >> 32 - bits) / 2**bits


def normal(source: Iterator[int]) -> float:
    u, v = next(source) + 0.5, next(source) >> 8
    return math.sqrt(-2 * math.log(u / 2**32)) * cmath.exp(2j * math.pi * v / 2**24).real


def long_normal(source: Iterator[int]) -> float:
    u, v = long(source), long(source) >> 11
    return (
        math.sqrt(-2 * math.log(float(Fraction(2 * u + 1, 2**65))))
        * cmath.exp(2j * math.pi * v / 2**53).real
    )


def fold(key: Numbers, data: Numbers) -> Numbers:
    number = int(data) % 2**64
    return np.array(block([number & MASK, number >> 32, 0, 1], key.tolist())[:2])


examples(
    "rng.key",
    Example(
        rng.Key,
        [given(U64, 0xFEDCBA9876543210)],
        lambda seed: np.array([0x76543210, 0xFEDCBA98]),
        exact=True,
    ),
)
examples(
    "rng.fold",
    Example(rng.Fold, [KEY, given(I64, 7)], fold, exact=True),
    Example(rng.Fold, [KEY, given(I64, -1)], fold, exact=True),
    Example(rng.Fold, [KEY, given(U64, 2**63 + 5)], fold, exact=True),
)


def bits(*shape: int) -> Callable[[Value], Op]:
    return lambda key: rng.Bits(key, shape)


examples(
    "rng.bits",
    *[
        Example(bits(*shape), [KEY], drawing(shape, next), exact=True)
        for shape in ((), (1,), (3, 3), (2, 0))
    ],
    Example(
        lambda key: rng.Bits(key, (B, 2)),
        [KEY],
        lambda key: in_order(key, (5, 2), next),
        exact=True,
        dims={"B": 5},
    ),
)


def draw(cls: Callable[[Value, Shape, DType], Op], dtype: DType) -> Callable[[Value], Op]:
    return lambda key: cls(key, (2, 5), dtype)


for dtype in (F64, F32, F16, BF16):
    examples(
        "rng.uniform",
        Example(
            draw(rng.Uniform, dtype),
            [KEY],
            drawing((2, 5), uniform(dtype)),
            exact=True,
        ),
    )
    examples(
        "rng.normal",
        Example(
            draw(rng.Normal, dtype),
            [KEY],
            drawing((2, 5), long_normal if dtype is F64 else normal),
        ),
    )


def bernoulli(dtype: DType) -> Callable[[Numbers, Numbers], Numbers]:
    def draw(key: Numbers, probability: Numbers) -> Numbers:
        numbers = in_order(key, probability.shape, uniform(dtype))
        return np.less(numbers.astype(float), probability)

    return draw


def gumbel(dtype: DType) -> Callable[[Iterator[int]], float]:
    def draw(source: Iterator[int]) -> float:
        u = (long(source) >> 12) + 0.5 if dtype is F64 else (next(source) >> 9) + 0.5
        return -math.log(-math.log(u / (2**52 if dtype is F64 else 2**23)))

    return draw


def categorical(dtype: DType) -> Callable[[Numbers, Numbers], Numbers]:
    """Along the last axis."""

    def draw(key: Numbers, logits: Numbers) -> Numbers:
        noise = in_order(key, logits.shape, gumbel(dtype)).astype(float)
        return np.argmax(logits + noise, -1)

    return draw


for dtype in (F64, F32, F16, BF16):
    examples(
        "rng.bernoulli",
        Example(rng.Bernoulli, [KEY, drawn(dtype, (3, 4), 0, 1)], bernoulli(dtype), exact=True),
    )
    examples(
        "rng.categorical",
        Example(
            lambda key, logits: rng.Categorical(key, logits, 1),
            [KEY, drawn(dtype, (6, 5))],
            categorical(dtype),
            exact=True,
        ),
    )


def randint(dtype: DType) -> Callable[..., Numbers]:
    def draw(key: Numbers, low: Numbers, high: Numbers) -> Numbers:
        distance = max(int(high) - int(low), 0) or 1
        return in_order(key, (4, 2), lambda source: wrap(int(low) + long(source) % distance, dtype))

    return draw


for dtype, low, high in ((I8, -128, 127), (I32, 5, 6), (I64, -(2**63), 2**63 - 1), (U32, 9, 3)):
    examples(
        "rng.randint",
        Example(
            lambda key, low, high: rng.RandInt(key, low, high, (4, 2)),
            [KEY, given(dtype, low), given(dtype, high)],
            randint(dtype),
            exact=True,
        ),
    )


def permutation(key: Numbers) -> Numbers:
    source = words(key)
    weights = [long(source) for _ in range(7)]
    return np.array(sorted(range(7), key=weights.__getitem__))


examples(
    "rng.permutation",
    Example(lambda key: rng.Permutation(key, 7), [KEY], permutation, exact=True),
    Example(
        lambda key: rng.Permutation(key, B, I64), [KEY], permutation, exact=True, dims={"B": 7}
    ),
)
