"""Results that are written over arguments: training steps change weights where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array, mem
from dlc.driver.compile.build_artifact import Sources, build_artifact, interface_of
from dlc.driver.compile.cache import open_cache
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.weight_sources import Weights
from dlc.errors import CallError
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options, parse_passes
from dlc.ir.types import F32, TensorType
from dlc.runtime.model import Model
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import Program, assert_close, called, function_of

W = TensorType(F32, (4, 4))


def built(
    program: Program, updates: Sequence[str], level: int = 2
) -> tuple[Model, mem.Program, Context]:
    """The program on two matrices `x0` and `x1`, with these updates: as a model and as a plan."""
    module, function = function_of(program, [W, W], {})
    function.attributes["dlc.inputs"] = ("x0", "x1")
    function.attributes["dlc.results"] = tuple(f"r{k}" for k in range(len(updates)))
    function.attributes["dlc.updates"] = tuple(updates)
    entry = interface_of(function)
    context = Context(options=Options(level=level))
    Manager(context).run(module, pipeline("graph", "plan", level))
    plan = module.symbol("f")
    assert isinstance(plan, mem.Program)
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]
    planned = evaluate_plan(plan, inputs)
    Manager(context).run(module, parse_passes("lower_to_loops"))
    artifact = build_artifact(
        module,
        (entry,),
        Weights((), memoryview(b"")),
        Sources("program.dlm", {"program.dlm": "dlc 1\n"}, ""),
        CodeMaker(CpuTarget.named("host"), level, open_cache()),
    )
    model = Model(artifact)
    found = called(model, [given.copy() for given in inputs])
    assert_close(found, planned, 1e-5, "machine code")
    return model, plan, context


def roots(plan: mem.Program, kind: str) -> int:
    return sum(isinstance(op, mem.Root) and op.kind == kind for op in plan.body)


def step(emit: Builder, w: Value, x: Value) -> Sequence[Value]:
    """w - (x @ w), which reads all of w before its first element may change."""
    return [emit(array.Subtract(w, emit(array.MatMul(x, w))))]


def swap(emit: Builder, w: Value, x: Value) -> Sequence[Value]:
    """Each becomes a product with the other, so neither may be written over at once."""
    return [emit(array.MatMul(w, x)), emit(array.MatMul(x, w))]


def exchanged(emit: Builder, w: Value, x: Value) -> Sequence[Value]:
    return [x, w]


def unchanged(emit: Builder, w: Value, x: Value) -> Sequence[Value]:
    return [w, emit(array.Add(w, x))]


X, Y = (np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32) for seed in (1, 2))


@pytest.mark.parametrize("level", [0, 2])
def test_a_result_is_written_over_the_argument_that_it_updates(level: int) -> None:
    model, plan, _ = built(step, ["x0"], level)
    w = X.copy()
    assert called(model, [w, Y])[0] is w
    np.testing.assert_allclose(w, X - Y @ X, rtol=1e-5, atol=1e-5)
    assert roots(plan, "output") == 0


def test_an_element_wise_update_needs_no_memory_of_its_own() -> None:
    def shrink(emit: Builder, w: Value, x: Value) -> Sequence[Value]:
        return [emit(array.Subtract(w, emit(array.Multiply(x, w))))]

    _, plan, context = built(shrink, ["x0"])
    assert roots(plan, "arena") == 0
    assert any(decision.what == "update in place" for decision in context.log)


@pytest.mark.parametrize("level", [0, 2])
def test_updates_that_need_each_others_old_values_are_copied_at_the_end(level: int) -> None:
    model, _, _ = built(swap, ["x0", "x1"], level)
    w, x = X.copy(), Y.copy()
    model.f(w, x)
    np.testing.assert_allclose(w, X @ Y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(x, Y @ X, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", [0, 2])
def test_arguments_may_be_exchanged(level: int) -> None:
    model, _, _ = built(exchanged, ["x0", "x1"], level)
    w, x = X.copy(), Y.copy()
    model.f(w, x)
    np.testing.assert_array_equal(w, Y)
    np.testing.assert_array_equal(x, X)


def test_an_argument_may_stay_as_it_is_while_others_read_it() -> None:
    model, _, _ = built(unchanged, ["x0", "x1"])
    w, x = X.copy(), Y.copy()
    model.f(w, x)
    np.testing.assert_array_equal(w, X)
    np.testing.assert_allclose(x, X + Y, rtol=1e-6)


def test_an_array_that_may_not_be_written_is_left_alone() -> None:
    model, _, _ = built(step, ["x0"])
    w = X.copy()
    w.flags.writeable = False
    found = called(model, [w, Y])
    np.testing.assert_array_equal(w, X)
    assert_close(found, [X - Y @ X], 1e-5, "a copy")


def test_one_array_cannot_be_updated_and_read_as_another_input() -> None:
    model, _, _ = built(step, ["x0"])
    w = X.copy()
    with pytest.raises(CallError, match="x0 and x1 share memory, and one is changed"):
        model.f(w, w)


@pytest.mark.parametrize("start", [1, 8, 15])
def test_memory_that_is_shared_in_part_is_refused_also_after_calls_with_the_same_weight(
    start: int,
) -> None:
    model, _, _ = built(step, ["x0"])
    block = np.zeros(48, np.float32)
    w = block[12:28].reshape(4, 4)
    model.f(w, block[28:44].reshape(4, 4))
    model.f(w, Y)
    with pytest.raises(CallError, match="x0 and x1 share memory"):
        model.f(w, block[12 + start : 28 + start].reshape(4, 4))
    with pytest.raises(CallError, match="x0 and x1 share memory"):
        model.f(w, block[16 - start : 32 - start].reshape(4, 4))


def test_two_updated_arrays_that_share_memory_are_refused_in_either_order() -> None:
    model, _, _ = built(swap, ["x0", "x1"])
    block = np.zeros(48, np.float32)
    one, other, beside = (block[k : k + 16].reshape(4, 4) for k in (0, 15, 16))
    model.f(one, beside)
    model.f(beside, one)
    for given in ((one, other), (other, one), (beside, other), (one, one)):
        with pytest.raises(CallError, match="x0 and x1 share memory, and one is changed"):
            model.f(*given)
    model.f(one, beside)


def test_an_array_that_becomes_read_only_between_two_calls_is_left_alone() -> None:
    model, _, _ = built(step, ["x0"])
    w = X.copy()
    model.f(w, Y)
    before = w.copy()
    w.flags.writeable = False
    model.f(w, Y)
    np.testing.assert_array_equal(w, before)


def test_out_is_refused_where_inputs_are_changed() -> None:
    model, _, _ = built(step, ["x0"])
    with pytest.raises(CallError, match="it changes its inputs"):
        model.f(X.copy(), Y, out=np.empty((4, 4), np.float32))
