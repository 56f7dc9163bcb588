"""Long folds of few elements are computed in parts for a GPU, and give the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dlc.dialects import array, kernel
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.dims import Shape, names, product, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.targets import ON_GPU

B = symbol("B")
ANY: Mapping[str, int] = {}
"""The sizes of a function without dims."""


def total(axes: tuple[int, ...]) -> Program:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.ReduceSum(x, axes)),)

    return program


def greatest_square(emit: Builder, x: Value) -> Sequence[Value]:
    squares = emit(array.Multiply(x, x))
    return (emit(array.ReduceMax(squares, (0,))),)


def at_kernels(
    program: Program, type: TensorType, dims: Mapping[str, tuple[int, int | None]]
) -> tuple[Op, list[kernel.Generic]]:
    """A function of one array as kernels for a GPU, and those that compute elements."""
    module, function = function_of(program, [type], dims)
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "kernel", 2, Device.CUDA))
    return function, [op for op in function.walk() if isinstance(op, kernel.Generic)]


@pytest.mark.parametrize(
    ("program", "shape", "sizes", "parts"),
    [
        pytest.param(total((0,)), (8192, 40), [ANY], [(256, 40), (40,)], id="evenly"),
        pytest.param(total((0,)), (8191, 40), [ANY], [(255, 40), (40,)], id="the-last-is-shorter"),
        pytest.param(greatest_square, (8191, 40), [ANY], [(255, 40), (40,)], id="the-greatest"),
        pytest.param(
            total((0, 2)), (B, 5, 1024), [{"B": 64}, {"B": 1}, {"B": 67}], None, id="rows"
        ),
        pytest.param(
            total((0,)), (1000 * B, 8), [{"B": 64}, {"B": 1}], [(2000, 8), (8,)], id="unknown"
        ),
    ],
)
def test_a_fold_in_parts_is_the_fold(
    program: Program,
    shape: Shape,
    sizes: Sequence[Mapping[str, int]],
    parts: list[Shape] | None,
) -> None:
    type = TensorType(F32, shape)
    dims = dict.fromkeys(names(product(shape)), (1, None))
    _, function = function_of(program, [type], dims)
    split, kernels = at_kernels(program, type, dims)
    if parts is not None:
        assert [op.domain for op in kernels] == parts
    assert len(kernels) > 1
    for at in sizes:
        inputs = random_inputs([type], at)
        wanted = Evaluation(at).run(function.body, inputs)
        assert_close(_run(split, inputs, at), wanted, 1e-5, "in parts")


def _run(function: Op, inputs: Sequence[Array], at: Mapping[str, int]) -> Sequence[Array]:
    (body,) = function.regions
    return Evaluation(at).run(body, inputs)
