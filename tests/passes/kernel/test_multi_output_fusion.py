"""Formulas over the same elements are one kernel on a GPU, and weights are still updated in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dlc.dialects import array, func, kernel, mem
from dlc.dialects.builtin import Module
from dlc.dialects.comm import is_gpu
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.source.open import open_model, open_training
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
from dlc.passes.graph.device_placement import devices_of
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.targets import ON_GPU

EXAMPLES = Path(__file__).parents[3] / "examples"
ROWS = TensorType(F32, (6, 8))


def cell(emit: Builder, gates: Value, state: Value) -> Sequence[Value]:
    """The new state, and an output that is made from it."""
    forget = emit(array.Sigmoid(gates))
    new = emit(array.Add(emit(array.Multiply(forget, state)), gates))
    return new, emit(array.Multiply(forget, emit(array.Tanh(new))))


def beside(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """Two values that share what they read."""
    return emit(array.Sin(emit(array.Add(x, y)))), emit(array.Cos(emit(array.Multiply(x, y))))


def of_different_rows(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """One that reads the other's elements at other places."""
    first = emit(array.Sin(emit(array.Add(x, y))))
    return first, emit(array.Cos(emit(array.Reverse(first, (0,)))))


def around_a_sum(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """Two of which the one reads the other, and before that a sum of the other."""
    first = emit(array.Sin(emit(array.Multiply(x, y))))
    total = emit(array.ReduceSum(first, (0,)))
    return first, total, emit(array.Cos(first))


def lowered(program: Program, stage: str) -> Module:
    module, _ = function_of(program, [ROWS, ROWS], {})
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", stage, 2, Device.CUDA))
    return module


def kernels_of(module: Module) -> list[int]:
    """How many results each kernel has that computes elements by formulas."""
    return [len(op.results) for op in module.walk() if isinstance(op, kernel.Generic) and op.is_map]


@pytest.mark.parametrize(
    ("program", "results"),
    [
        pytest.param(cell, [2], id="a-cell"),
        pytest.param(beside, [2], id="side-by-side"),
        pytest.param(of_different_rows, [1, 1], id="other-places"),
        pytest.param(around_a_sum, [2], id="a-sum-between"),
    ],
)
def test_formulas_of_the_same_elements_are_one_kernel(program: Program, results: list[int]) -> None:
    assert kernels_of(lowered(program, "kernel")) == results
    inputs = random_inputs([ROWS, ROWS], {})
    _, function = function_of(program, [ROWS, ROWS], {})
    wanted = Evaluation().run(function.body, inputs)
    found = lowered(program, "loop").symbol("f")
    assert isinstance(found, mem.Program)
    assert_close(evaluate_plan(found, inputs), wanted, 1e-6, "together")


PLACED = """dlc 1
export fn f(x: f32[6, 8], y: f32[6, 8]) -> f32[6, 8] {
  let (a, b) = on cuda:0 { (sin(x + y), cos(x * y)) }
  let c = on cuda:0 { transpose(a) @ b }
  return sin(x @ c) - cos(y @ c)
}
"""
SENT = """dlc 1
export fn f(x: f32[6, 8]) -> f32[6, 8] {
  let a = on cuda:0 { exp(x) }
  let b = on cuda:0 { sin(a) * a }
  return tanh(a) * b
}
"""


@pytest.mark.parametrize(
    ("text", "merged"), [pytest.param(PLACED, 1, id="there"), pytest.param(SENT, 0, id="sent")]
)
def test_a_gpu_beside_a_processor_computes_formulas_together(text: str, merged: int) -> None:
    opened = open_model("model.dlm", text=text)
    Manager(opened.context).run(opened.module, pipeline("graph", "kernel", 2, Device.HETERO))
    (function,) = [op for op in opened.module.body if isinstance(op, func.Func)]
    several = [op for op in function.walk() if len(op.results) > 1]
    assert len(several) == merged
    devices = devices_of(function)
    assert all(is_gpu(devices[value]) for op in several for value in op.results)


def test_a_weight_and_its_moments_are_updated_in_place_by_one_kernel() -> None:
    opened = open_training(EXAMPLES / "digits_mlp.dlm")
    opened.context.options = Options(target=ON_GPU)
    Manager(opened.context).run(opened.module, pipeline("graph", "plan", 2, Device.CUDA))
    updates = [
        op for op in opened.module.walk() if isinstance(op, kernel.Generic) and len(op.outs) == 3
    ]
    assert [len(op.domain) for op in updates] == [1] * 4
    for out in [out for op in updates for out in op.outs]:
        assert isinstance(out.op, mem.View)
        root = out.op.root.op
        assert isinstance(root, mem.Root)
        assert root.kind == "input"


COUNTED = """dlc 1
export fn places(x: bool[4]) -> (places: i64[_, 1], count: i64) {
  let (places, count) = nonzero(x)
  return (places = places, count = count)
}
"""


def test_a_number_that_is_measured_is_not_computed_before_it_is() -> None:
    opened = open_model("model.dlm", text=COUNTED)
    opened.context.options = Options(target=ON_GPU)
    Manager(opened.context).run(opened.module, pipeline("graph", "kernel", 2, Device.CUDA))
    names = [op.name for op in opened.module.walk() if isinstance(op, kernel.Kernel)]
    assert names == ["kernel.nonzero", "kernel.generic"]
