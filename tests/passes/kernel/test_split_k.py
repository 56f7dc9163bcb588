"""Products of few tiles are added up in parts for a GPU, and give the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from dlc.dialects import array, func, kernel, mem, simt
from dlc.dialects.array.convolution import convolution
from dlc.dialects.kernel.product_schedule import SplitK
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, F32, F64, DType, TensorType
from dlc.passes.graph.device_placement import kernels_on_gpu
from dlc.passes.kernel import split_k
from dlc.runtime.model import Model
from dlc.target.gpu import Occupancy
from tests.lowering.everywhere import assert_close, called, function_of, random_inputs
from tests.lowering.gpu.on_gpu import ROUNDING, compiled
from tests.runtime.gpu.fake_gpu import fake_gpu
from tests.suites import every
from tests.targets import ON_GPU, occupy

B = symbol("B")
OPTIONS = Options(target=ON_GPU)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 32 steps are worth it."""
    occupy(monkeypatch, Occupancy(matrix_steps=32, fma_steps=32))
    monkeypatch.setattr(split_k, "WHOLE", 32)


def gradient(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """As that of a weight, with something after it."""
    turned = emit(array.Transpose(x, (1, 0)))
    return (emit(array.Abs(emit(array.MatMul(turned, y)))),)


def product(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.MatMul(x, y)),)


def kernels(
    lhs: tuple[Size, ...], rhs: tuple[Size, ...], dims: Mapping[str, tuple[int, int | None]]
) -> tuple[func.Func, list[kernel.Kernel]]:
    module, function = function_of(gradient, [TensorType(F32, lhs), TensorType(F32, rhs)], dims)
    Manager(Context(options=OPTIONS)).run(module, pipeline("graph", "kernel", 2, Device.CUDA))
    return function, [op for op in function.walk() if isinstance(op, kernel.Kernel)]


def picture(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
    """A convolution on a picture with something after it."""
    sums = convolution(emit, x, w, padding=((0, 0), (1, 0)))
    return (emit(array.Abs(sums)),)


def test_the_channels_of_a_convolution_are_divided() -> None:
    types = [TensorType(F32, shape) for shape in ((B, 7, 7, 256), (3, 3, 256, 64))]
    for most, parts in ((1, 4), (64, 4), (512, None), (None, None)):
        module, function = function_of(picture, types, {"B": (1, most)})
        Manager(Context(options=OPTIONS)).run(module, pipeline("graph", "kernel", 2, Device.CUDA))
        found = [op.schedule for op in function.walk() if isinstance(op, Conv)]
        assert found == [None if parts is None else SplitK(256 // parts)], most


@pytest.mark.parametrize("dtype", every(2, [BF16, F32]), ids=str)
@pytest.mark.usefixtures("short")
def test_warps_compute_parts_of_a_convolution(dtype: DType) -> None:
    made = compiled(picture, dtype, (1, 2, 3, 72), (1, 2, 72, 8))
    # No kernel makes the zeros that are outside of the picture: none reads them.
    assert [op.tiles for op in made.all(mem.Call) if isinstance(op, mem.Call)] == [2, 1]
    assert made.error() <= ROUNDING[dtype]


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_parts_of_any_length_are_right(rows: int) -> None:
    """Of one that has fewer steps than there are parts some are empty."""
    shapes = ((200 * B, 6), (200 * B, 5))
    types = [TensorType(F32, shape) for shape in shapes]
    inputs = random_inputs(types, {"B": rows})
    at = Evaluation({"B": rows})
    _, original = function_of(gradient, types, {"B": (1, None)})
    function, _ = kernels(*shapes, {"B": (1, None)})
    assert_close(at.run(function.body, inputs), at.run(original.body, inputs), 1e-5, "in parts")


@pytest.mark.parametrize(
    ("dtype", "error"),
    every(4, [(F32, ROUNDING[F32]), (F64, 1e-14), (BF16, ROUNDING[BF16])]),
    ids=str,
)
@pytest.mark.usefixtures("short")
def test_warps_compute_the_parts(dtype: DType, error: float) -> None:
    made = compiled(product, dtype, (6, 104), (104, 8))
    assert [op.tiles for op in made.all(mem.Call) if isinstance(op, mem.Call)] == [2, 1]
    assert bool(made.all(simt.Mma)) == (dtype is BF16)
    assert made.error() <= error


# Where only a part of a model is on a GPU.

MIXED = """dlc 1
export fn f(x: f32[128, 24], y: f32[128, 40], p: f32[1, 6, 6, 8], w: f32[3, 3, 8, 8], z: f32[4096, 70])
    -> (f32[24, 40], f32[24, 40], f32[1, 6, 6, 8], f32[70]) {
  let here = transpose(x) @ tanh(y)
  let there = on cuda:0 { transpose(x) @ y }
  let seen = on cuda:0 { conv(p, w, padding="same") }
  let total = on cuda:0 { sum(z, axis=0) }
  return (here, there, seen, total)
}
"""


def test_beside_a_processor_only_what_the_gpu_computes_is_done_in_parts(short: None) -> None:
    opened = open_model("m.dlm", text=MIXED)
    lower(opened, Settings(), "kernel")
    on_gpu = kernels_on_gpu(opened.module)
    split = [
        op
        for op in opened.module.walk()
        if isinstance(op, Gemm) and isinstance(op.schedule, SplitK)
    ]
    assert len(split) == 1
    assert {*split} <= {*on_gpu}
    (conv,) = [op for op in opened.module.walk() if isinstance(op, Conv)]
    assert isinstance(conv.blank.op, array.Constant)
    folds = [op for op in on_gpu if isinstance(op, kernel.Generic) and op.adds_floats]
    assert len(folds) == 3  # the parts of the product, and the two steps of the sum


@pytest.mark.long
def test_beside_a_processor_a_product_in_parts_gives_the_same(short: None) -> None:
    random = np.random.default_rng(0)
    shapes = ((128, 24), (128, 40), (1, 6, 6, 8), (3, 3, 8, 8), (8, 70))
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    text = MIXED.replace("4096", "8")
    opened = (open_model("m.dlm", text=each) for each in (text, text.replace("cuda:0", "cpu")))
    with fake_gpu():
        models = [Model(compile_model(each, Settings())) for each in opened]
        results = [called(model, given) for model in models]
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
