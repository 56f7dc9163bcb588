"""The memory plan: what shares memory, what stands in one wave, and how a wrong plan shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import dlc
from dlc.dialects import array, mem
from dlc.driver.compile.pipelines import pipeline
from dlc.evaluation.plan import PlanConflict, evaluate_plan
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, TensorType
from tests.lowering.everywhere import Program, function_of

SQUARE = TensorType(F32, (32, 32))


def planned(program: Program, count: int) -> mem.Program:
    """The plan of a program of square matrices."""
    module, _ = function_of(program, [SQUARE] * count, {})
    Manager(Context(options=Options(matmul="blas"))).run(module, pipeline("graph", "plan", 2))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    return found


def arena(program: mem.Program) -> list[mem.Root]:
    return [op for op in program.body if isinstance(op, mem.Root) and op.kind == "arena"]


def chain(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
    for _ in range(4):
        x = emit(array.MatMul(x, w))
    return (x,)


def two_products(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    lhs, rhs = emit(array.MatMul(x, x)), emit(array.MatMul(y, y))
    return (emit(array.Add(lhs, rhs)),)


def long_life(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
    first = emit(array.MatMul(x, w))
    last = first
    for _ in range(3):
        last = emit(array.MatMul(last, w))
    return (emit(array.Add(emit(array.Transpose(last, (1, 0))), first)),)


def test_a_chain_of_products_needs_two_buffers() -> None:
    program = planned(chain, 2)
    assert program.arena == 2 * 32 * 32 * 4


def test_independent_products_share_a_wave_and_no_memory() -> None:
    program = planned(two_products, 2)
    first = next(op for op in program.body if isinstance(op, mem.Wave))
    assert sum(op.name == "kernel.gemm" for op in first.body) == 2
    one, other = arena(program)
    assert (one.first, other.first) == (0, 0)
    assert one.offset != other.offset


def test_a_value_that_is_overwritten_too_early_shows_as_a_wrong_number() -> None:
    program = planned(long_life, 2)
    inputs = [np.eye(32, dtype=np.float32) * 2, np.eye(32, dtype=np.float32) * 3]
    (right,) = evaluate_plan(program, inputs)
    assert right[0, 0] == 168.0
    first, second, third, *_ = arena(program)
    assert first.last > third.first
    assert first.offset is not None
    third.attributes["offset"] = first.offset
    assert second.offset != first.offset
    (wrong,) = evaluate_plan(program, inputs)
    assert not np.array_equal(right, wrong)


def test_kernels_of_a_wave_that_disturb_each_other_are_found() -> None:
    program = planned(two_products, 2)
    for root in arena(program):
        root.attributes["offset"] = 0
    eye = np.eye(32, dtype=np.float32)
    with pytest.raises(PlanConflict, match=r"kernel\.gemm"):
        evaluate_plan(program, [eye, eye])


def test_loops_that_carry_nothing_hand_their_memory_on() -> None:
    """Nothing is copied before such a loop: its result begins with the first wave of its body."""
    text = (
        "dlc 1\ndim T = 1..9\n"
        "fn step(xs: f32[T, 3]) = scan x in xs { yield x * sum(x) }\n"
        "export fn f(x: f32[T, 3]) -> f32[T, 3] = x |> step |> step |> step |> step |> step\n"
    )
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    wanted = x
    for _ in range(5):
        wanted = wanted * wanted.sum(1, keepdims=True)
    found = dlc.compile(text=text).entry_points["f"](x)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
