"""Every example of an operation as functions for a GPU: warp by warp they give what it says."""

from __future__ import annotations

import pytest

from dlc.dialects import mem
from dlc.driver.pipelines import pipeline
from dlc.ir.attributes import decode
from dlc.ir.core import OPS
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import TensorType
from dlc.lowering.plan_evaluation import evaluate_plan
from tests import op_examples
from tests.lowering.everywhere import assert_close
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example

assert op_examples.__doc__, "importing it makes the operations and their examples known"
NAMES = sorted(name for name in OPS if name.startswith(("array.", "nn.", "rng.")))
CASES = [pytest.param(EXAMPLES[name], id=name) for name in NAMES]


@pytest.mark.parametrize("found", CASES)
def test_warps_compute_what_the_operation_says(found: list[Example]) -> None:
    for example in found:
        compare(example, 2)


@pytest.mark.long
@pytest.mark.parametrize("found", CASES)
def test_warps_compute_it_from_kernels_that_are_not_fused_too(found: list[Example]) -> None:
    for example in found:
        compare(example, 0)


def compare(example: Example, level: int) -> None:
    """The results of an example from its kernels on the plan's memory, against the operation's own."""
    module = example.module()
    manager = Manager(Context(options=Options(level=level, vector_bytes=16)))
    manager.run(module, pipeline("graph", "loop", level, "cuda"))
    program = module.symbol("main")
    assert isinstance(program, mem.Program)
    results = evaluate_plan(program, [given.array for given in example.inputs], example.dims)
    block, op = example.block()
    for value, found, wanted in zip(op.results, results, example.run(block), strict=True):
        assert isinstance(value.type, TensorType)
        dtype = value.type.dtype
        assert found.dtype == wanted.dtype
        numbers = [decode(array, dtype) for array in (found, wanted)]
        assert_close(numbers[:1], numbers[1:], 4 * TOLERANCE.get(dtype, 0), str(op))
