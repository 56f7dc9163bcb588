"""Sinking weight gradients: a sum of products over the iterations of a loop becomes one product after it.

The gradient of a recurrent layer's weight is such a sum: each iteration adds a product of a few rows to a
large matrix, which is read and written every time. With the factors of all iterations stacked along k, it
is one product, whose k is the batch times the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.flow.regions import yielded
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone, Rewriter


@define_pass("sink_weight_gradients")
def sink_weight_gradients(module: Op, context: Context) -> None:
    """Compute a product that every iteration accumulates as one product after the loop."""
    for op in list(module.walk()):
        if isinstance(op, flow.Scan):
            _sink_all(op, context)


def _sink_all(scan: flow.Scan, context: Context) -> None:
    """Sink every accumulation that pays out of a loop; drop the loop if it computed nothing else."""
    while (accumulation := _first_accumulation(scan)) is not None:
        context.log.did("one product after the loop", yielded(scan.body)[accumulation.index])
        scan = _sink(scan, accumulation, context.rewriter)
    for index in range(len(scan.initial)):
        if _accumulated_product(scan, index) is not None:
            context.log.refused(
                "its stacked factors would be larger than the sum", yielded(scan.body)[index]
            )
    if not scan.results:
        context.rewriter.drop(scan)


@dataclass(frozen=True, slots=True)
class _Accumulation:
    """The carried value at `index`, to which each iteration only adds `product`."""

    index: int
    product: array.MatMul


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor of the product in every iteration; `inner` is its axis along k."""

    value: Value
    inner: int


def _first_accumulation(scan: flow.Scan) -> _Accumulation | None:
    for index in range(len(scan.initial)):
        product = _accumulated_product(scan, index)
        if product is not None and _pays(scan, product):
            return _Accumulation(index, product)
    return None


def _accumulated_product(scan: flow.Scan, index: int) -> array.MatMul | None:
    """The matrix product that each iteration adds to a carried value, if nothing else reads that value."""
    carried, ends = scan.body.arguments[1 + index], yielded(scan.body)
    addition = ends[index].op
    if not isinstance(addition, array.Add) or carried not in addition.operands:
        return None
    addend = addition.rhs if addition.lhs is carried else addition.lhs
    is_only_use = sum(carried.uses.values()) == sum(addition.result.uses.values()) == 1
    if not is_only_use or not isinstance(addend.op, array.MatMul) or tensor_type(addend).rank != 2:
        return None
    return addend.op


def _pays(scan: flow.Scan, product: array.MatMul) -> bool:
    """Whether stacking the factors costs less than reading and writing the sum in each iteration."""
    factors = _factors(product)
    if any(factor.value in scan.invariants for factor in factors):
        return False
    not_stacked = [factor.value for factor in factors if not _is_stacked(scan, factor.value)]
    if len(not_stacked) < len(factors):
        return True
    stacked_elements, sum_elements = sum(_elements(not_stacked)), sum(_elements([product.result]))
    return 0 < stacked_elements <= 2 * sum_elements


def _elements(values: Sequence[Value]) -> list[int]:
    sizes = [tensor_type(value).size for value in values]
    return [size for size in sizes if isinstance(size, int)] if sizes else []


def _factors(product: array.MatMul) -> tuple[_Factor, _Factor]:
    """Both factors of a product, without their transposes."""
    return _without_transpose(_Factor(product.lhs, 1)), _without_transpose(_Factor(product.rhs, 0))


def _without_transpose(factor: _Factor) -> _Factor:
    producer = factor.value.op
    return (
        _Factor(producer.source, 1 - factor.inner)
        if isinstance(producer, array.Transpose)
        else factor
    )


def _is_stacked(scan: flow.Scan, value: Value) -> bool:
    """Whether the values of all iterations are stacked anyway, as inputs or as results."""
    return value in scan.slices or value in yielded(scan.body)[len(scan.initial) :]


def _stack_of(scan: flow.Scan, value: Value) -> tuple[Value, int]:
    """The stack of the values of all iterations, and its axis of iterations."""
    slices, count = scan.slices, len(scan.initial)
    if value in slices:
        index = slices.index(value)
        return scan.xs[index], scan.x_axes[index]
    index = yielded(scan.body)[count:].index(value)
    return scan.results[count + index], scan.y_axes[index]


def _sink(scan: flow.Scan, accumulation: _Accumulation, rewriter: Rewriter) -> flow.Scan:
    """Sink an accumulation; returns the loop without it."""
    factors = _factors(accumulation.product)
    # One after the other: both factors may be the same value.
    for factor in factors:
        if not _is_stacked(scan, factor.value):
            scan.stack([factor.value])
    start, total = scan.initial[accumulation.index], scan.results[accumulation.index]
    assert scan.parent is not None
    emit = Builder(scan.parent, scan.location, scan.next)
    stacks = [_stack_of(scan, factor.value) for factor in factors]
    steps_first = stacks[1][1] == 0
    lhs, rhs = (
        _as_matrix(emit, factor, stack, axis, steps_first)
        for factor, (stack, axis) in zip(factors, stacks, strict=True)
    )
    lhs = lhs if factors[0].inner == 1 else transpose(emit, lhs, (1, 0))
    rhs = rhs if factors[1].inner == 0 else transpose(emit, rhs, (1, 0))
    whole = emit(array.Add(start, emit(array.MatMul(lhs, rhs))))
    rewriter.values.replaced(total, whole, EQUAL)
    total.replace_by(whole)
    return _without_carried(scan, accumulation.index, rewriter)


def _as_matrix(emit: Builder, factor: _Factor, stack: Value, axis: int, steps_first: bool) -> Value:
    """The factors of all iterations as one matrix, whose inner axis joins the iterations and k."""
    axes: list[int | str] = [0, 1]
    axes.insert(axis, "steps")
    inner: list[int | str] = ["steps", factor.inner] if steps_first else [factor.inner, "steps"]
    order = [*inner, 1] if factor.inner == 0 else [0, *inner]
    moved = transpose(emit, stack, tuple([axes.index(name) for name in order]))
    a, b, c = tensor_type(moved).shape
    return reshape(emit, moved, (a * b, c) if factor.inner == 0 else (a, b * c))


def _without_carried(scan: flow.Scan, index: int, rewriter: Rewriter) -> flow.Scan:
    """The same loop without one of its carried values, which nothing reads."""
    body = scan.body
    ends = list(yielded(body))
    addition = ends.pop(index).op
    body.terminator.set_operands(ends)
    assert addition is not None
    producers = [value.op for value in addition.operands if value.op is not None]
    for op in (addition, *producers):
        if op.is_unused:
            rewriter.erase(op, Gone("computed after the loop"))
    body.remove_argument(1 + index)
    initial = (*scan.initial[:index], *scan.initial[index + 1 :])
    (body,) = scan.take_regions()
    layout = (scan.length, scan.x_axes, scan.y_axes, scan.reverse)
    loop = flow.Scan(initial, scan.xs, scan.constants, body, *layout)
    rewriter.before(scan).place(loop)
    old = (*scan.results[:index], *scan.results[index + 1 :])
    for before, after in zip(old, loop.results, strict=True):
        after.name = before.name
        rewriter.values.replaced(before, after, EQUAL)
        before.replace_by(after)
    scan.erase()
    return loop
