"""Small updates come last and side by side, and calls of a wave that do little are one launch."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, func, mem, nn
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.passes import Context, Manager, Options, parse_passes
from dlc.ir.types import F32, TensorType
from dlc.runtime.abi import MAX_ARGS
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.targets import ON_GPU

OPTIONS = Options(target=ON_GPU)


def lowered(
    program: Program,
    *shapes: tuple[int, ...],
    updates: int = 0,
    options: Options = OPTIONS,
    run: bool = True,
) -> mem.Program:
    """Compiled for a GPU, where it gives what it is to give; the first results are updates."""
    types = [TensorType(F32, shape) for shape in shapes]
    module, function = function_of(program, types, {})
    if updates:
        names = tuple(f"x{k}" for k in range(len(types)))
        kept = ("",) * (len(function.results_returned) - updates)
        function.attributes |= {"dlc.inputs": names, "dlc.updates": (*names[:updates], *kept)}
    inputs = random_inputs(types, {})
    wanted = Evaluation().run(function.body, inputs) if run else ()
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2, Device.CUDA))
    made = module.symbol("f")
    assert isinstance(made, mem.Program)
    if run:
        assert_close(evaluate_plan(made, inputs), wanted, 1e-6, "warps")
    return made


def calls(program: mem.Program) -> list[mem.Call]:
    return [op for op in program.walk() if isinstance(op, mem.Call)]


def scaled(emit: Builder, by: Value, *others: Value) -> Sequence[Value]:
    """Each of some arrays times a number."""
    return [
        emit(array.Multiply(x, emit(array.Broadcast(by, array.tensor_type(x).shape, ()))))
        for x in others
    ]


def test_formulas_of_several_sizes_are_one_launch() -> None:
    (call,) = calls(lowered(scaled, (), (3, 5), (300,), (7,)))
    assert call.writes == 3
    assert len(call.views) == 1 + 3 + 3  # the number is read by all
    assert call.label.endswith("and 2 more")


def test_equal_bundles_are_one_kernel_and_their_parts_none() -> None:
    def twice(emit: Builder, by: Value, *others: Value) -> Sequence[Value]:
        (total,) = scaled(emit, by, by)
        both = scaled(emit, by, *others[:2])
        sums = emit(array.ReduceSum(emit(array.CumulativeSum(both[0], 0)), (0,)))
        return [*both, *scaled(emit, emit(array.Add(sums, total)), *others[2:])]

    program = lowered(twice, (), (40,), (300,), (40,), (300,))
    found = calls(program)
    bundles = [call for call in found if call.writes == 2]
    assert len(bundles) == 2
    assert len({call.kernel.name for call in bundles}) == 1
    module = program.parent
    assert module is not None
    kept = {op.attributes["sym_name"] for op in module if op.name == "simt.func"}
    assert kept == {call.kernel.name for call in found}


def test_a_launch_has_as_many_arguments_as_there_is_room_for() -> None:
    program = lowered(scaled, (), *[(10 + k,) for k in range(20)])
    found = calls(program)
    assert len(found) == 2
    assert sum(call.writes for call in found) == 20
    assert all(len(call.views) + len(call.sizes) <= MAX_ARGS for call in found)


def test_large_arrays_and_threads_that_work_together_have_launches_of_their_own() -> None:
    def program(emit: Builder, by: Value, x: Value, rows: Value, large: Value) -> Sequence[Value]:
        return [*scaled(emit, by, x, large), emit(nn.Softmax(rows, 1))]

    found = calls(lowered(program, (), (8,), (4, 40), (1 << 12, 1 << 12), run=False))
    assert sorted(call.writes for call in found) == [1, 1, 1]


# Updates.


def trained(emit: Builder, one: Value, other: Value, given: Value, more: Value) -> Sequence[Value]:
    """Two weights that change at different times, and something that is computed meanwhile."""
    first = emit(array.CumulativeSum(given, 0))
    total = emit(array.ReduceSum(emit(array.CumulativeSum(first, 0)), (0,)))
    (scale,) = scaled(emit, total, more)
    second = emit(array.CumulativeSum(scale, 0))
    third = emit(array.CumulativeSum(second, 0))
    return [emit(array.Subtract(one, first)), emit(array.Subtract(other, second)), third]


SHAPES = ((6,), (3,), (6,), (3,))


def test_small_weights_are_updated_by_one_launch() -> None:
    assert 2 in [call.writes for call in calls(lowered(trained, *SHAPES, updates=2))]


def test_where_memory_is_limited_a_weight_is_updated_as_soon_as_it_can_be() -> None:
    options = Options(target=ON_GPU, recompute=1)
    assert all(
        call.writes == 1 for call in calls(lowered(trained, *SHAPES, updates=2, options=options))
    )


def test_a_large_weight_is_updated_as_soon_as_it_can_be() -> None:
    shapes = ((1 << 19,), (3,), (1 << 19,), (3,))
    found = calls(lowered(trained, *shapes, updates=2, run=False))
    assert all(call.writes == 1 for call in found)


def test_there_is_nothing_to_gather_in_a_function_without_updates() -> None:
    module, function = function_of(trained, [TensorType(F32, shape) for shape in SHAPES], {})
    before = [op.name for op in function.body]
    Manager(Context(options=OPTIONS)).run(module, parse_passes("cluster_updates"))
    assert isinstance(module.symbol("f"), func.Func)
    assert [op.name for op in function.body] == before
