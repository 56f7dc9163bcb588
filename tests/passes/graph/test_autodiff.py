"""Reverse mode over plain operations: exact results, errors, size."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dlc.dialects import array, flow
from dlc.dialects.decomposed import Decomposed
from dlc.errors import ModelError
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.define import op, operand
from dlc.ir.passes import Context
from dlc.ir.types import F32, I32, TensorType, Type
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.dce import dce
from tests.dialects.programs import (
    assert_close,
    check_gradient,
    evaluate,
    expanded,
    gradient,
    main,
    ops,
    program,
    region,
    run,
    tensor,
)

X = np.array([0.3, -1.2, 2.0])


def sine(emit: Builder, x: Value) -> Value:
    return emit(array.Sin(x))


def total(emit: Builder, x: Value) -> Value:
    return emit(array.ReduceSum(x, tuple(range(array.tensor_type(x).rank))))


def product(emit: Builder, x: Value, y: Value, z: Value) -> Value:
    return emit(array.Multiply(emit(array.Add(x, y)), z))


def polynomial(emit: Builder, x: Value) -> Value:
    """3x² + 2x + 3."""
    three, two = array.constant_like(emit, 3, x), array.constant_like(emit, 2, x)
    square = emit(array.Multiply(three, emit(array.Multiply(x, x))))
    return emit(array.Add(emit(array.Add(square, emit(array.Multiply(two, x)))), three))


def test_the_gradients_of_a_product_of_a_sum() -> None:
    inputs = [np.asarray(v) for v in (-2.0, 5.0, -4.0)]
    assert [float(v) for v in evaluate(gradient(product), *inputs)] == [-4, -4, 3]


def test_the_gradient_of_a_sum_of_products_is_the_other_factor_itself() -> None:
    def f(emit: Builder, x: Value, y: Value, z: Value) -> Value:
        return total(emit, emit(array.Add(emit(array.Multiply(x, y)), z)))

    module = expanded(gradient(f), [tensor(3, 4)] * 3)
    dce.run(module, Context())
    x, y, _ = main(module).body.arguments
    dx, dy, dz = main(module).results_returned
    assert (dx, dy) == (y, x)
    assert isinstance(dz.op, array.Fill) and dz.op.value == 1
    assert len(main(module).body) == 2


def test_the_gradient_of_a_sum_of_sines_is_one_cosine() -> None:
    module = expanded(gradient(lambda emit, x: total(emit, sine(emit, x))), [tensor(3)])
    dce.run(module, Context())
    assert [op.name for op in main(module).body] == ["array.cos", "func.return"]


def test_the_gradient_of_a_polynomial() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(evaluate(polynomial, x)[0], [[8, 19], [36, 59]])
    np.testing.assert_array_equal(evaluate(gradient(polynomial), x)[0], [[8, 14], [20, 26]])


def test_what_one_operation_gives_twice_is_added_first() -> None:
    """2 + (3x + 3x): the two products are one after CSE, and their sum another multiple of x."""
    (slope,) = main(expanded(gradient(polynomial), [tensor()])).results_returned
    assert isinstance(slope.op, array.Add)
    two, both = slope.op.operands
    assert isinstance(two.op, array.Fill)
    assert isinstance(both.op, array.Add)
    assert all(isinstance(value.op, array.Multiply) for value in both.op.operands)


def test_the_gradient_of_a_polynomial_of_a_sine() -> None:
    def of_sine(emit: Builder, x: Value) -> Value:
        return polynomial(emit, sine(emit, x))

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    expected = [[3.808497, -3.102701], [-2.818231, 1.660787]]
    assert_close(evaluate(gradient(of_sine), x)[0], expected, atol=1e-6)


def test_gradients_of_gradients() -> None:
    check_gradient(sine, X, order=4)
    check_gradient(lambda emit, x: emit(array.Exp(sine(emit, x))), X, order=3)


def test_what_is_used_twice_receives_both() -> None:
    def f(emit: Builder, x: Value) -> Value:
        return emit(array.Multiply(sine(emit, x), emit(array.Multiply(x, x))))

    check_gradient(f, X, order=2)


def test_one_value_passed_for_two_inputs_counts_for_each() -> None:
    def twice(emit: Builder, x: Value) -> tuple[Value, ...]:
        def difference(emit: Builder, a: Value, b: Value) -> Value:
            return emit(array.Subtract(a, b))

        body = region(difference, [x.type, x.type])
        ones = array.constant_like(emit, 1, x)
        return emit.all(flow.Vjp((x, x), (ones,), body, (0, 1)))

    first, second = evaluate(twice, X)
    np.testing.assert_array_equal(first, np.ones(3))
    np.testing.assert_array_equal(second, -np.ones(3))


def test_an_input_that_changes_nothing_receives_zeros() -> None:
    _, found = evaluate(gradient(lambda emit, x, y: sine(emit, x)), X, np.ones((2, 2)))
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_a_result_that_is_an_input_hands_its_cotangent_on() -> None:
    (found,) = evaluate(gradient(lambda emit, x: x), X)
    np.testing.assert_array_equal(found, np.ones(3))


def weighted_sine(emit: Builder, x: Value, dy: Value) -> tuple[Value, ...]:
    """The sine and what x receives when it receives dy."""
    body = region(sine, [x.type])
    return emit.all(flow.Vjp((x,), (dy,), body, (0,), with_value=True))


def test_the_value_comes_with_the_gradient_and_the_cotangent_counts() -> None:
    dy = np.array([1.0, 10.0, 100.0])
    value, found = evaluate(weighted_sine, X, dy)
    np.testing.assert_array_equal(value, np.sin(X))
    np.testing.assert_array_equal(found, dy * np.cos(X))


def test_the_value_and_its_gradient_can_be_differentiated() -> None:
    check_gradient(weighted_sine, X, np.array([1.0, 10.0, 100.0]), order=2)


def test_the_value_is_computed_once_for_both_halves() -> None:
    def exponential(emit: Builder, x: Value) -> tuple[Value, ...]:
        body = region(lambda emit, x: emit(array.Exp(x)), [x.type])
        ones = array.constant_like(emit, 1, x)
        return emit.all(flow.Vjp((x,), (ones,), body, (0,), with_value=True))

    module = expanded(exponential, [tensor(3)])
    assert len(ops(module, array.Exp)) == 1
    value, slope = main(module).results_returned
    assert value is slope


def test_a_vjp_is_worth_what_it_becomes() -> None:
    module = program(weighted_sine, [tensor(3), tensor(3)])
    dy = np.array([1.0, 10.0, 100.0])
    before, after = run(module, X, dy), evaluate(weighted_sine, X, dy)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def asked(types: list[Type], names: list[str], wrt: int) -> None:
    """Ask for the gradient of a gathered table: `names` are those of the function's parameters."""

    def last(emit: Builder, *arguments: Value) -> Value:
        return arguments[-1]

    body = region(last, types)
    for argument, name in zip(body.arguments, names, strict=True):
        argument.name = name
    outer = region(last, types)
    emit = Builder.before_op(outer.terminator)
    given = (array.constant_like(emit, 1, outer.arguments[-1]),)
    flow.Vjp(tuple(outer.arguments), given, body, (wrt,))


def test_an_integer_has_no_derivative() -> None:
    types: list[Type] = [TensorType(I32, (4, 8)), TensorType(F32, (16, 2))]
    with pytest.raises(
        ModelError, match=r"(?s)D0404.*ids: i32\[4, 8\] has no deriv.*did you mean emb\?"
    ):
        asked(types, ["ids", "emb"], 0)


def test_a_function_has_only_the_inputs_that_it_has() -> None:
    with pytest.raises(ModelError, match=r"D0408.*no input 1"):
        asked([tensor(3)], ["x"], 1)


def test_each_float_result_receives_one_cotangent_of_its_type() -> None:
    def wrong(emit: Builder, x: Value) -> tuple[Value, ...]:
        one = array.fill(emit, 1, tensor())
        return emit.all(flow.Vjp((x,), (one,), region(sine, [x.type]), (0,)))

    with pytest.raises(ModelError, match=r"D0408.*are \(f64\[3\]\), they receive \(f64\)"):
        program(wrong, [tensor(3)])


def test_an_operation_without_a_derivative_says_why() -> None:
    def f(emit: Builder, x: Value) -> Value:
        return emit(array.Bitcast(emit(array.Bitcast(x, I32)), F32))

    def g(emit: Builder, x: Value) -> Value:
        return emit(array.Bitcast(x, F32))

    # Through integers there is no path at all; from float to float the path is refused.
    module = expanded(gradient(f), [TensorType(F32, (3,))])
    np.testing.assert_array_equal(run(module, X.astype(np.float32))[0], np.zeros(3))
    with pytest.raises(ModelError, match=r"D0405.*array.bitcast has no derivative: it reinter"):
        expanded(gradient(g), [TensorType(F32, (3,))])


def test_nothing_goes_back_through_stop_gradient() -> None:
    def f(emit: Builder, x: Value) -> Value:
        return emit(array.Multiply(x, emit(flow.StopGradient(sine(emit, x)))))

    module = expanded(gradient(f), [tensor(3)])
    assert not ops(module, flow.StopGradient)
    np.testing.assert_array_equal(run(module, X)[0], np.sin(X))


def test_stop_gradient_holds_for_outer_derivatives_too() -> None:
    def f(emit: Builder, x: Value) -> Value:
        held = emit(flow.StopGradient(emit(array.Multiply(x, x))))
        return emit(array.Multiply(emit(array.Multiply(x, x)), held))

    (second,) = evaluate(gradient(gradient(f)), X)
    assert_close(second, 2 * X * X, rtol=1e-15)


def clipped(emit: Builder, x: Value) -> tuple[Value, ...]:
    """The square, whose rule says that x receives `dy * y`; an integer goes along."""

    def square(emit: Builder, x: Value, n: Value) -> tuple[Value, ...]:
        return emit(array.Multiply(x, x)), n

    def rule(emit: Builder, x: Value, n: Value, y: Value, m: Value, dy: Value) -> Value:
        return emit(array.Multiply(dy, y))

    count = array.fill(emit, 7, TensorType(I32))
    types = [x.type, count.type]
    regions = region(square, types), region(rule, [*types, *types, x.type])
    return emit.all(flow.Custom((x, count), *regions))


def test_a_custom_rule_is_used_and_then_gone() -> None:
    np.testing.assert_array_equal(evaluate(gradient(clipped), X)[0], X * X)
    module = expanded(gradient(clipped), [tensor(3)])
    assert not ops(module, flow.Custom)


def test_without_a_derivative_a_custom_function_is_what_it_computes() -> None:
    value, count = evaluate(clipped, X)
    np.testing.assert_array_equal(value, X * X)
    assert int(count) == 7
    assert not ops(expanded(clipped, [tensor(3)]), flow.Custom)


def test_the_derivative_of_a_custom_rule_uses_the_rule_again() -> None:
    # d/dx of x**2, by the rule, is x**2; so is its derivative.
    np.testing.assert_array_equal(evaluate(gradient(gradient(clipped)), X)[0], X * X)


def test_a_rule_gives_one_value_for_each_float() -> None:
    def wrong(emit: Builder, x: Value) -> tuple[Value, ...]:
        rule = region(lambda emit, x, y, dy: (), [x.type] * 3)
        return emit.all(flow.Custom((x,), region(sine, [x.type]), rule))

    with pytest.raises(ModelError, match=r"D0409.*the rule gives \(\).*are \(f64\[3\]\)"):
        program(wrong, [tensor(3)])


@op("test_autodiff.cube")
class Cube(Decomposed):
    """x**3, without a rule of its own."""

    source: Value = operand()

    def infer(self) -> Type:
        return self.source.type

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        square = emit(array.Multiply(self.source, self.source))
        return (emit(array.Multiply(square, self.source)),)


def cubes(emit: Builder, x: Value) -> Value:
    return emit(Cube(emit(Cube(x))))


def test_what_has_no_rule_is_differentiated_through_its_decomposition() -> None:
    assert_close(evaluate(cubes, X)[0], X**9, rtol=1e-15)
    check_gradient(cubes, X, order=2)


def test_what_has_no_rule_stays_whole_where_no_derivative_passes() -> None:
    def f(emit: Builder, x: Value, y: Value) -> Value:
        return emit(array.Multiply(cubes(emit, x), emit(Cube(y))))

    module = expanded(gradient(f, [1]), [tensor(3), tensor(3)])
    assert len(ops(module, Cube)) == 2


def test_the_users_values_inside_a_derivative_are_followed() -> None:
    def cubed_sine(emit: Builder, x: Value) -> Value:
        return total(emit, emit(Cube(sine(emit, x))))

    module = program(gradient(cubed_sine), [tensor(3)])
    context = Context()
    for kind, name in ((array.Sin, "s"), (Cube, "c")):
        context.values.track(ops(module, kind)[0].results[0], "main", name)
    autodiff.run(module, context)
    seen: dict[Value, object] = {}
    Evaluation(observe=lambda value, found: seen.update({value: found})).run(main(module).body, [X])
    found = {origin.name: origin.value for origin in context.values}
    assert found["s"] is not None and found["c"] is not None
    np.testing.assert_array_equal(seen[found["s"]], np.sin(X))
    np.testing.assert_array_equal(seen[found["c"]], np.sin(X) ** 3)


def test_the_log_says_what_was_differentiated() -> None:
    context = Context()
    autodiff.run(program(gradient(sine), [tensor(3)]), context)
    assert [str(decision) for decision in context.log] == [
        ": did differentiate: flow.vjp at - (inputs 1)"
    ]
    assert autodiff.required


def test_a_chain_of_ten_thousand_operations() -> None:
    def chain(emit: Builder, x: Value) -> Value:
        for _ in range(5000):
            x = emit(array.Multiply(emit(array.Sin(x)), x))
        return x

    start = time.process_time()
    module = expanded(gradient(chain), [tensor(2)])
    assert time.process_time() - start < 5
    assert len(main(module).body) > 20_000
    (found,) = run(module, np.array([0.5, -0.5]))
    assert np.isfinite(found).all()


def test_a_value_with_ten_thousand_users() -> None:
    def fan(emit: Builder, x: Value) -> Value:
        found = x
        for _ in range(10_000):
            found = emit(array.Add(found, x))
        return found

    np.testing.assert_array_equal(evaluate(gradient(fan), np.asarray(2.0))[0], 10_001)
