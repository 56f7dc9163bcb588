"""Concatenations whose pieces are written where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from dlc.dialects import array, flow, mem
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.kernel.pieces import Concatenate, Join
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import Dense
from dlc.ir.clone import clone_block
from dlc.ir.core import Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I64, TensorType
from dlc.planning.aliases import origin, origins, reshaped_strides
from dlc.planning.memory_passes.reorder import reorder
from dlc.planning.return_counts import return_counts
from tests.lowering.everywhere import HERE, Program, assert_close, check, function_of, random_inputs
from tests.lowering.gpu.on_gpu import ROUNDING, Compiled, compiled
from tests.planning.memory_passes.kernels import kernels
from tests.suites import every
from tests.targets import ON_GPU

X = TensorType(F32, (6, 8))
W = TensorType(F32, (8, 16))
V = TensorType(F32, (8, 20))


def product(emit: Builder, x: Value, w: Value) -> Value:
    return emit(array.MatMul(x, w))


def beside(emit: Builder, *pieces: Value) -> Value:
    return emit(array.Concatenate(pieces, 1))


def sums(emit: Builder, x: Value) -> Value:
    return emit(array.ReduceSum(x, (1,)))


def count(ops: Sequence[Op], kind: type[Op]) -> int:
    return sum(isinstance(op, kind) for op in ops)


def joins(program: Program, *types: TensorType) -> tuple[int, int]:
    """How many concatenations of a program take no time, and how many do."""
    ops = kernels(program, *types)
    return count(ops, Join), count(ops, Concatenate)


def test_pieces_of_products_are_written_in_their_places() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        both = beside(emit, product(emit, x, w), emit(array.Tanh(product(emit, x, v))))
        return (sums(emit, both), emit(array.Exp(both)))

    assert joins(program, X, W, V) == (1, 0)
    check(program, X, W, V)


def test_rows_of_any_number() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        both = beside(emit, product(emit, x, w), product(emit, x, v))
        return (sums(emit, both),)

    rows = TensorType(F32, (symbol("T"), 8))
    assert joins(program, rows, W, V) == (1, 0)
    check(program, rows, W, V, dims={"T": (1, 40)}, at=[{"T": 1}, {"T": 7}])


def test_what_may_be_empty_is_not_joined() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        return (sums(emit, beside(emit, product(emit, x, w), product(emit, x, v))),)

    rows = TensorType(F32, (symbol("E"), 8))
    assert joins(program, rows, W, V) == (0, 1)
    check(program, rows, W, V, dims={"E": (0, 40)}, at=[{"E": 0}, {"E": 7}])


def appended(emit: Builder, x: Value, w: Value, *more: Value) -> Sequence[Value]:
    """What is made of all there is, again and again."""
    features = product(emit, x, w)
    for weights in more:
        new = product(emit, emit(array.Maximum(features, features)), weights)
        features = beside(emit, features, new)
    return (sums(emit, features), emit(array.Tanh(sums(emit, features))))


def test_what_is_appended_to_again_and_again_is_one_array_that_others_read_on_the_way() -> None:
    more = [TensorType(F32, (16 + 20 * k, 20)) for k in range(3)]
    assert joins(appended, X, W, *more) == (3, 0)
    check(appended, X, W, *more)


def test_what_is_there_twice_is_copied_once() -> None:
    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        one = product(emit, x, w)
        return (sums(emit, beside(emit, one, one)), sums(emit, one))

    assert joins(program, X, W) == (1, 0)
    check(program, X, W)


def test_inputs_and_constants_are_copied_to_their_places() -> None:
    def program(emit: Builder, x: Value, y: Value, w: Value) -> Sequence[Value]:
        values = np.arange(6 * 16, dtype=np.float32).reshape(6, 16)
        constant = emit(array.Constant(Dense.of(values, F32)))
        whole = beside(emit, y, product(emit, x, w), constant, product(emit, y, w))
        return (sums(emit, whole), emit(array.Exp(whole)))

    wide = TensorType(F32, (6, 16))
    assert joins(program, wide, wide, TensorType(F32, (16, 40))) == (1, 0)
    check(program, wide, wide, TensorType(F32, (16, 40)))


def test_where_most_would_be_copied_nothing_is_joined() -> None:
    def program(emit: Builder, x: Value, w: Value, y: Value) -> Sequence[Value]:
        return (sums(emit, beside(emit, product(emit, x, w), y)),)

    types = X, W, TensorType(F32, (6, 40))
    assert joins(program, *types) == (0, 1)
    check(program, *types)


def test_what_two_concatenations_want_is_in_the_place_of_one() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        one, other = product(emit, x, w), product(emit, x, v)
        first, second = beside(emit, one, other), beside(emit, other, one)
        return (sums(emit, first), emit(array.Exp(second)), sums(emit, second))

    assert sum(joins(program, X, W, V)) == 2
    check(program, X, W, V)


def test_what_is_handed_over_has_memory_of_its_own() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        one, other = product(emit, x, w), product(emit, x, v)
        whole = beside(emit, one, other)
        return (one, whole, sums(emit, whole))

    check(program, X, W, V)


def test_a_result_is_written_piece_by_piece_into_the_memory_of_the_caller() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        return (beside(emit, product(emit, x, w), product(emit, x, v)),)

    assert joins(program, X, W, V) == (1, 0)
    check(program, X, W, V)


def test_pieces_that_are_read_in_other_shapes() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        one, other = product(emit, x, w), product(emit, x, v)
        whole = beside(emit, one, other)
        split = emit(array.Reshape(one, (2, 3, 4, 4)))
        turned = emit(array.Transpose(emit(array.Reshape(other, (3, 40))), (1, 0)))
        return (sums(emit, whole), emit(array.ReduceSum(split, (0, 2))), turned)

    check(program, X, W, V)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_concatenations_in_the_rounds_of_a_loop_that_does_not_hand_them_over(
    axis: int | None,
) -> None:
    def program(emit: Builder, xs: Value, start: Value, w: Value, v: Value) -> Sequence[Value]:
        types = [TensorType(I64, ()), TensorType(F32, (6, 36)), X, W, TensorType(F32, (36, 20))]
        body = Block(types)
        inside = Builder(body, HERE)
        _, carried, x, *weights = body.arguments
        both = beside(inside, product(inside, x, weights[0]), product(inside, carried, weights[1]))
        results = [inside(array.Tanh(both)), sums(inside, both)]
        inside.place(flow.Yield(results if axis is None else [*results, both]))
        axes = (0,) if axis is None else (0, axis)
        scan = flow.Scan((start,), (xs,), (w, v), body, 3, (1,), axes)
        return emit.all(scan)

    xs = TensorType(F32, (6, 3, 8))
    types = xs, TensorType(F32, (6, 36)), W, TensorType(F32, (36, 20))
    assert check_in_memory(program, *types) == (axis is None)


def test_the_first_piece_may_be_written_last() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        last = product(emit, x, v)
        deep = product(
            emit, emit(array.Tanh(product(emit, x, w))), emit(array.Transpose(w, (1, 0)))
        )
        return (sums(emit, beside(emit, product(emit, deep, w), last)),)

    assert joins(program, X, W, V) == (1, 0)
    check(program, X, W, V)


def test_pieces_behind_each_other_along_an_axis_within_are_written_in_their_places() -> None:
    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        pieces = emit(array.Tanh(x)), emit(array.Exp(y))
        whole = emit(array.Concatenate(pieces, 1))
        turned = emit(array.Transpose(whole, (2, 0, 1)))
        return (emit(array.ReduceSum(whole, (1,))), emit(array.ReduceSum(turned, (2,))))

    types = TensorType(F32, (20, 2, 8)), TensorType(F32, (20, 3, 8))
    assert joins(program, *types) == (1, 0)
    check(program, *types)
    rows = tuple(type.with_shape((symbol("T"), *type.shape[1:])) for type in types)
    assert joins(program, *rows) == (1, 0)
    check(program, *rows, dims={"T": (1, 40)}, at=[{"T": 1}, {"T": 7}])


def test_what_is_read_as_one_row_is_not_written_apart() -> None:
    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        one, other = emit(array.Tanh(x)), emit(array.Exp(y))
        whole = emit(array.Concatenate((one, other), 1))
        flat = emit(array.Reshape(one, (4, 80)))
        sorted_rows = emit(array.CumulativeSum(flat, 1))
        return (emit(array.ReduceSum(whole, (1,))), sums(emit, whole), sorted_rows)

    types = TensorType(F32, (20, 2, 8)), TensorType(F32, (20, 3, 8))
    check(program, *types)


# Random programs.


def random_program(random: Random) -> Program:
    """Products of whatever there is and parts of it, sums over rows, and concatenations."""

    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        known = [x, y]
        for _ in range(random.randint(6, 14)):
            known.append(random_value(emit, random, known))
        shown = [value for value in known[2:] if not value.uses or random.random() < 0.1]
        return [value if random.random() < 0.5 else sums(emit, value) for value in shown]

    return program


def random_value(emit: Builder, random: Random, known: Sequence[Value]) -> Value:
    match random.randrange(6):
        case 0 | 1 | 2 as kind:
            value = random.choice(known)
            if kind == 2:
                rows, width = tensor_type(value).shape
                start = random.choice((0, 3, 8))
                ends = rows, min(start + 16, width) if isinstance(width, int) else width
                value = emit(array.Slice(value, (0, start), ends, (1, 1)))
            depth = tensor_type(value).shape[1]
            assert isinstance(depth, int)
            numbers = np.random.default_rng(depth).standard_normal((depth, random.choice((16, 24))))
            weights = emit(array.Constant(Dense.of((numbers / depth).astype(np.float32), F32)))
            return product(emit, value, weights)
        case 3 | 4:
            pieces = [random.choice(known) for _ in range(random.randint(2, 3))]
            return beside(emit, *pieces)
        case _:
            return emit(array.Tanh(random.choice(known)))


def check_in_memory(
    program: Program, *types: TensorType, device: Device = Device.CPU, stage: str = "plan"
) -> int:
    """Compare what a plan computes in its arena with the graph; how many concatenations take no time.

    The order of work stays as it is written. From `plan` on evaluation is the kernels' own, from `loop`
    on that of what became of them.
    """
    module, function = function_of(program, types, {})
    return_counts(function)
    graph, inputs = clone_block(function.body), random_inputs(types, {})
    wanted = Evaluation({}).run(graph, inputs)
    context = Context(options=Options(target=ON_GPU))
    passes = [each for each in pipeline("graph", stage, 2, device) if each is not reorder]
    Manager(context).run(module, passes)
    planned = module.symbol("f")
    assert isinstance(planned, mem.Program)
    assert_close(evaluate_plan(planned, inputs, {}), wanted, 1e-5, "in the arena")
    return sum(d.kind == "did" and d.what == "write the pieces in place" for d in context.log)


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA], ids=["cpu", "cuda"])
def test_random_programs_compute_in_their_arena_what_the_graph_says(device: Device) -> None:
    random = Random(1)
    joined = 0
    types = TensorType(F32, (5, 16)), TensorType(F32, (5, 24))
    for _ in range(40):
        joined += check_in_memory(random_program(Random(random.random())), *types, device=device)
    assert joined > 20


def test_where_arrays_lie_is_the_same_found_at_once_and_one_by_one() -> None:
    random = Random(2)
    views = 0
    for _ in range(20):
        program = random_program(Random(random.random()))
        ops = kernels(program, TensorType(F32, (5, 16)), TensorType(F32, (5, 24)))
        block = ops[-1].parent
        assert block is not None
        found = origins(block)
        for value in (value for op in block for value in op.results):
            assert found.get(value, value) is origin(value)
        views += len(found)
    assert views > 50


# On a GPU.


def concatenations(made: Compiled) -> int:
    """How many kernels put pieces together."""
    calls = [op for op in made.all(mem.Call) if isinstance(op, mem.Call)]
    return sum(call.kernel.name.startswith("concatenate") for call in calls)


@pytest.mark.parametrize(("growth", "apart"), every(2, [(20, 0), (19, 1)]))
def test_a_gpu_joins_what_stays_in_units_of_16_bytes(growth: int, apart: int) -> None:
    # [6, 16] is in units of four numbers, and no longer where a row has 16 + 19.
    more = [(16 + growth * k, growth) for k in range(2)]
    made = compiled(appended, F32, (6, 8), (8, 16), *more)
    assert concatenations(made) == apart
    assert made.error() <= ROUNDING[F32]


@pytest.mark.long
def test_random_programs_give_the_same_on_a_gpu() -> None:
    random = Random(2)
    types = TensorType(F32, (5, 16)), TensorType(F32, (5, 24))
    programs = [random_program(Random(random.random())) for _ in range(4)]
    joined = [check_in_memory(each, *types, device=Device.CUDA, stage="loop") for each in programs]
    assert sum(joined) == 4


# Strides.


def test_an_array_in_pieces_has_strides_in_shapes_that_keep_its_rows_apart() -> None:
    b = symbol("B")
    assert reshaped_strides((6, 8), (20, 1), (2, 3, 8)) == (60, 20, 1)
    assert reshaped_strides((6, 8), (20, 1), (6, 2, 4)) == (20, 4, 1)
    assert reshaped_strides((b * 9, 8), (20, 1), (b, 3, 3, 8)) == (180, 60, 20, 1)
    assert reshaped_strides((1, 8), (20, 1), (8,)) == (1,)
    assert reshaped_strides((6, 8), (8, 1), (48,)) == (1,)


def test_an_array_in_pieces_has_no_strides_where_an_axis_would_go_over_a_gap() -> None:
    assert reshaped_strides((6, 8), (20, 1), (48,)) is None
    assert reshaped_strides((6, 8), (20, 1), (3, 16)) is None
    assert reshaped_strides((6, 8), (20, 1), (4, 12)) is None
