"""Loops and branches as machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dlc.dialects import array, flow
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import F32, I64, TensorType
from tests.lowering.everywhere import HERE, Program, check

COUNTER = TensorType(I64)


def f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def region(types: Sequence[TensorType], write: Callable[..., Sequence[Value]]) -> Block:
    block = Block(types)
    emit = Builder(block, HERE)
    emit.place(flow.Yield(tuple(write(emit, *block.arguments))))
    return block


def scan(emit: Builder, x: Value, start: Value, w: Value) -> Sequence[Value]:
    def step(e: Builder, i: Value, h: Value, xs: Value, w: Value) -> Sequence[Value]:
        g = e(array.Add(e(array.MatMul(h, w)), xs))
        g = e(array.Sqrt(e(array.Abs(g))))
        return g, g, e(array.Add(xs, h)), e(array.Cast(i, F32))

    body = region([COUNTER, f32(4, 6), f32(4, 6), f32(6, 6)], step)
    return emit.all(flow.Scan((start,), (x,), (w,), body, 5, (1,), (1, 0, 0)))


def scan_that_swaps(emit: Builder, x: Value, start: Value, w: Value) -> Sequence[Value]:
    def step(e: Builder, i: Value, h: Value, k: Value, xs: Value, w: Value) -> Sequence[Value]:
        return k, e(array.Add(h, xs)), h, e(array.Transpose(xs, (1, 0)))

    body = region([COUNTER, f32(4, 6), f32(4, 6), f32(4, 6), f32(6, 6)], step)
    first = (start, emit(array.Negate(start)))
    return emit.all(flow.Scan(first, (x,), (w,), body, 5, (1,), (2, 1), True))


def nested_scans(emit: Builder, x: Value, start: Value, w: Value) -> Sequence[Value]:
    def inner(e: Builder, i: Value, a: Value, row: Value) -> Sequence[Value]:
        return e(array.Add(a, row)), e(array.Multiply(a, row))

    def outer(e: Builder, i: Value, c: Value, xs: Value, w: Value) -> Sequence[Value]:
        body = region([COUNTER, f32(6), f32(6)], inner)
        zero = array.fill(e, 0, f32(6))
        last, stack = e.all(flow.Scan((zero,), (xs,), (), body, 5, (0,), (0,)))
        return e(array.Add(c, last)), stack

    body = region([COUNTER, f32(6), f32(5, 6), f32(6, 6)], outer)
    total = emit(array.ReduceSum(start, (0,)))
    return emit.all(flow.Scan((total,), (x,), (w,), body, 4, (0,), (1,)))


def while_loop(emit: Builder, x: Value, start: Value, w: Value) -> Sequence[Value]:
    def test(e: Builder, a: Value, n: Value) -> Sequence[Value]:
        total = e(array.ReduceSum(a, (0, 1)))
        return (e(array.Compare(total, array.fill(e, 100, f32()), "lt")),)

    def step(e: Builder, a: Value, n: Value) -> Sequence[Value]:
        one = array.fill(e, 1, f32(4, 6))
        return e(array.Add(e(array.Abs(a)), one)), e(array.Add(n, array.fill(e, 1, COUNTER)))

    types = [f32(4, 6), COUNTER]
    zero = array.fill(emit, 0, COUNTER)
    return emit.all(flow.While((start, zero), (), region(types, test), region(types, step), 1000))


def branch(emit: Builder, x: Value, start: Value, w: Value) -> Sequence[Value]:
    total = emit(array.ReduceSum(start, (0, 1)))
    test = emit(array.Compare(total, array.fill(emit, 0, f32()), "lt"))
    types = [f32(4, 6), f32(6, 6)]
    both = emit.all(flow.If(test, (start, w), region(types, yes), region(types, no)))
    other = emit(array.Not(test))
    one = emit.all(flow.If(other, (start, w), region(types, first), region(types, second)))
    return *both, *one


def yes(emit: Builder, h: Value, w: Value) -> Sequence[Value]:
    return emit(array.MatMul(h, w)), h


def no(emit: Builder, h: Value, w: Value) -> Sequence[Value]:
    return emit(array.Negate(h)), emit(array.Abs(h))


def first(emit: Builder, h: Value, w: Value) -> Sequence[Value]:
    return (emit(array.MatMul(h, w)),)


def second(emit: Builder, h: Value, w: Value) -> Sequence[Value]:
    return (h,)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "program", [scan, scan_that_swaps, nested_scans, while_loop, branch], ids=lambda f: f.__name__
)
def test_control_flow_runs_natively(program: Program, level: int) -> None:
    check(program, f32(4, 5, 6), f32(4, 6), f32(6, 6), level=level, rtol=1e-4)
