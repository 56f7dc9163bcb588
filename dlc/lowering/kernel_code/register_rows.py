"""Rows of elements, a register at a time: whole registers first, then single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dlc.dialects import vec
from dlc.dialects.expr import Expr, Index, combine, constant, index, reduce_lanes
from dlc.ir.types import DType, VectorType
from dlc.lowering.kernel_code.words import iterate, whole_registers

RowElement: TypeAlias = Callable[[Expr, int], Expr]
"""What a row has at an index, in as many neighbouring elements as it is asked for."""
Ranges: TypeAlias = "tuple[tuple[Index, Expr, int], tuple[Expr, Expr, int]]"


def register_ranges(length: Expr, lanes: int) -> Ranges:
    """The whole registers of a row, and the remainder: begin, end and elements of a step."""
    whole = whole_registers(index(length.emit, 0), length, lanes)
    return (0, whole, lanes), (whole, length, 1)


def reduce_row(
    name: str, start: float, length: Expr, lanes: int, dtype: DType, element: RowElement
) -> Expr:
    """Elements along a row combined from `start` on; `name` is one of `scalar.COMBINERS`.

    Two registers at a time come first, then single ones, then single elements.
    """
    emit = length.emit
    total = constant(emit, start, VectorType(dtype, 2 * lanes))
    begin: Index = 0
    for width in (2 * lanes, lanes, 1):

        def step(j: Expr, totals: list[Expr], width: int = width) -> list[Expr]:
            return [combine(name, totals[0], element(j, width))]

        if width == lanes:
            total = combine(name, *(_half(total, lanes, start=k) for k in (0, lanes)))
        elif width == 1:
            total = reduce_lanes(name, total)
        end = length if width == 1 else whole_registers(index(emit, 0), length, width)
        (total,) = iterate(emit, begin, end, [total], step, width)
        begin = end
    return total


def _half(register: Expr, lanes: int, *, start: int) -> Expr:
    """`lanes` lanes of a register, from `start` on."""
    order = tuple(range(start, start + lanes))
    return register.apply(vec.Shuffle(register.value, register.value, order))


__all__ = ["RowElement", "reduce_row", "register_ranges"]
