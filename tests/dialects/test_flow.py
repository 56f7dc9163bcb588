"""Control flow: what it computes and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import array, flow
from dlc.errors import CallError, ModelError
from dlc.ir.core import Array, Block, Builder, Evaluation, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BOOL, F64, I32, I64, TensorType
from dlc.ir.verify import verify
from dlc.text.ir.parser import parse_module
from dlc.text.ir.printer import print_module
from tests.dialects.programs import HERE, Build, evaluate, program, region, run, tensor

SCALAR = tensor()
VECTOR = tensor(3)
X = np.array([1.0, 2.0, 3.0])


def double(emit: Builder, x: Value) -> Value:
    return emit(array.Add(x, x))


def same(emit: Builder, x: Value) -> Value:
    return x


def choose(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
    branches = region(double, [x.type]), region(same, [x.type])
    return emit.all(flow.If(condition, (x,), *branches))


@pytest.mark.parametrize(("condition", "expected"), [(True, 2 * X), (False, X)])
def test_if_runs_one_branch(condition: bool, expected: Array) -> None:
    (found,) = evaluate(choose, np.asarray(condition), X)
    np.testing.assert_array_equal(found, expected)


def test_a_condition_is_one_bool() -> None:
    with pytest.raises(ModelError, match=r"(?s)D0401.*found bool\[3\].*use all"):
        program(choose, [TensorType(BOOL, (3,)), VECTOR])


def test_branches_give_equal_types() -> None:
    def wrong(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
        shorter = region(lambda emit, x: emit(array.ReduceSum(x, (0,))), [x.type])
        return emit.all(flow.If(condition, (x,), region(same, [x.type]), shorter))

    with pytest.raises(ModelError, match=r"D0402.*\(f64\[3\]\), the other \(f64\)"):
        program(wrong, [TensorType(BOOL), VECTOR])


def test_branches_take_the_inputs() -> None:
    def wrong(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
        return emit.all(flow.If(condition, (x,), region(same, [SCALAR]), region(same, [VECTOR])))

    with pytest.raises(ModelError, match=r"takes \(f64\), it is given \(f64\[3\]\)"):
        program(wrong, [TensorType(BOOL), VECTOR])


def running(
    emit: Builder, xs: Value, *, x_axis: int = 0, y_axis: int = 0, reverse: bool = False
) -> tuple[Value, ...]:
    """The sum of all slices; before each step the index times the sum so far."""
    type = array.tensor_type(xs)
    length = type.shape[x_axis]
    part = type.with_shape(type.shape[:x_axis] + type.shape[x_axis + 1 :])

    def step(emit: Builder, index: Value, total: Value, x: Value) -> tuple[Value, ...]:
        number = emit(array.Broadcast(emit(array.Cast(index, F64)), part.shape, ()))
        return emit(array.Add(total, x)), emit(array.Multiply(number, total))

    start = array.fill(emit, 0, part)
    body = region(step, [flow.COUNTER, part, part])
    return emit.all(flow.Scan((start,), (xs,), (), body, length, (x_axis,), (y_axis,), reverse))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("x_axis", [0, 1])
@pytest.mark.parametrize("y_axis", [0, 1])
def test_scan_walks_and_stacks_along_axes(x_axis: int, y_axis: int, reverse: bool) -> None:
    xs = np.arange(12.0).reshape(4, 3)
    total, stack = evaluate(
        lambda emit, x: running(emit, x, x_axis=x_axis, y_axis=y_axis, reverse=reverse), xs
    )
    along = np.moveaxis(xs, x_axis, 0)
    order = along[::-1] if reverse else along
    before = np.cumsum(order, axis=0) - order
    before = before[::-1] if reverse else before
    expected = np.arange(len(along))[:, None] * before
    np.testing.assert_array_equal(total, along.sum(axis=0))
    np.testing.assert_array_equal(stack, np.moveaxis(expected, 0, y_axis))


def test_scan_of_no_steps_gives_what_it_starts_with() -> None:
    total, stack = evaluate(running, np.zeros((0, 3)))
    np.testing.assert_array_equal(total, np.zeros(3))
    assert stack.shape == (0, 3)


def test_scan_passes_constants_to_every_step() -> None:
    def scaled(emit: Builder, xs: Value, factor: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value, factor: Value) -> Value:
            return emit(array.Multiply(x, factor))

        body = region(step, [flow.COUNTER, SCALAR, SCALAR])
        return emit.all(flow.Scan((), (xs,), (factor,), body, 3, (0,), (0,)))

    np.testing.assert_array_equal(evaluate(scaled, X, np.asarray(2.0))[0], 2 * X)


def test_the_length_of_a_scan_may_be_symbolic() -> None:
    module = program(running, [TensorType(F64, (symbol("T"), 3))])
    for length in (1, 5):
        xs = np.arange(3.0 * length).reshape(length, 3)
        total, stack = run(module, xs, dims={"T": length})
        np.testing.assert_array_equal(total, xs.sum(axis=0))
        assert stack.shape == (length, 3)


def test_what_a_scan_walks_has_its_length() -> None:
    def wrong(emit: Builder, xs: Value) -> tuple[Value, ...]:
        body = region(lambda emit, index, x: x, [flow.COUNTER, SCALAR])
        return emit.all(flow.Scan((), (xs,), (), body, 4, (0,), (0,)))

    with pytest.raises(
        ModelError, match=r"D0407.*takes 4 steps, but axis 0 of f64\[3\] has size 3"
    ):
        program(wrong, [VECTOR])


def test_a_scan_walks_along_an_axis_that_is_there() -> None:
    def wrong(emit: Builder, xs: Value) -> tuple[Value, ...]:
        body = region(lambda emit, index, x: x, [flow.COUNTER, SCALAR])
        return emit.all(flow.Scan((), (xs,), (), body, 3, (1,), (0,)))

    with pytest.raises(ModelError, match=r"D0407.*f64\[3\] has no axis 1"):
        program(wrong, [VECTOR])


def test_a_carried_value_keeps_its_type() -> None:
    def wrong(emit: Builder, x: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, h: Value) -> Value:
            return emit(array.ReduceSum(h, (0,)))

        body = region(step, [flow.COUNTER, VECTOR])
        return emit.all(flow.Scan((x,), (), (), body, 2, (), ()))

    with pytest.raises(ModelError, match=r"D0403.*starts as f64\[3\].*makes it f64"):
        program(wrong, [VECTOR])


def halve(limit: int | None) -> Build:
    """Halve x until it is at most 1, counting."""

    def built(emit: Builder, x: Value) -> tuple[Value, ...]:
        def above(emit: Builder, x: Value, count: Value, half: Value) -> Value:
            return emit(array.Compare(x, array.constant_like(emit, 1, x), "gt"))

        def step(emit: Builder, x: Value, count: Value, half: Value) -> tuple[Value, ...]:
            one = array.constant_like(emit, 1, count)
            return emit(array.Multiply(x, half)), emit(array.Add(count, one))

        start = array.fill(emit, 0, TensorType(I32))
        half = array.constant_like(emit, 0.5, x)
        types = [SCALAR, TensorType(I32), SCALAR]
        regions = region(above, types), region(step, types)
        return emit.all(flow.While((x, start), (half,), *regions, limit))

    return built


def test_while_runs_as_long_as_the_condition_holds() -> None:
    x, count = evaluate(halve(None), np.asarray(20.0))
    assert (float(x), int(count)) == (0.625, 5)


def test_while_may_not_run_at_all() -> None:
    x, count = evaluate(halve(0), np.asarray(0.5))
    assert (float(x), int(count)) == (0.5, 0)


def test_while_may_take_as_many_rounds_as_its_limit() -> None:
    assert int(evaluate(halve(5), np.asarray(20.0))[1]) == 5


def test_one_round_more_than_the_limit_fails_the_call() -> None:
    with pytest.raises(CallError, match=r"D0808.*within its limit of 4 rounds"):
        evaluate(halve(4), np.asarray(20.0))


def test_the_condition_of_a_while_is_one_bool() -> None:
    def wrong(emit: Builder, x: Value) -> tuple[Value, ...]:
        return emit.all(flow.While((x,), (), region(same, [VECTOR]), region(same, [VECTOR])))

    with pytest.raises(ModelError, match=r"D0401.*found f64\[3\]"):
        program(wrong, [VECTOR])


def test_loops_nest() -> None:
    def outer(emit: Builder, xs: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, row: Value) -> Value:
            def inner(emit: Builder, index: Value, total: Value, x: Value) -> Value:
                return emit(array.Add(total, x))

            body = region(inner, [flow.COUNTER, SCALAR, SCALAR])
            start = array.fill(emit, 0, SCALAR)
            return emit(flow.Scan((start,), (row,), (), body, 4, (0,), ()))

        body = region(step, [flow.COUNTER, tensor(4)])
        return emit.all(flow.Scan((), (xs,), (), body, 3, (0,), (0,)))

    xs = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(evaluate(outer, xs)[0], xs.sum(axis=1))


def test_values_inside_loops_can_be_watched() -> None:
    module = program(running, [tensor(2, 3)])
    seen: list[Value] = []
    at = Evaluation(observe=lambda value, _: seen.append(value))
    function = module.symbol("main")
    assert function is not None
    at.run(function.regions[0], [np.ones((2, 3))])
    (body,) = [op.regions[0] for op in module.walk() if isinstance(op, flow.Scan)]
    assert seen.count(body.arguments[1]) == 2


def test_an_index_is_an_i64() -> None:
    body = Block([TensorType(I32), VECTOR])
    Builder(body, HERE).place(flow.Yield((body.arguments[1],)))
    x = Block([VECTOR]).arguments[0]
    with pytest.raises(ModelError, match=r"takes \(i32, f64\[3\]\), it is given \(i64, f64\[3\]\)"):
        flow.Scan((x,), (), (), body, 2, (), ())
    assert flow.COUNTER is TensorType(I64)


def derivatives(emit: Builder, x: Value) -> tuple[Value, ...]:
    """A derivative of a function with a rule of its own, part of which is held."""

    def custom(emit: Builder, x: Value) -> Value:
        rule = region(lambda emit, x, y, dy: emit(flow.StopGradient(dy)), [x.type] * 3)
        return emit(flow.Custom((x,), region(double, [x.type]), rule))

    body = region(custom, [x.type])
    return emit.all(flow.Vjp((x,), (x,), body, (0,), with_value=True))


PROGRAMS: dict[str, tuple[Build, list[TensorType]]] = {
    "if": (choose, [TensorType(BOOL), VECTOR]),
    "scan": (running, [TensorType(F64, (symbol("T"), 3))]),
    "reverse scan": (lambda emit, xs: running(emit, xs, y_axis=1, reverse=True), [tensor(4, 3)]),
    "while": (halve(None), [SCALAR]),
    "limited while": (halve(7), [SCALAR]),
    "derivatives": (derivatives, [VECTOR]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_prints_parses_and_prints_the_same(name: str) -> None:
    module = program(*PROGRAMS[name])
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text, "flow.dlir")) == text
