"""Products of integers in floats: no bit differs from the product of the integers."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.dialects import array
from dlc.ir.core import Block, Builder, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import F32, I8, I32, U8, DType, TensorType
from dlc.passes.graph.integer_range import integer_range

SUMS = """dlc 1
export fn f(x: {lhs}[7, {k}], w: {rhs}[{k}, 9]) -> {to}[7, 9] = {to}(x) @ {to}(w)
"""


@pytest.mark.parametrize(
    ("lhs", "rhs", "to", "k"),
    [
        ("u8", "i8", "i32", 40),  # in f32
        ("u8", "u8", "i32", 3000),  # in f64
        ("u8", "u8", "i32", 40000),  # beyond i32
        ("i8", "i8", "i16", 300),  # beyond i16
        ("i16", "i16", "i64", 70),
        ("u8", "u8", "u8", 5),
        ("i32", "i32", "i32", 5),  # not in floats
    ],
)
def test_sums_of_extreme_factors_are_exact(lhs: str, rhs: str, to: str, k: int) -> None:
    model = dlc.compile(text=SUMS.format(lhs=lhs, rhs=rhs, to=to, k=k))
    types = [DType.named[name].numpy for name in (lhs, rhs, to)]
    ends = [np.iinfo(dtype.name) for dtype in types[:2]]
    stream = np.random.default_rng(k)
    x, w = (
        stream.choice(np.asarray([end.min, end.max, end.max - 1]), shape).astype(dtype)
        for end, shape, dtype in zip(ends, ((7, k), (k, 9)), types, strict=False)
    )
    with np.errstate(all="ignore"):
        wanted = np.matmul(x.astype(types[2]), w.astype(types[2]))
    np.testing.assert_array_equal(model.f(x, w), wanted)


def test_a_convolution_of_integers_is_exact_at_every_level_of_optimisation() -> None:
    text = """dlc 1
export fn f(x: u8[2, 9, 8, 4], w: i8[3, 2, 4, 5], b: i32[5]) -> i32[2, 4, 4, 5] =
  conv(i32(x) - 120, i32(w), b, stride=2, padding=[[0, 0], [1, 0]])
"""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (2, 9, 8, 4)).astype(np.uint8)
    w = stream.integers(-128, 128, (3, 2, 4, 5)).astype(np.int8)
    b = stream.integers(-(2**31), 2**31, 5).astype(np.int32)
    plain, fast = (dlc.compile(text=text, level=level).f(x, w, b) for level in (0, 3))
    padded = np.pad(x.astype(np.int64) - 120, [(0, 0), (0, 0), (1, 0), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (1, 2))[:, ::2, ::2]
    wanted = np.einsum("nhwcij,ijco->nhwo", windows, w.astype(np.int64)) + b
    np.testing.assert_array_equal(plain, wanted.astype(np.int32))
    np.testing.assert_array_equal(fast, plain)


def test_the_range_of_a_value_follows_from_what_computes_it() -> None:
    block = Block([TensorType(U8, (4,)), TensorType(I8, (4,)), TensorType(F32, (4,))])
    emit = Builder(block, FileLocation("here", 1, 1))
    byte, signed, real = block.arguments
    wide, narrow = emit(array.Cast(byte, I32)), emit(array.Cast(signed, I32))
    ten = array.constant_like(emit, 10, wide)
    found: list[tuple[Value, tuple[int, int]]] = [
        (wide, (0, 255)),
        (emit(array.Subtract(wide, ten)), (-10, 245)),
        (emit(array.Add(wide, narrow)), (-128, 382)),
        (emit(array.Minimum(wide, ten)), (0, 10)),
        (emit(array.Maximum(narrow, ten)), (10, 127)),
        (emit(array.Concatenate((wide, narrow), 0)), (-128, 255)),
        (emit(array.Cast(real, I32)), (-(2**31), 2**31 - 1)),
        (emit(array.Add(byte, byte)), (0, 255)),  # it wraps
        (emit(array.Compare(byte, byte, "eq")), (0, 1)),
    ]
    assert [integer_range(value) for value, _ in found] == [wanted for _, wanted in found]
