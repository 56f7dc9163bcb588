"""Products of a single row have a form of their own, and 16-bit weights are widened in registers."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import mem
from dlc.dialects.kernel.product_schedule import Packed
from dlc.dialects.kernel.products import Gemm
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.open import open_model
from dlc.ir.passes import Manager
from dlc.ir.types import BF16, F16, F32, DType
from tests.suites import every

SHARED = """dlc 1
dim M = 0..9
module Net(K, N, F: dtype = f32) {
  param w: F[2, K, N] = normal(0.1)
  export fn f(x: f32[M, K], b: f32[N]) -> f32[2, M, N] = scan v in w { yield relu(x @ f32(v) + b) }
}
"""
SIZES = [(5, 7), (64, 64), (130, 1376), (1500, 65), (1, 300), (513, 1)]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("depth", "columns"), every(3, SIZES))
def test_every_number_of_rows_gives_the_product(depth: int, columns: int, dtype: str) -> None:
    settings: dict[str, int | str] = {"K": depth, "N": columns, "F": dtype}
    model = dlc.compile(text=SHARED, settings=settings, weights="init:0", verify_each=depth < 99)
    weights = np.asarray(dlc.Tensor(model.weights["w"]).values(), np.float64)
    random = np.random.default_rng(0)
    bias = random.standard_normal(columns).astype(np.float32)
    for rows in (1, 0, 2, 9):
        x = random.standard_normal((rows, depth)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ weights + bias, 0)
        found = cast("NDArray[np.float32]", model.f(x, bias))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_bits_do_not_depend_on_threads() -> None:
    settings: dict[str, int | str] = {"K": 700, "N": 1376, "F": "bf16"}
    x = np.random.default_rng(0).standard_normal((1, 700)).astype(np.float32)
    bias = np.zeros(1376, np.float32)
    found = [
        np.asarray(
            dlc.compile(text=SHARED, settings=settings, weights="init:0", threads=count).f(x, bias)
        )
        for count in (1, 2)
    ]
    assert (found[0] == found[1]).all()


NARROW = """dlc 1
dim M = 1..64
module Net(F: dtype = bf16) {
  param w: F[512, 512] = normal(0.1)
  param stack: F[3, 512, 512] = normal(0.1)
  export fn plain(x: F[M, 512]) -> F[M, 512] = x @ w
  export fn widened(x: f32[M, 512]) -> f32[M, 512] = x @ transpose(f32(w))
  export fn layers(x: F[M, 512]) -> F[M, 512] = scan v in stack with h = x { next h = h @ v }
  export fn wide_layers(x: f32[M, 512]) -> f32[M, 512] {
    return scan v in stack with h = x { next h = h @ f32(v) }
  }
}
"""


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("name", ["plain", "widened", "layers", "wide_layers"])
def test_16_bit_weights_are_in_panels_of_16_bits_when_they_are_loaded(
    name: str, dtype: DType
) -> None:
    opened = open_model("model.dlm", text=NARROW, settings={"F": dtype.name})
    Manager(opened.context).run(opened.module, pipeline("graph", "plan", 2))
    program = opened.module.symbol(name)
    assert isinstance(program, mem.Program)
    (op,) = [op for op in program.walk() if isinstance(op, Gemm)]
    assert op.schedule == Packed(16)
    (panels,) = [op.type for op in program.walk() if isinstance(op, mem.Weight)]
    assert (panels.dtype, panels.shape[-2:]) == (dtype, (512, 16))


def test_where_other_operations_read_it_too_a_widened_weight_is_an_array_of_f32() -> None:
    text = NARROW.replace("x @ transpose(f32(w))", "x @ f32(w) + f32(w)[0]")
    opened = open_model("model.dlm", text=text)
    Manager(opened.context).run(opened.module, pipeline("graph", "plan", 2))
    program = opened.module.symbol("widened")
    assert isinstance(program, mem.Program)
    assert F32 in [op.type.dtype for op in program.walk() if isinstance(op, mem.Weight)]
