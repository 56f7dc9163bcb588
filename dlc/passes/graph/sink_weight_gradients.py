"""A sum of products over the steps of a loop becomes one product after it.

The gradient of a recurrent layer's weight is such a sum: each step adds a product of a few rows to a large
matrix, which is read and written every time. The same numbers side by side, as a loop stacks them, are one
product whose sums are as long as the batch times the steps.
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
    """Compute the sum of every step's product after the loop, as one product."""
    for op in list(module.walk()):
        if isinstance(op, flow.Scan):
            _defer_all(op, context)


def _defer_all(scan: flow.Scan, context: Context) -> None:
    """Take every sum that is worth it out of a loop, and the loop itself where it did nothing else."""
    while (found := _first_sum(scan)) is not None:
        context.log.did("sum the products of all steps at once", yielded(scan.body)[found.place])
        scan = _defer(scan, found, context.rewriter)
    for place in range(len(scan.initial)):
        if _summed(scan, place) is not None:
            context.log.refused(
                "the factors of all steps would take more than the sum", yielded(scan.body)[place]
            )
    if not scan.results:
        context.rewriter.drop(scan)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The carried value at `place` is what `add` makes of it and `product`, and nothing else reads it."""

    place: int
    product: array.MatMul


@dataclass(frozen=True, slots=True)
class _Factor:
    """A matrix of every step. `inner` says which of its two axes is summed over."""

    value: Value
    inner: int


def _first_sum(scan: flow.Scan) -> _Sum | None:
    for place in range(len(scan.initial)):
        product = _summed(scan, place)
        if product is not None and _is_worth_it(scan, product):
            return _Sum(place, product)
    return None


def _summed(scan: flow.Scan, place: int) -> array.MatMul | None:
    """The product of matrices that each step adds to a carried value, if that is all it does with it."""
    carried, ends = scan.body.arguments[1 + place], yielded(scan.body)
    add = ends[place].op
    if not isinstance(add, array.Add) or carried not in add.operands:
        return None
    other = add.rhs if add.lhs is carried else add.lhs
    alone = sum(carried.uses.values()) == sum(add.result.uses.values()) == 1
    if not alone or not isinstance(other.op, array.MatMul) or tensor_type(other).rank != 2:
        return None
    return other.op


def _is_worth_it(scan: flow.Scan, product: array.MatMul) -> bool:
    """Whether keeping the factors of all steps is little beside reading and writing the sum each time."""
    factors = _factors(product)
    constants = scan.body.arguments[len(scan.body.arguments) - len(scan.constants) :]
    if any(factor.value in constants for factor in factors):
        return False
    fresh = [factor.value for factor in factors if not _is_kept(scan, factor.value)]
    if len(fresh) < len(factors):
        return True
    kept, summed = sum(_elements(fresh)), sum(_elements([product.result]))
    return 0 < kept <= 2 * summed


def _elements(values: Sequence[Value]) -> list[int]:
    sizes = [tensor_type(value).size for value in values]
    return [size for size in sizes if isinstance(size, int)] if sizes else []


def _factors(product: array.MatMul) -> tuple[_Factor, _Factor]:
    """Both sides of a product; of one that is turned around, what it was before."""
    return _turned(_Factor(product.lhs, 1)), _turned(_Factor(product.rhs, 0))


def _turned(factor: _Factor) -> _Factor:
    made = factor.value.op
    return _Factor(made.source, 1 - factor.inner) if isinstance(made, array.Transpose) else factor


def _slices(scan: flow.Scan) -> list[Value]:
    first = 1 + len(scan.initial)
    return scan.body.arguments[first : first + len(scan.xs)]


def _is_kept(scan: flow.Scan, value: Value) -> bool:
    """Whether the values of all steps exist beside each other anyway."""
    return value in _slices(scan) or value in yielded(scan.body)[len(scan.initial) :]


def _kept(scan: flow.Scan, value: Value) -> tuple[Value, int]:
    """Where the values of all steps are, and along which axis."""
    slices, count = _slices(scan), len(scan.initial)
    if value in slices:
        place = slices.index(value)
        return scan.xs[place], scan.x_axes[place]
    place = yielded(scan.body)[count:].index(value)
    return scan.results[count + place], scan.y_axes[place]


def _defer(scan: flow.Scan, found: _Sum, rewriter: Rewriter) -> flow.Scan:
    """Take a sum out of a loop; the loop without it."""
    factors = _factors(found.product)
    # One after the other: what is stacked for one may be the other, too.
    for factor in factors:
        if not _is_kept(scan, factor.value):
            scan.stack([factor.value])
    start, total = scan.initial[found.place], scan.results[found.place]
    assert scan.parent is not None
    emit = Builder(scan.parent, scan.location, scan.next)
    stacks = [_kept(scan, factor.value) for factor in factors]
    steps_first = stacks[1][1] == 0
    lhs, rhs = (
        _side_by_side(emit, factor, stack, axis, steps_first)
        for factor, (stack, axis) in zip(factors, stacks, strict=True)
    )
    lhs = lhs if factors[0].inner == 1 else transpose(emit, lhs, (1, 0))
    rhs = rhs if factors[1].inner == 0 else transpose(emit, rhs, (1, 0))
    whole = emit(array.Add(start, emit(array.MatMul(lhs, rhs))))
    rewriter.values.replaced(total, whole, EQUAL)
    total.replace_by(whole)
    return _without(scan, found.place, rewriter)


def _side_by_side(
    emit: Builder, factor: _Factor, stack: Value, axis: int, steps_first: bool
) -> Value:
    """The factors of all steps as one matrix; its inner axis has the steps and what each sums over."""
    axes: list[int | str] = [0, 1]
    axes.insert(axis, "steps")
    inner: list[int | str] = ["steps", factor.inner] if steps_first else [factor.inner, "steps"]
    order = [*inner, 1] if factor.inner == 0 else [0, *inner]
    moved = transpose(emit, stack, tuple([axes.index(name) for name in order]))
    a, b, c = tensor_type(moved).shape
    return reshape(emit, moved, (a * b, c) if factor.inner == 0 else (a, b * c))


def _without(scan: flow.Scan, place: int, rewriter: Rewriter) -> flow.Scan:
    """The same loop without one of its carried values, which nothing reads any more."""
    body = scan.body
    ends = list(yielded(body))
    add = ends.pop(place).op
    body.terminator.set_operands(ends)
    assert add is not None
    parts = [value.op for value in add.operands if value.op is not None]
    for op in (add, *parts):
        if op.is_unused:
            rewriter.erase(op, Gone("summed after the loop"))
    body.remove_argument(1 + place)
    initial = (*scan.initial[:place], *scan.initial[place + 1 :])
    scan.regions = ()
    made = flow.Scan(
        initial, scan.xs, scan.constants, body, scan.length, scan.x_axes, scan.y_axes, scan.reverse
    )
    rewriter.before(scan).place(made)
    old = (*scan.results[:place], *scan.results[place + 1 :])
    for before, after in zip(old, made.results, strict=True):
        after.name = before.name
        rewriter.values.replaced(before, after, EQUAL)
        before.replace_by(after)
    scan.erase()
    return made
