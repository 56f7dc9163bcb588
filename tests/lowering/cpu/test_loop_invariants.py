"""What need not be done in every step of a loop is done before it, or once after it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dlc.dialects import array, flow, kernel
from dlc.dialects.kernel.products import Product
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I32, TensorType
from tests.dialects.programs import region
from tests.lowering.everywhere import Program, check, function_of
from tests.suites import every

B = symbol("B")


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def scan_of(program: Program, types: Sequence[TensorType], stage: str) -> flow.Scan | flow.While:
    """The only loop of a program that has come to a stage."""
    dims = {"B": (1, 8)}
    module, _ = function_of(program, types, dims)
    Manager(Context(Options())).run(module, pipeline("graph", stage, 2))
    (found,) = [op for op in module.walk() if isinstance(op, flow.Scan | flow.While)]
    return found


def inside(loop: Op, kind: type[Op]) -> list[Op]:
    return [op for op in loop.walk() if isinstance(op, kind)]


# Before the loop ----------------------------------------------------------------------------------

CELL = [f32(4, 40), f32(5, 4, 40), f32(40, 40)]


def cell(emit: Builder, h: Value, xs: Value, w: Value) -> Sequence[Value]:
    """A recurrent layer: its weight is not a constant of the artifact, so panels are made in the call."""

    def step(emit: Builder, i: Value, h: Value, x: Value, w: Value) -> Value:
        return emit(array.Tanh(emit(array.Add(emit(array.MatMul(h, w)), x))))

    body = region(step, [flow.COUNTER, f32(4, 40), f32(4, 40), f32(40, 40)])
    return emit.all(flow.Scan((h,), (xs,), (w,), body, 5, (0,), ()))


def repeated(emit: Builder, h: Value, w: Value) -> Sequence[Value]:
    def small(emit: Builder, h: Value, w: Value) -> Value:
        largest = emit(array.ReduceMax(emit(array.Abs(h)), (0, 1)))
        return emit(array.Compare(largest, array.constant_like(emit, 1e3, largest), "lt"))

    def step(emit: Builder, h: Value, w: Value) -> Value:
        return emit(array.MatMul(h, w))

    regions = region(small, [f32(4, 40), f32(40, 40)]), region(step, [f32(4, 40), f32(40, 40)])
    return emit.all(flow.While((h,), (w,), *regions, 30))


@pytest.mark.parametrize(("program", "types"), [(cell, CELL), (repeated, [CELL[0], CELL[2]])])
def test_panels_of_what_does_not_change_are_made_before_the_loop(
    program: Program, types: Sequence[TensorType]
) -> None:
    loop = scan_of(program, types, "kernel")
    (product,) = inside(loop, Product)
    assert isinstance(product, Product)
    assert product.rhs in loop.body.arguments
    assert product.rhs.type is not CELL[2], "the weight itself is no panel"
    check(program, *types, rtol=1e-4)


def test_what_could_fail_stays_in_the_loop() -> None:
    """The loop may take no step: an index that is out of range is not a mistake then."""
    types = [f32(4), TensorType(I32, (4,)), f32(9), f32(B, 4)]

    def program(emit: Builder, h: Value, at: Value, table: Value, xs: Value) -> Sequence[Value]:
        def step(emit: Builder, *given: Value) -> Value:
            _, h, x, at, table = given
            row = emit(array.Gather(table, (at,), (0,)))
            return emit(array.Add(emit(array.Add(h, x)), row))

        body = region(step, [flow.COUNTER, types[0], types[0], types[1], types[2]])
        return emit.all(flow.Scan((h,), (xs,), (at, table), body, B, (0,), ()))

    assert inside(scan_of(program, types, "kernel"), kernel.CheckIndex)


# After the loop -----------------------------------------------------------------------------------


def summing(x_axis: int, y_axis: int | None, *, turned: bool) -> tuple[Program, list[TensorType]]:
    """Each step adds a product to what it carries; `y_axis` says where it stacks one of the factors."""
    slice_type = f32(B, 6) if turned else f32(6, B)
    sizes = list(slice_type.shape)
    sizes.insert(x_axis, 5)

    def program(emit: Builder, total: Value, xs: Value, start: Value) -> Sequence[Value]:
        def step(
            emit: Builder, i: Value, total: Value, state: Value, x: Value
        ) -> tuple[Value, ...]:
            following = emit(array.Tanh(state))
            lhs = emit(array.Transpose(x, (1, 0))) if turned else x
            grown = emit(array.Add(emit(array.MatMul(lhs, following)), total))
            return (grown, following, *(() if y_axis is None else (following,)))

        body = region(step, [flow.COUNTER, f32(6, 7), f32(B, 7), slice_type])
        stacked = () if y_axis is None else (y_axis,)
        return emit.all(flow.Scan((total, start), (xs,), (), body, 5, (x_axis,), stacked))

    return program, [f32(6, 7), f32(*sizes), f32(B, 7)]


@pytest.mark.parametrize(
    ("x_axis", "y_axis", "turned"),
    every(6, itertools.product([0, 1, 2], [None, 0, 1, 2], [False, True])),
)
def test_the_sum_of_all_products_is_one_product_after_the_loop(
    x_axis: int, y_axis: int | None, turned: bool
) -> None:
    program, types = summing(x_axis, y_axis, turned=turned)
    loop = scan_of(program, types, "graph")
    assert not inside(loop, array.MatMul)
    assert loop.parent is not None
    assert [op for op in loop.parent if isinstance(op, array.MatMul)]
    check(program, *types, dims={"B": (1, 8)}, at=[{"B": 1}, {"B": 3}])


def test_a_sum_that_a_step_reads_stays_in_the_loop() -> None:
    def program(emit: Builder, total: Value, xs: Value) -> Sequence[Value]:
        def step(emit: Builder, i: Value, total: Value, x: Value) -> tuple[Value, ...]:
            return (emit(array.Add(total, emit(array.MatMul(x, total)))),)

        body = region(step, [flow.COUNTER, f32(6, 6), f32(6, 6)])
        return emit.all(flow.Scan((total,), (xs,), (), body, 5, (0,), ()))

    types = [f32(6, 6), f32(5, 6, 6)]
    assert inside(scan_of(program, types, "graph"), array.MatMul)
    check(program, *types, rtol=1e-4)
