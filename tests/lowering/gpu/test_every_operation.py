"""Every example of an operation as functions for a GPU: warp by warp they give what it says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array, mem, nn, simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import decode
from dlc.ir.core import Builder, Evaluation, Op, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BOOL, F32, F64, DType, TensorType
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example
from tests.suites import every
from tests.targets import ON_GPU

CASES = [pytest.param(EXAMPLES[name], id=name) for name in OPERATORS]


FEW = 2
"""Examples of an operation that are evaluated in every run of the tests, the first and the last."""


@pytest.mark.parametrize("found", CASES)
def test_warps_compute_what_the_operation_says(found: list[Example]) -> None:
    for example in found[:: max(1, len(found) - 1)][:FEW]:
        compare(example, 2)


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("found", CASES)
def test_they_do_for_every_example_fused_or_not(found: list[Example], level: int) -> None:
    for example in found:
        compare(example, level)


def compare(example: Example, level: int) -> None:
    """The results of an example from its kernels on the plan's memory, against the operation's own."""
    module = example.module()
    manager = Manager(Context(options=Options(level=level, target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", level, Device.CUDA))
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


# Barriers that are needed are missed.


def softmax(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(nn.Softmax(x, 1)),)


def squared(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(array.MatMul(x, x)),)


def lowered(program: Program, type: TensorType) -> tuple[mem.Program, list[Op]]:
    """A function of an array for a GPU, and its barriers."""
    module, _ = function_of(program, [type], {})
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    return found, [op for op in module.walk() if isinstance(op, simt.Barrier)]


@pytest.mark.parametrize(
    ("program", "type", "needed"),
    [
        pytest.param(squared, TensorType(F64, (20, 20)), [0, 1], id="strips"),
        # Between the two folds a row is staged, of which each thread reads what it wrote itself.
        pytest.param(softmax, TensorType(F32, (2, 1100)), [0, 1], id="folds"),
    ],
)
def test_a_kernel_without_a_barrier_that_it_needs_has_a_race(
    program: Program, type: TensorType, needed: list[int]
) -> None:
    inputs = random_inputs([type], {})
    complete, barriers = lowered(program, type)
    evaluate_plan(complete, inputs)
    assert max(needed) < len(barriers)
    for number in needed:
        spoiled, found = lowered(program, type)
        found[number].erase()
        with pytest.raises(Race, match="shared memory"):
            evaluate_plan(spoiled, inputs)


# Attention in f32 is one kernel; the examples of it are in f64.


def attention(causal: int | None) -> Program:
    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        query, keys, values, *mask = operands
        return (emit(nn.Attention(query, keys, values, mask, 0.25, causal)),)

    return program


def f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


ATTENTIONS = [
    pytest.param((3, 3), (140, 3), (140, 2), None, None, id="several-rounds-of-keys"),
    pytest.param((6, 3), (6, 3), (6, 130), None, 0, id="several-columns-to-a-thread"),
    pytest.param((2, 3, 4), (2, 9, 4), (2, 9, 5), F32, 2, id="numbers-are-added"),
    pytest.param((4, 3), (130, 3), (130, 2), BOOL, None, id="keys-are-hidden"),
]


@pytest.mark.parametrize(("query", "keys", "values", "mask", "causal"), every(2, ATTENTIONS))
def test_attention_never_holds_all_scores(
    query: tuple[int, ...],
    keys: tuple[int, ...],
    values: tuple[int, ...],
    mask: DType | None,
    causal: int | None,
) -> None:
    types = [f32(*query), f32(*keys), f32(*values)]
    if mask is not None:
        types.append(TensorType(mask, (*query[:-1], keys[-2])))
    inputs = random_inputs(types, {})
    if mask is BOOL:
        inputs[3][1] = False  # a query without keys
        inputs[3][2, :128] = False  # one for which the first round has none
    module, function = function_of(attention(causal), types, {})
    wanted = Evaluation().run(function.body, inputs)
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    program = module.symbol("f")
    assert isinstance(program, mem.Program)
    calls = [op for op in module.walk() if isinstance(op, mem.Call)]
    assert [call.kernel.name.partition("_")[0] for call in calls] == ["attention"]
    assert_close(evaluate_plan(program, inputs), wanted, 1e-5, "warps")


# Few elements that are long folds are shared by the threads of a block.


@pytest.mark.parametrize(("rows", "threads"), [(20, 256), (100, 128)])
def test_sums_of_few_columns_are_shared_where_they_are_long(rows: int, threads: int) -> None:
    def sums(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.ReduceSum(x, (0,))),)

    types = [f32(rows, 5)]
    inputs = random_inputs(types, {})
    _, function = function_of(sums, types, {})
    wanted = Evaluation().run(function.body, inputs)
    program, _ = lowered(sums, types[0])
    assert program.parent is not None
    found = [op.threads for op in program.parent if isinstance(op, simt.Func)]
    assert found == [threads]
    assert_close(evaluate_plan(program, inputs), wanted, 1e-6, "warps")
