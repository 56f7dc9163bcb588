"""Every operation reads views in any strides as it reads whole arrays: at each level, on CPU and GPU.

Products once read `x[:, :, 1]` as if its elements were neighbours, from -O1 on, and no test saw it: all
parts that tests made for products were of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

import dlc
from dlc.dialects import array, kernel, mem
from dlc.dialects.kernel.generic import Access
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.errors import ModelError
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F16, F32, TensorType, ViewType
from dlc.ir.verify import verify
from tests.lowering.everywhere import assert_close, check, function_of, random_inputs
from tests.lowering.gpu.on_gpu import wanted
from tests.planning.views import READERS, Reader, convolution, product, program_of
from tests.suites import every
from tests.targets import ON_GPU

TOLERANCE = 1e-3
"""Of the largest element: products of products are rounded, what is read elsewhere is off by far more."""
MATMUL = ("auto", "blas", "generated")


def check_on_cpu(seed: int, readers: Sequence[Reader] = READERS) -> None:
    """Compare each level, loops and machine code included, with the graph."""
    program, types = program_of(seed, readers)
    random = Random(seed)
    matmul, level = random.choice(MATMUL), random.choice((1, 2, 2, 3))
    check(program, *types, matmul=matmul, level=level, rtol=TOLERANCE)


def check_on_gpu(seed: int, readers: Sequence[Reader] = READERS) -> None:
    """Compare what the warps compute with the graph."""
    program, types = program_of(seed, readers)
    module, _ = function_of(program, types, {})
    Manager(Context(options=Options(target=ON_GPU))).run(
        module, pipeline("graph", "loop", 2, Device.CUDA)
    )
    planned = module.symbol("f")
    assert isinstance(planned, mem.Program)
    inputs = random_inputs(types, {}, seed)
    found = evaluate_plan(planned, inputs)
    exact = wanted(program, types, inputs)
    expected = [one.astype(other.dtype) for one, other in zip(exact, found, strict=True)]
    assert_close(found, expected, TOLERANCE, "on a GPU")


@pytest.mark.parametrize("seed", every(8, range(40)))
def test_random_views_are_read_right_by_every_operation(seed: int) -> None:
    check_on_cpu(seed)


@pytest.mark.parametrize("seed", every(5, range(10)))
def test_random_views_are_read_right_by_every_operation_on_a_gpu(seed: int) -> None:
    check_on_gpu(seed)


@pytest.mark.parametrize("seed", every(14, range(20)))
def test_products_and_convolutions_read_random_views(seed: int) -> None:
    check_on_cpu(seed, (product, convolution))


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 10_000, 100))
def test_ten_thousand_random_products_and_convolutions_read_views(start: int) -> None:
    for seed in range(start, start + 100):
        check_on_cpu(seed, (product, product, convolution))


@pytest.mark.parametrize("seed", every(20, (6, 14, *range(40, 100))))
def test_products_of_16_bits_read_random_views(seed: int) -> None:
    """The first columns of a matrix of f16 were taken for the whole matrix, and refused."""
    program, types = program_of(seed, (product, product, convolution))

    def widened(emit: Builder, *inputs: Value) -> Sequence[Value]:
        return program(emit, *[emit(array.Cast(each, F32)) for each in inputs])

    random = Random(seed)
    matmul, level = random.choice(MATMUL), random.choice((1, 2, 2, 3))
    narrow = [TensorType(F16, type.shape) for type in types]
    check(widened, *narrow, matmul=matmul, level=level, rtol=TOLERANCE)


@pytest.mark.long
@pytest.mark.parametrize("start", range(100, 2_100, 100))
def test_two_thousand_random_programs_read_views(start: int) -> None:
    for seed in range(start, start + 100):
        check_on_cpu(seed)
        if seed % 4 == 0:
            check_on_gpu(seed)


INPUTS = """x: f32[2, 2, 2] = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], w: f32[2, 1] = [[1], [10]]"""


@pytest.mark.parametrize("level", every(2, range(4)))
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[2, 1] = x[:, :, 1] @ w", [[42], [86]]),
        ("f32[1, 2] = transpose(w) @ x[:, :, 1]", [[62, 84]]),
        ("f32[2, 2] = x[:, :, 1] @ x[:, :, 0]", [[22, 34], [46, 74]]),
        ("f32[2, 2] = transpose(x[:, :, 1]) @ x[0, :, :]", [[20, 28], [28, 40]]),
        ("f32[2, 1] = x[:, 1, :][:, 1:2] @ w[0:1, :]", [[4], [8]]),
        ("f32[1, 1] = reshape(reshape(x[:, :, 1], [4])[2:4], [1, 2]) @ w", [[86]]),
    ],
)
def test_a_product_reads_every_second_element(text: str, expected: object, level: int) -> None:
    model = dlc.compile(text=f"dlc 1\nexport fn f({INPUTS}) -> {text}\n", level=level)
    np.testing.assert_array_equal(model.f(), np.array(expected, np.float32))
    model.close()


CONCATENATED = """dlc 1
export fn f(x: f32[3, 2, 3, 20]) -> f32[3, 4, 3, 1] {
  let one = x[:, :, :, 11:12]
  return softmax(concat([one, 2 * one], axis=1), axis=0)
}
"""


@pytest.mark.parametrize("level", range(4))
def test_a_concatenation_of_every_twentieth_element_is_right(level: int) -> None:
    (x,) = random_inputs([TensorType(F32, (3, 2, 3, 20))], {})
    model = dlc.compile(text=CONCATENATED, level=level)
    one = np.asarray(x, np.float64)[..., 11:12]
    powers = np.exp(np.concatenate([one, 2.0 * one], axis=1))
    np.testing.assert_allclose(np.asarray(model.f(x)), powers / powers.sum(axis=0), rtol=1e-5)
    model.close()


def test_access_says_which_strides_it_allows() -> None:
    strided = [(2, 3), (12, 2)], [(2, 3), (5, 1)], [(2, 3), (3, 1)], [(2, 1), (7, 5)], [(), ()]
    allowed = {
        access: [access.allows(shape, strides) for shape, strides in strided] for access in Access
    }
    assert allowed == {
        Access.STRIDED: [True] * 5,
        Access.UNIT_STRIDE: [False, True, True, True, True],
        Access.CONTIGUOUS: [False, False, True, False, True],
    }


def test_a_plan_that_gives_a_product_elements_apart_is_refused() -> None:
    program, types = program_of(3, (product,))
    module, _ = function_of(program, types, {})
    Manager(Context()).run(module, pipeline("graph", "plan", 0))
    gemm = next(op for op in module.walk() if op.name == "kernel.gemm")
    view = next(value for value in gemm.operands if kernel.array_type(value).rank == 2)
    assert isinstance(view.type, ViewType)
    view.type = ViewType(view.type.dtype, view.type.shape, (100, 2))
    with pytest.raises(ModelError, match="needs stride 1 along the last axis"):
        verify(module)
