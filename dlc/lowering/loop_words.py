"""Loops and index arithmetic in a few words, for whoever writes code of the loop level."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.types import INDEX, Type
from dlc.lowering.expr import Expr, Index


def index(emit: Builder, value: int) -> Value:
    """A constant index."""
    return emit(scalar.Constant(value, INDEX))


def add(emit: Builder, one: Value | None, other: Value | None) -> Value | None:
    """The sum, where None is 0."""
    if one is None or other is None:
        return one if other is None else other
    return emit(scalar.Add(one, other))


def for_each(
    emit: Builder,
    lower: Value,
    upper: Value,
    step: int,
    initial: Sequence[Value],
    body: Callable[[Builder, Value, list[Value]], Sequence[Value]],
    *,
    parallel: bool = False,
) -> tuple[Value, ...]:
    """A counted loop; `body` gets the index and the carried values and gives the next ones."""
    types: list[Type] = [INDEX, *[value.type for value in initial]]
    block = Block(types, ["i"])
    with emit.inside(block):
        emit.place(loop.Yield(body(emit, block.arguments[0], block.arguments[1:])))
    made = loop.For(lower, upper, index(emit, step), initial, block, parallel)
    return emit.all(made)


def minimum(emit: Builder, one: Value, other: Value) -> Value:
    """The smaller of two indices."""
    return emit(scalar.Minimum(one, other))


def times(emit: Builder, one: Value, other: Value | Index | None) -> Value:
    """The product, where None is 1."""
    if other is None:
        return one
    factor = Expr(emit, other) if isinstance(other, Value) else other
    return (Expr(emit, one) * factor).value


def known(stride: Index) -> Value | None:
    return stride.value if isinstance(stride, Expr) else None


def unravel(emit: Builder, number: Value, extents: Sequence[Value]) -> list[Value]:
    """The index along each axis of a row number."""
    indices: list[Value] = []
    for extent in reversed(extents[1:]):
        quotient = emit(scalar.RawDivide(number, extent))
        indices.append(emit(scalar.Subtract(number, emit(scalar.Multiply(quotient, extent)))))
        number = quotient
    return [number, *reversed(indices)]


def following(emit: Builder, places: Sequence[Value], extents: Sequence[Value]) -> list[Value]:
    """The index along each axis of the row after one, without the divisions of `unravel`.

    The first axis does not end: what is after the last row has an index there that is too large.
    """
    zero, one = index(emit, 0), index(emit, 1)
    step, found = one, list[Value]()
    for place, extent in reversed(list(zip(places[1:], extents[1:], strict=True))):
        moved = emit(scalar.Add(place, step))
        wraps = emit(scalar.Compare(moved, extent, "ge"))
        found.append(emit(scalar.Select(wraps, zero, moved)))
        step = emit(scalar.Select(wraps, one, zero))
    return [emit(scalar.Add(places[0], step)), *reversed(found)]


def whole_registers(emit: Builder, lower: Value, upper: Value, lanes: int) -> Value:
    """The end of the last whole register between two bounds; `upper - lower` may be negative."""
    width = index(emit, lanes)
    length = emit(scalar.Maximum(emit(scalar.Subtract(upper, lower)), index(emit, 0)))
    count = emit(scalar.RawDivide(length, width))
    return emit(scalar.Add(lower, emit(scalar.Multiply(count, width))))


def nest(
    emit: Builder,
    extents: Sequence[Value],
    carried: Sequence[Value],
    innermost: Callable[[Builder, list[Value], list[Value]], list[Value]],
    indices: tuple[Value, ...] = (),
) -> list[Value]:
    """Loops within loops, each over one extent, carrying values through all of them."""
    if not extents:
        return innermost(emit, list(indices), list(carried))

    def body(inside: Builder, position: Value, values: list[Value]) -> Sequence[Value]:
        return nest(inside, extents[1:], values, innermost, (*indices, position))

    return list(for_each(emit, index(emit, 0), extents[0], 1, carried, body))
