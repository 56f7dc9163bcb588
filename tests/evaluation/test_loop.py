"""Loops are evaluated on memory: they give what the kernels give, and reach nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array, loop, mem, scalar
from dlc.dialects.builtin import Module
from dlc.driver.compile.pipelines import pipeline
from dlc.errors import CallError
from dlc.evaluation.compare_levels import Compared, compare_loops, planned_copy
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I64, INDEX, TensorType
from tests.lowering.everywhere import (
    assert_close,
    function_of,
    random_inputs,
    same_as_loops,
)
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example
from tests.suites import every

CASES = [pytest.param(EXAMPLES[name], id=name) for name in OPERATORS]
SQUARE = TensorType(F32, (12, 12))


def both_forms(module: Module, name: str, level: int = 2) -> tuple[mem.Program, mem.Program]:
    """A program as planned, and lowered to loops."""
    manager = Manager(Context(options=Options(level=level)))
    manager.run(module, pipeline("graph", "plan", level))
    program = module.symbol(name)
    assert isinstance(program, mem.Program)
    planned = planned_copy(program)
    manager.run(module, pipeline("plan", "loop", level))
    return planned, program


def compared(example: Example, level: int) -> Compared:
    """The kernels of an example against their loops."""
    planned, lowered = both_forms(example.module(), "main", level)
    inputs = [given.array for given in example.inputs]
    at = Evaluation(example.dims)
    return compare_loops(planned, lowered, inputs, at, same_as_loops(4 * TOLERANCE[F32]), 100_000)


FIRST = 3
"""Examples of an operation that are in the quick suite."""


@pytest.mark.parametrize("found", every(2, CASES))
def test_the_loops_of_an_operation_write_what_its_kernels_compute(found: list[Example]) -> None:
    write_the_same(found[:FIRST])


@pytest.mark.long
@pytest.mark.parametrize("found", CASES)
def test_they_do_for_every_example(found: list[Example]) -> None:
    write_the_same(found[FIRST:])


def write_the_same(examples: Sequence[Example]) -> None:
    for example in examples:
        result = compared(example, 2)
        assert result.kernels or not result.left_out, "none is small enough to be compared"


def added(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Add(x, y)),)


def product(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Exp(emit(array.MatMul(x, y)))),)


def kernels_of(program: mem.Program) -> list[loop.Func]:
    assert program.parent is not None
    return [op for op in program.parent if isinstance(op, loop.Func)]


def test_a_whole_program_of_loops_is_evaluated_in_its_arena() -> None:
    inputs = random_inputs([SQUARE] * 2, {})
    module, function = function_of(product, [SQUARE] * 2, {})
    wanted = Evaluation().run(function.body, inputs)
    program = both_forms(module, "f")[1]
    assert_close(evaluate_plan(program, inputs), wanted, 1e-5, "loops")


def test_loops_that_compute_something_else_are_found() -> None:
    module, _ = function_of(added, [SQUARE] * 2, {})
    planned, program = both_forms(module, "f")
    (kernel,) = kernels_of(program)
    for op in [op for op in kernel.walk() if isinstance(op, scalar.Add)]:
        if op.result.type is not INDEX:
            emit = Builder.before_op(op)
            op.result.replace_by(emit(scalar.Subtract(op.lhs, op.rhs)))
            op.erase()
    inputs = random_inputs([SQUARE] * 2, {})
    with pytest.raises(AssertionError, match=r"loops of kernel\.generic"):
        compare_loops(planned, program, inputs, Evaluation(), same_as_loops(1e-5))


def test_a_tile_that_takes_too_long_is_left_out_by_name() -> None:
    module, _ = function_of(product, [SQUARE] * 2, {})
    planned, program = both_forms(module, "f")
    inputs = random_inputs([SQUARE] * 2, {})
    found = compare_loops(planned, program, inputs, Evaluation(), same_as_loops(1e-5), steps=5)
    assert found.kernels == 0
    assert found.left_out[-1] == "kernel.gemm at program.dlm:1:1"


def test_an_index_out_of_range_fails_the_evaluation_as_it_fails_the_call() -> None:
    def gather(emit: Builder, x: Value, index: Value) -> Sequence[Value]:
        return (emit(array.Gather(x, (index,), (0,))),)

    module, _ = function_of(gather, [SQUARE, TensorType(I64, (3,))], {})
    program = both_forms(module, "f")[1]
    x = np.ones((12, 12), np.float32)
    with pytest.raises(CallError, match="index 12 is out of range for an axis of size 12"):
        evaluate_plan(program, [x, np.array([0, 12, 1])])
