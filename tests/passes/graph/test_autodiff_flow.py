"""Reverse mode through control flow."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import array, flow
from dlc.errors import ModelError
from dlc.ir.core import Array, Builder, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F64, TensorType
from dlc.passes.graph.dce import dce
from tests.dialects.programs import (
    Build,
    check_gradient,
    emitted,
    evaluate,
    expanded,
    gradient,
    main,
    ops,
    region,
    run,
    tensor,
    types_of,
)

VECTOR = tensor(3)
RANDOM = np.random.default_rng(5)
XS = RANDOM.standard_normal((5, 3))
W = RANDOM.standard_normal(3)
H = RANDOM.standard_normal(3)
YES, NO = np.asarray(True), np.asarray(False)


def sine(emit: Builder, x: Value) -> Value:
    return emit(array.Sin(x))


def times(emit: Builder, x: Value, y: Value) -> Value:
    return emit(array.Multiply(x, y))


def total(emit: Builder, x: Value) -> Value:
    return emit(array.ReduceSum(x, tuple(range(array.tensor_type(x).rank))))


# if


def either(emit: Builder, condition: Value, x: Value, y: Value) -> tuple[Value, ...]:
    """sin(x) * y or x * x * exp(y); x twice among the inputs."""

    def yes(emit: Builder, x: Value, y: Value, again: Value) -> Value:
        return times(emit, sine(emit, x), y)

    def no(emit: Builder, x: Value, y: Value, again: Value) -> Value:
        return times(emit, times(emit, x, again), emit(array.Exp(y)))

    regions = region(yes, [VECTOR] * 3), region(no, [VECTOR] * 3)
    return emit.all(flow.If(condition, (x, y, x), *regions))


@pytest.mark.parametrize("condition", [YES, NO])
def test_the_branch_that_ran_is_the_one_that_counts(condition: Array) -> None:
    check_gradient(either, condition, H, W, order=3)


def test_branches_share_the_places_of_what_they_keep() -> None:
    module = expanded(gradient(either), [TensorType(BOOL), VECTOR, VECTOR])
    forward, backward = ops(module, flow.If)
    # sin(x) in one branch and exp(y) in the other take one place; the inputs and x * x none.
    assert len(forward.results) == 1 + 1
    assert len(backward.results) == 3


def test_a_branch_that_ignores_an_input_gives_it_zeros() -> None:
    def f(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
        def nothing(emit: Builder, x: Value) -> Value:
            return array.constant_like(emit, 2, x)

        return emit.all(flow.If(condition, (x,), region(sine, [VECTOR]), region(nothing, [VECTOR])))

    np.testing.assert_array_equal(evaluate(gradient(f), YES, H)[0], np.cos(H))
    np.testing.assert_array_equal(evaluate(gradient(f), NO, H)[0], np.zeros(3))


def test_where_no_branch_has_a_slope_there_is_no_way_back() -> None:
    def f(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
        signs = region(lambda emit, x: emit(array.Sign(x)), [VECTOR])
        floors = region(lambda emit, x: emit(array.Floor(x)), [VECTOR])
        return emit.all(flow.If(condition, (x,), signs, floors))

    module = expanded(gradient(f), [TensorType(BOOL), VECTOR])
    assert len(ops(module, flow.If)) == 1
    np.testing.assert_array_equal(run(module, YES, H)[0], np.zeros(3))


def test_a_result_that_the_reverse_needs_is_not_kept_twice() -> None:
    def f(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
        exponential = region(lambda emit, x: emit(array.Exp(x)), [VECTOR])
        return emit.all(flow.If(condition, (x,), exponential, region(sine, [VECTOR])))

    module = expanded(gradient(f), [TensorType(BOOL), VECTOR])
    assert len(ops(module, flow.If)[0].results) == 1


# scan


def cell(emit: Builder, index: Value, h: Value, x: Value, w: Value) -> tuple[Value, ...]:
    """h' = tanh(h * w + x), y = h' * h."""
    following = emit(array.Tanh(emit(array.Add(times(emit, h, w), x))))
    return following, times(emit, following, h)


def recurrent(reverse: bool = False) -> Build:
    def built(emit: Builder, h: Value, xs: Value, w: Value) -> tuple[Value, ...]:
        body = region(cell, [flow.COUNTER, VECTOR, VECTOR, VECTOR])
        length = array.tensor_type(xs).shape[0]
        return emit.all(flow.Scan((h,), (xs,), (w,), body, length, (0,), (1,), reverse))

    return built


def unrolled(emit: Builder, h: Value, xs: Value, w: Value) -> tuple[Value, ...]:
    columns: list[Value] = []
    for index in range(5):
        part = emit(array.Slice(xs, (index, 0), (index + 1, 3), (1, 1)))
        h, y = cell(emit, h, h, emit(array.Reshape(part, (3,))), w)
        columns.append(emit(array.Reshape(y, (3, 1))))
    return h, emit(array.Concatenate(tuple(columns), 1))


def test_the_gradient_through_a_scan_of_five_steps_is_that_of_the_unrolled_text() -> None:
    looped, plain = gradient(recurrent()), gradient(unrolled)
    for one, other in zip(evaluate(looped, H, XS, W), evaluate(plain, H, XS, W), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("reverse", [False, True])
def test_all_that_a_scan_takes_receives_its_gradient(reverse: bool) -> None:
    check_gradient(recurrent(reverse), H, XS, W, order=3)


def test_the_gradient_of_the_last_carry_alone() -> None:
    def last(emit: Builder, h: Value, xs: Value, w: Value) -> Value:
        return emitted(recurrent(), emit, [h, xs, w])[0]

    check_gradient(last, H, XS, W, order=2)


def test_the_gradient_of_the_stack_alone() -> None:
    def stack(emit: Builder, h: Value, xs: Value, w: Value) -> Value:
        return emitted(recurrent(), emit, [h, xs, w])[1]

    check_gradient(stack, H, XS, W, order=2)


def test_a_scan_runs_backwards_only_for_what_is_asked() -> None:
    module = expanded(gradient(recurrent(), [2]), [VECTOR, tensor(5, 3), VECTOR])
    backward = ops(module, flow.Scan)[1]
    # What h receives and the sum for w; nothing for xs.
    assert [result.type for result in backward.results] == [VECTOR, VECTOR]


def test_slices_and_constants_are_not_kept_again() -> None:
    def scaled(emit: Builder, xs: Value, w: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value, w: Value) -> Value:
            return times(emit, x, w)

        body = region(step, [flow.COUNTER, VECTOR, VECTOR])
        return emit.all(flow.Scan((), (xs,), (w,), body, 5, (0,), (0,)))

    module = expanded(gradient(scaled), types_of([XS, W]))
    forward, backward = ops(module, flow.Scan)
    assert len(forward.results) == 1
    assert isinstance(backward, flow.Scan)
    # Ones are not walked along either, and nothing is multiplied by them.
    assert backward.xs == (main(module).body.arguments[0],)
    assert not [op for op in backward.body if isinstance(op, array.Multiply)]


def test_what_is_stacked_already_is_not_kept_twice() -> None:
    def exponentials(emit: Builder, xs: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value) -> Value:
            return emit(array.Exp(x))

        body = region(step, [flow.COUNTER, VECTOR])
        return emit.all(flow.Scan((), (xs,), (), body, 5, (0,), (1,)))

    module = expanded(gradient(exponentials), [tensor(5, 3)])
    assert len(ops(module, flow.Scan)[0].results) == 1
    check_gradient(exponentials, XS, order=2)


def test_repeated_values_are_kept_once_and_repeated_again() -> None:
    def rows(emit: Builder, xs: Value, w: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value, w: Value) -> Value:
            size = emit(array.Tanh(total(emit, x)))
            wide = emit(array.Broadcast(size, (3,), ()))
            return times(emit, wide, times(emit, x, w))

        body = region(step, [flow.COUNTER, VECTOR, VECTOR])
        return emit.all(flow.Scan((), (xs,), (w,), body, 5, (0,), (0,)))

    module = expanded(gradient(rows), types_of([XS, W]))
    kept = [result.type for result in ops(module, flow.Scan)[0].results[1:]]
    assert kept == [tensor(5)]
    check_gradient(rows, XS, W, order=2)


def test_what_is_cheap_is_computed_again_from_the_fewest_bytes() -> None:
    """Of gelu its argument, a product; neither the error function nor the result."""

    def layers(emit: Builder, x: Value, ws: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value, w: Value) -> Value:
            y = emit(array.MatMul(x, w))
            scaled = times(emit, y, array.constant_like(emit, 0.5**0.5, y))
            risen = emit(array.Add(emit(array.Erf(scaled)), array.constant_like(emit, 1, y)))
            bent = times(emit, times(emit, y, array.constant_like(emit, 0.5, y)), risen)
            return emit(array.MatMul(bent, w))

        body = region(step, [flow.COUNTER, tensor(2, 3), tensor(3, 3)])
        return emit.all(flow.Scan((x,), (ws,), (), body, 5, (0,), ()))

    module = expanded(gradient(layers), [tensor(2, 3), tensor(5, 3, 3)])
    forward = ops(module, flow.Scan)[0]
    # The carried value, which is the left side of the first product, and the product.
    assert [result.type for result in forward.results[1:]] == [tensor(5, 2, 3)] * 2
    rng = np.random.default_rng(0)
    check_gradient(layers, rng.standard_normal((2, 3)), rng.standard_normal((5, 3, 3)) / 2)


def test_a_small_value_is_kept_for_a_large_one_that_follows_from_it() -> None:
    def rows(emit: Builder, xs: Value, w: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value, w: Value) -> Value:
            mean = emit(array.Exp(total(emit, x)))
            centred = emit(array.Subtract(w, emit(array.Broadcast(mean, (3,), ()))))
            return times(emit, centred, times(emit, centred, centred))

        body = region(step, [flow.COUNTER, VECTOR, VECTOR])
        return emit.all(flow.Scan((), (xs,), (w,), body, 5, (0,), (0,)))

    module = expanded(gradient(rows), types_of([XS, W]))
    kept = [result.type for result in ops(module, flow.Scan)[0].results[1:]]
    assert kept == [tensor(5)]
    check_gradient(rows, XS, W)


def test_the_index_is_known_on_the_way_back() -> None:
    def ramp(emit: Builder, xs: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, x: Value) -> Value:
            number = emit(array.Broadcast(emit(array.Cast(index, F64)), (3,), ()))
            return times(emit, number, x)

        body = region(step, [flow.COUNTER, VECTOR])
        return emit.all(flow.Scan((), (xs,), (), body, 5, (0,), (0,)))

    (found,) = evaluate(gradient(ramp), XS)
    np.testing.assert_array_equal(found, np.repeat(np.arange(5.0)[:, None], 3, axis=1))


def test_a_carry_that_matters_only_from_the_second_step_on() -> None:
    def swap(emit: Builder, x: Value) -> tuple[Value, ...]:
        """The carries (a, b) become (sin b, x): a depends on x after two steps."""

        def step(emit: Builder, index: Value, a: Value, b: Value, x: Value) -> tuple[Value, ...]:
            return sine(emit, b), x

        start = array.constant_like(emit, 0.5, x)
        body = region(step, [flow.COUNTER, VECTOR, VECTOR, VECTOR])
        return emit.all(flow.Scan((start, start), (), (x,), body, 3, (), ()))

    check_gradient(swap, H, order=2)


def test_loops_in_loops() -> None:
    def outer(emit: Builder, h: Value, xs: Value, w: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, h: Value, xs: Value, w: Value) -> tuple[Value, ...]:
            body = region(cell, [flow.COUNTER, VECTOR, VECTOR, VECTOR])
            return emit.all(flow.Scan((h,), (xs,), (w,), body, 2, (0,), (0,)))

        body = region(step, [flow.COUNTER, VECTOR, tensor(2, 3), VECTOR])
        return emit.all(flow.Scan((h,), (xs,), (w,), body, 4, (1,), (0,)))

    check_gradient(outer, H, RANDOM.standard_normal((2, 4, 3)), W, order=2)


def test_a_choice_in_a_loop() -> None:
    def f(emit: Builder, xs: Value, w: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, h: Value, x: Value, w: Value) -> tuple[Value, ...]:
            zero = array.fill(emit, 0, tensor())
            positive = emit(array.Compare(total(emit, x), zero, "gt"))
            yes = region(times, [VECTOR] * 2)
            no = region(lambda emit, h, x: sine(emit, emit(array.Add(h, x))), [VECTOR] * 2)
            h = emit(flow.If(positive, (h, x), yes, no))
            return h, times(emit, h, w)

        body = region(step, [flow.COUNTER, VECTOR, VECTOR, VECTOR])
        return emit.all(flow.Scan((w,), (xs,), (w,), body, 5, (0,), (0,)))

    assert (XS.sum(axis=1) > 0).any() and (XS.sum(axis=1) < 0).any()
    check_gradient(f, XS, W, order=2)


def test_a_derivative_inside_a_loop() -> None:
    def descent(emit: Builder, x: Value, w: Value) -> tuple[Value, ...]:
        """Three steps down the gradient of sum(sin(x) * w); differentiated as a whole."""

        def step(emit: Builder, index: Value, x: Value, w: Value) -> Value:
            def loss(emit: Builder, x: Value, w: Value) -> Value:
                return total(emit, times(emit, sine(emit, x), w))

            one = array.fill(emit, 1, tensor())
            slope = emit(flow.Vjp((x, w), (one,), region(loss, [VECTOR] * 2), (0,)))
            return emit(array.Subtract(x, slope))

        body = region(step, [flow.COUNTER, VECTOR, VECTOR])
        return emit.all(flow.Scan((x,), (), (w,), body, 3, (), ()))

    check_gradient(descent, H, W, order=2)


def test_the_length_may_be_symbolic() -> None:
    types = [VECTOR, TensorType(F64, (symbol("T"), 3)), VECTOR]
    module = expanded(gradient(recurrent()), types)
    found = run(module, H, XS, W, dims={"T": 5})
    for one, other in zip(found, evaluate(gradient(recurrent()), H, XS, W), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_long_body_is_no_problem() -> None:
    def f(emit: Builder, x: Value) -> tuple[Value, ...]:
        def step(emit: Builder, index: Value, h: Value) -> Value:
            for _ in range(1000):
                h = sine(emit, h)
            return h

        return emit.all(flow.Scan((x,), (), (), region(step, [flow.COUNTER, VECTOR]), 2, (), ()))

    module = expanded(gradient(f), [VECTOR])
    assert len(ops(module, array.Cos)) == 1000


def test_no_step_leaves_dead_operations_behind() -> None:
    module = expanded(gradient(recurrent()), [VECTOR, tensor(5, 3), VECTOR])
    inside: list[Op] = [op for scan in ops(module, flow.Scan) for op in scan.regions[0]]
    before = len(inside)
    dce.run(module, Context())
    assert before == sum(len(scan.regions[0]) for scan in ops(module, flow.Scan))


# while


def newton(limit: int | None) -> Build:
    """The square root of a by Newton's method from x, and how far the first guess was off."""

    def built(emit: Builder, x: Value, a: Value) -> tuple[Value, ...]:
        def off(emit: Builder, x: Value, a: Value) -> Value:
            return emit(array.Subtract(times(emit, x, x), a))

        def above(emit: Builder, x: Value, error: Value, a: Value) -> Value:
            distance = emit(array.Abs(off(emit, x, a)))
            return emit(array.Compare(distance, array.constant_like(emit, 0.2, x), "gt"))

        def step(emit: Builder, x: Value, error: Value, a: Value) -> tuple[Value, ...]:
            half = array.constant_like(emit, 0.5, x)
            following = times(emit, half, emit(array.Add(x, emit(array.Divide(a, x)))))
            return following, emit(array.Add(error, off(emit, x, a)))

        start = array.constant_like(emit, 0, x)
        regions = region(above, [tensor()] * 3), region(step, [tensor()] * 3)
        return emit.all(flow.While((x, start), (a,), *regions, limit))

    return built


@pytest.mark.parametrize("limit", [4, 100])
def test_the_gradient_through_a_while(limit: int) -> None:
    check_gradient(newton(limit), np.asarray(6.0), np.asarray(2.0), order=2)


def test_a_while_that_does_not_run_hands_the_cotangent_through() -> None:
    found = evaluate(gradient(newton(10)), np.asarray(1.4), np.asarray(2.0))
    assert [float(value) for value in found] == [1, 0]


def test_the_tape_has_as_many_entries_as_the_limit() -> None:
    module = expanded(gradient(newton(100)), [tensor()] * 2)
    forward = ops(module, flow.While)[0]
    tapes = [result.type for result in forward.results[3:]]
    assert tapes and set(tapes) == {tensor(100)}


def test_the_derivative_of_a_while_without_a_limit_is_refused() -> None:
    with pytest.raises(ModelError, match=r"(?s)D0406.*limit 100"):
        expanded(gradient(newton(None)), [tensor()] * 2)


def test_a_while_without_a_limit_may_stand_beside_a_derivative() -> None:
    def f(emit: Builder, x: Value, a: Value) -> Value:
        return times(emit, x, emitted(newton(None), emit, [a, a])[0])

    (found,) = evaluate(gradient(f, [0]), np.asarray(3.0), np.asarray(2.0))
    assert abs(float(found) - np.sqrt(2)) < 0.1
