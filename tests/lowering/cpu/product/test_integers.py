"""Products of integers by weights, in pairs of i16: no bit differs from the sums of the integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import dlc
from dlc.dialects import array, nn
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context
from dlc.ir.types import F32, I8, I32, U8, DType, TensorType
from dlc.runtime.cpu.features import LEVELS, host_features
from dlc.target import Target
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import Program, called, check
from tests.suites import every
from tests.targets import AVX2, AVX512

SIZES = (4, 1), (4, 2), (17, 1), (18, 2)
"""Channels and groups; an odd number of channels that a group has makes no pairs."""
SSE2 = Target(CpuTarget.named("x86-64"))


def convolution(groups: int) -> Program:
    """A 3 x 3 convolution with padding, whose sums are read as they are and scaled."""

    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        wide, kernels = emit(array.Cast(x, I32)), emit(array.Cast(w, I32))
        moved = emit(array.Subtract(wide, array.constant_like(emit, 3, wide)))
        padding = ((1, 1), (0, 2))
        sums = emit(nn.Conv(moved, kernels, (), (1, 1), padding, (1, 1), (1, 1), groups, "nhwc"))
        scaled = emit(array.Cast(sums, F32))
        return sums, emit(array.Multiply(scaled, array.constant_like(emit, 0.01, scaled)))

    return program


def takes_pairs(context: Context) -> bool:
    """Whether a product read pairs of i16."""
    return any("pairs of i16" in each.what for each in context.log)


@pytest.mark.parametrize(
    ("inputs", "groups", "target"),
    every(
        4,
        [(*each, target) for each in SIZES for target in (SSE2, AVX2, AVX512)],
    ),
)
def test_a_convolution_in_pairs_is_exact(inputs: int, groups: int, target: Target) -> None:
    types = TensorType(U8, (2, 4, 5, inputs)), TensorType(I8, (3, 3, inputs // groups, 6))
    context = check(convolution(groups), *types, target=target)
    assert takes_pairs(context) == (groups == 1 or inputs // groups % 2 == 0)


MATRICES = """dlc 1
module Layer {{
  param w: {dtype}[{k}, {n}]
  export fn f(x: u8[{m}, {k}]) -> (y: i32[{m}, {n}], z: f32[{m}, {n}]) {{
    let sums = (i32(x) - 7) @ i32(w)
    return (y=sums, z=f32(sums) * 0.01)
  }}
}}
"""


def matrices(m: int, k: int, n: int, dtype: DType, target: str) -> None:
    """Compare a product by a weight with NumPy's, of extreme integers and others."""
    stream = np.random.default_rng(k)
    ends = np.iinfo(dtype.numpy.name)
    w = stream.choice(np.asarray([ends.min, ends.max, ends.max - 1, 0]), (k, n)).astype(dtype.numpy)
    x = stream.choice(np.asarray([0, 1, 254, 255]), (m, k)).astype(np.uint8)
    text = MATRICES.format(m=m, k=k, n=n, dtype=dtype.name)
    model = dlc.compile(text=text, weights={"w": w}, target=f"cpu:{target}")
    sums, scaled = called(model, [x])
    wanted = (x.astype(np.int64) - 7) @ w.astype(np.int64)
    np.testing.assert_array_equal(sums, wanted)
    np.testing.assert_array_equal(scaled, wanted.astype(np.float32) * np.float32(0.01))


TARGETS = [
    name for name in ("x86-64", "x86-64-v3", "x86-64-v4") if set(LEVELS[name]) <= host_features()
]
"""Those whose code this machine runs."""


@pytest.mark.parametrize(
    ("m", "n", "target"), every(4, itertools.product([1, 3, 9], [5, 33], TARGETS))
)
def test_a_matrix_product_in_pairs_is_exact(m: int, n: int, target: str) -> None:
    matrices(m, 38, n, I8, target)


@pytest.mark.parametrize("target", every(1, TARGETS))
def test_sums_beyond_the_integers_of_f32_are_exact(target: str) -> None:
    matrices(2, 1200, 3, U8, target)


def test_an_odd_number_of_products_is_exact() -> None:
    matrices(2, 37, 3, I8, "x86-64-v3")


DEQUANTIZED = """dlc 1
module Layer {
  param w: i8[38, 9]
  param scales: f32[9]
  export fn f(x: u8[5, 38]) -> f32[5, 9] = (f32(i32(x) - 7) * 0.02) @ (f32(w) * scales)
}
"""


def test_dequantized_numbers_are_multiplied_before_they_are_scaled() -> None:
    stream = np.random.default_rng(0)
    w = stream.integers(-128, 128, (38, 9)).astype(np.int8)
    x = stream.integers(0, 256, (5, 38)).astype(np.uint8)
    scales = stream.uniform(0.001, 0.01, 9).astype(np.float32)
    model = dlc.compile(text=DEQUANTIZED, weights={"w": w, "scales": scales})
    (found,) = called(model, [x])
    sums = (x.astype(np.int64) - 7) @ w.astype(np.int64)
    wanted = sums.astype(np.float32) * (np.float32(0.02) * scales)
    np.testing.assert_array_equal(found, wanted)
