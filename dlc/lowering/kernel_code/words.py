"""Helpers that write code of the loop level: loops, branches, index arithmetic.

with for_each(emit, 0, count) as k:
    with when(k < limit):
        target[k] = source[k] * 2
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from dlc.dialects import loop
from dlc.dialects.expr import Condition, Expr, Index, exprs, index, maximum, minimum, select, values
from dlc.ir.core import Block, Builder
from dlc.ir.dims import Atom, Extreme, Quotient, Size
from dlc.ir.types import INDEX

Carry: TypeAlias = Callable[[Expr, list[Expr]], Sequence[Index]]
"""The body of a loop: the next carried values, from the index and the carried ones."""
Branch: TypeAlias = Callable[[], Sequence[Expr] | None]
"""Writes a branch and returns the values that it yields, if any."""


@contextmanager
def for_each(
    emit: Builder, lower: Index, upper: Index, step: Index = 1, *, parallel: bool = False
) -> Generator[Expr]:
    """A counted loop without carried values; operations emitted in the `with` block are its body."""
    bounds = index(emit, lower).value, index(emit, upper).value
    block = Block([INDEX], ["i"])
    with emit.into(block):
        yield Expr(emit, block.arguments[0])
        emit.place(loop.Yield([]))
    emit.place(loop.For(*bounds, index(emit, step).value, [], block, parallel))


def iterate(
    emit: Builder,
    lower: Index,
    upper: Index,
    initial: Sequence[Index],
    body: Carry,
    step: Index = 1,
) -> list[Expr]:
    """A counted loop with carried values, of which `body` computes the next ones; returns the last ones."""
    bounds = index(emit, lower).value, index(emit, upper).value
    start = [index(emit, value).value for value in initial]
    block = Block([INDEX, *[value.type for value in start]], ["i"])
    with emit.into(block):
        position, *carried = exprs(emit, block.arguments)
        after = [index(emit, value).value for value in body(position, carried)]
        emit.place(loop.Yield(after))
    return exprs(emit, emit.all(loop.For(*bounds, index(emit, step).value, start, block)))


def repeat_while(
    emit: Builder,
    initial: Sequence[Index],
    test: Callable[[list[Expr]], Expr],
    body: Callable[[list[Expr]], Sequence[Index]],
) -> list[Expr]:
    """A loop that runs while a test of its carried values holds; returns the last ones."""
    start = [index(emit, value).value for value in initial]
    types = [value.type for value in start]
    condition, work = Block(types), Block(types)
    with emit.into(condition):
        emit.place(loop.Yield([test(exprs(emit, condition.arguments)).value]))
    with emit.into(work):
        after = body(exprs(emit, work.arguments))
        emit.place(loop.Yield([index(emit, value).value for value in after]))
    return exprs(emit, emit.all(loop.While(start, condition, work)))


@contextmanager
def when(condition: Condition) -> Generator[None]:
    """A branch: operations emitted in the `with` block run if the condition holds."""
    if condition is True:
        yield
        return
    assert isinstance(condition, Expr), "what never runs need not be written"
    emit = condition.emit
    then = Block()
    with emit.into(then):
        yield
        emit.place(loop.Yield([]))
    emit.place(loop.If(condition.value, then, empty(emit)))


def either(condition: Expr, then: Branch, otherwise: Branch) -> list[Expr]:
    """The values that one of two branches yields; only that one runs."""
    emit = condition.emit
    blocks = Block(), Block()
    for block, branch in zip(blocks, (then, otherwise), strict=True):
        with emit.into(block):
            emit.place(loop.Yield(values(branch() or ())))
    return exprs(emit, emit.all(loop.If(condition.value, *blocks)))


def empty(emit: Builder) -> Block:
    """An empty branch."""
    block = Block()
    with emit.into(block):
        emit.place(loop.Yield([]))
    return block


def nest(
    emit: Builder, extents: Sequence[Index], initial: Sequence[Index], body: Nested
) -> list[Expr]:
    """A loop nest, one loop for each extent, that carries values through all of them."""

    def level(outer: list[Expr], carried: Sequence[Index]) -> Sequence[Index]:
        if len(outer) == len(extents):
            return body(outer, [index(emit, value) for value in carried])
        extent = extents[len(outer)]
        return iterate(emit, 0, extent, carried, lambda i, inner: level([*outer, i], inner))

    return [index(emit, value) for value in level([], initial)]


Nested: TypeAlias = Callable[[list[Expr], list[Expr]], Sequence[Index]]
"""The body of a loop nest: the next carried values, from all indices and the carried ones."""


def unravel(number: Expr, extents: Sequence[Index]) -> list[Expr]:
    """The index along each axis of an element, from its number in row-major order."""
    indices: list[Expr] = []
    for extent in reversed(extents[1:]):
        quotient = number // extent
        indices.append(number - quotient * extent)
        number = quotient
    return [number, *reversed(indices)]


def next_index(indices: Sequence[Expr], extents: Sequence[Index]) -> list[Expr]:
    """The next index in row-major order, without the divisions of `unravel`.

    The first axis does not wrap: after the last index its component is out of bounds.
    """
    step: Index = 1
    after: list[Expr] = []
    for axis_index, extent in reversed(list(zip(indices[1:], extents[1:], strict=True))):
        advanced = axis_index + step
        wraps = advanced >= extent
        after.append(select(wraps, 0, advanced))
        step = select(wraps, 1, 0)
    return [indices[0] + step, *reversed(after)]


def whole_registers(lower: Expr, upper: Expr, lanes: int) -> Expr:
    """The end of the last whole register between two bounds; `upper - lower` may be negative."""
    return lower + maximum(upper - lower, 0) // lanes * lanes


def compute_size(emit: Builder, size: Size, dim: Callable[[str], Expr]) -> Expr:
    """Code for a size over dims that are values."""
    if isinstance(size, int):
        return index(emit, size)
    total: Index = 0
    for monomial, factor in size.terms:
        term: Index = factor
        for atom, power in monomial:
            value = _compute_atom(emit, atom, dim)
            for _ in range(power):
                term = term * value
        total = total + term
    return index(emit, total)


def _compute_atom(emit: Builder, atom: Atom, dim: Callable[[str], Expr]) -> Expr:
    match atom:
        case str():
            return dim(atom)
        case Quotient(top, bottom):
            return compute_size(emit, top, dim).floor_divide(compute_size(emit, bottom, dim))
        case Extreme(which, sizes):
            one, other = (compute_size(emit, size, dim) for size in sizes)
            return maximum(one, other) if which == "max" else minimum(one, other)


def parts_of(columns: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Columns as registers of `lanes` and, at the end, halves of one: where each begins, and its lanes.

    >>> list(parts_of(14, 8))
    [(0, 8), (8, 4), (12, 2)]
    """
    first = 0
    while first < columns:
        while lanes > columns - first:
            lanes //= 2
        yield first, lanes
        first += lanes
