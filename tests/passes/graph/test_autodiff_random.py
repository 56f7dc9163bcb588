"""Reverse mode through random programs in which loops, choices and derivatives nest."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from dlc.dialects import array, flow
from dlc.ir.core import Builder, Value
from tests.dialects.programs import check_gradient, region, tensor
from tests.suites import every

VECTOR, ROWS = tensor(3), tensor(4, 3)


def gentle(emit: Builder, x: Value) -> Value:
    """sin(x / 2): bounded, and its derivatives fall, so that differences are exact."""
    return emit(array.Sin(emit(array.Multiply(x, array.constant_like(emit, 0.5, x)))))


class Writer:
    """Emits random operations on vectors of three elements, all of them smooth and bounded."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def program(self, emit: Builder, x: Value, y: Value, xs: Value) -> tuple[Value, ...]:
        known = self.some(emit, [x, y], xs, depth=2)
        return tuple(known[-2:])

    def some(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> list[Value]:
        """A few operations on known values; all that are known then."""
        kinds = [self.sine, self.product, self.sum, self.mixed]
        if depth:
            kinds += [self.choice, self.scan, self.loop, self.slope] * 2
        for _ in range(self.random.randint(2, 4)):
            known = [*known, self.random.choice(kinds)(emit, known, xs, depth)]
        return known

    def pick(self, known: list[Value]) -> Value:
        return self.random.choice(known)

    def sine(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        return gentle(emit, self.pick(known))

    def product(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        return gentle(emit, emit(array.Multiply(self.pick(known), self.pick(known))))

    def sum(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        return gentle(emit, emit(array.Add(self.pick(known), self.pick(known))))

    def mixed(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        total = emit(array.ReduceSum(self.pick(known), (0,)))
        return gentle(emit, emit(array.Broadcast(total, (3,), ())))

    def inner(self, depth: int) -> Callable[[Builder, Value, Value, Value], Value]:
        """A function of two vectors and rows."""

        def built(emit: Builder, x: Value, y: Value, xs: Value) -> Value:
            return self.some(emit, [x, y], xs, depth - 1)[-1]

        return built

    def choice(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        index = array.fill(emit, self.random.choice([0, 1]), flow.COUNTER)
        condition = emit(array.Compare(index, array.constant_like(emit, 0, index), "eq"))
        regions = [region(self.inner(depth), [VECTOR, VECTOR, ROWS]) for _ in range(2)]
        return emit(flow.If(condition, (self.pick(known), self.pick(known), xs), *regions))

    def scan(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        build = self.inner(depth)

        def step(
            emit: Builder, index: Value, h: Value, x: Value, w: Value, xs: Value
        ) -> tuple[Value, ...]:
            following = build(emit, h, emit(array.Add(x, w)), xs)
            return following, emit(array.Multiply(following, w))

        body = region(step, [flow.COUNTER, VECTOR, VECTOR, VECTOR, ROWS])
        start, constants = (self.pick(known),), (self.pick(known), xs)
        axes = (0,), (self.random.choice([0, 1]),)
        made = flow.Scan(start, (xs,), constants, body, 4, *axes, self.random.random() < 0.5)
        last, stack = emit.all(made)
        total = emit(array.ReduceSum(stack, axes[1]))
        return gentle(emit, emit(array.Add(last, total)))

    def loop(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        build, rounds = self.inner(depth), self.random.randint(0, 3)

        def more(emit: Builder, count: Value, h: Value, w: Value, xs: Value) -> Value:
            limit = array.constant_like(emit, rounds, count)
            return emit(array.Compare(count, limit, "lt"))

        def step(emit: Builder, count: Value, h: Value, w: Value, xs: Value) -> tuple[Value, ...]:
            following = emit(array.Add(count, array.constant_like(emit, 1, count)))
            return following, build(emit, h, w, xs)

        start = array.fill(emit, 0, flow.COUNTER)
        types = [flow.COUNTER, VECTOR, VECTOR, ROWS]
        regions = region(more, types), region(step, types)
        constants = (self.pick(known), xs)
        return emit.all(flow.While((start, self.pick(known)), constants, *regions, 5))[1]

    def slope(self, emit: Builder, known: list[Value], xs: Value, depth: int) -> Value:
        body = region(self.inner(depth), [VECTOR, VECTOR, ROWS])
        inputs = (self.pick(known), self.pick(known), xs)
        found = emit(flow.Vjp(inputs, (self.pick(known),), body, (0,)))
        return gentle(emit, found)


@pytest.mark.parametrize("seed", every(6, range(40)))
def test_the_gradient_of_a_random_program_is_that_of_differences(seed: int) -> None:
    data = np.random.default_rng(seed)
    inputs = data.standard_normal(3), data.standard_normal(3), data.standard_normal((4, 3))
    # The same program each time it is built.
    check_gradient(lambda emit, x, y, xs: Writer(seed).program(emit, x, y, xs), *inputs, rtol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300))
def test_the_second_derivative_of_a_random_program_is_that_of_differences(seed: int) -> None:
    data = np.random.default_rng(seed)
    inputs = data.standard_normal(3), data.standard_normal(3), data.standard_normal((4, 3))
    check_gradient(
        lambda emit, x, y, xs: Writer(seed).program(emit, x, y, xs), *inputs, order=2, rtol=2e-5
    )
