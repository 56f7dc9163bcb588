"""Sums of many floats in blocks: partial sums of `STEPS` additions each, which are added up.

Each addition rounds by up to half a unit of the sum so far. Where one sum goes on over millions of
elements, small ones are rounded away: 0.1 twenty million times, in f32, is off by percents. A block begins
at 0 again, and so do blocks of blocks. See Higham, Accuracy and Stability of Numerical Algorithms, 4.2.
Where blocks begin follows from the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.interface import bounds_around
from dlc.ir.bounded import never_negative
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size
from dlc.ir.dims import minimum as minimum_size
from dlc.ir.types import DType
from dlc.lowering.loop_words import for_each, index, minimum

STEPS = 512
"""Additions of a block, one after the other."""

Loop = Callable[[Builder, Value, list[Value]], Sequence[Value]]
"""The body of a counted loop, from the position and the carried values."""


def is_long(op: Op, steps: Size) -> bool:
    """Whether something takes, or may take, more steps than a block has."""
    return not never_negative(STEPS - steps, bounds_around(op))


def rounds(combine: str, dtype: DType) -> bool:
    """Whether partial results are rounded: those of other functions are as exact in any order."""
    return combine == "add" and dtype.is_float


def block_lengths(
    op: kernel.Fold, dtype: DType, *, lanes: int = 1, registers: int = 1
) -> list[int | None]:
    """For each axis of a fold the steps of a block, or None where one loop does it.

    So many registers take neighbours along the last axis side by side; what is left is taken one by one.
    """
    lengths: list[int | None] = []
    within = 1
    for axis, extent in reversed(list(enumerate(op.extents))):
        steps = extent
        if lanes > 1 and axis == len(op.extents) - 1:
            steps = extent // (lanes * registers) + minimum_size(extent, lanes)
        if not rounds(op.combine, dtype) or not is_long(op, within * steps):
            lengths.append(None)
            within *= steps if isinstance(steps, int) else STEPS
            continue
        lengths.append(max(1, STEPS // max(within, 1)))
        within = 1
    return lengths[::-1]


def sum_nest(
    emit: Builder,
    extents: Sequence[Value],
    lengths: Sequence[int | None],
    carried: Sequence[Value],
    starts: Sequence[Value],
    innermost: Callable[[Builder, list[Value], list[Value]], list[Value]],
    indices: tuple[Value, ...] = (),
) -> list[Value]:
    """`nest`, where the axes that have a length are added up in blocks of it, which begin at `starts`."""
    if not extents:
        return innermost(emit, list(indices), list(carried))

    def body(inside: Builder, position: Value, values: list[Value]) -> Sequence[Value]:
        here = (*indices, position)
        return sum_nest(inside, extents[1:], lengths[1:], values, starts, innermost, here)

    lower, length = index(emit, 0), lengths[0]
    if length is None:
        return list(for_each(emit, lower, extents[0], 1, carried, body))
    return add_in_blocks(emit, lower, extents[0], 1, length, carried, starts, body)


def add_in_blocks(
    emit: Builder,
    lower: Value,
    upper: Value,
    step: int,
    length: int,
    carried: Sequence[Value],
    starts: Sequence[Value],
    body: Loop,
) -> list[Value]:
    """What is carried, and the sums of a loop: in blocks of so many steps, and in blocks of those.

    Each block begins at `starts`.
    """

    def one(inside: Builder, first: Value, end: Value, totals: list[Value]) -> Sequence[Value]:
        return _added(inside, totals, for_each(inside, first, end, step, starts, body))

    def several(inside: Builder, first: Value, end: Value, totals: list[Value]) -> Sequence[Value]:
        return _added(inside, totals, in_blocks(inside, first, end, step * length, starts, one))

    totals = in_blocks(emit, lower, upper, step * length * STEPS, starts, several)
    return list(totals) if list(carried) == list(starts) else _added(emit, carried, totals)


def in_blocks(
    emit: Builder,
    lower: Value,
    upper: Value,
    length: int,
    initial: Sequence[Value],
    block: Callable[[Builder, Value, Value, list[Value]], Sequence[Value]],
) -> tuple[Value, ...]:
    """A loop over blocks of a range: `block` gets where each begins and ends, and the carried values."""

    def body(inside: Builder, first: Value, carried: list[Value]) -> Sequence[Value]:
        end = minimum(inside, inside(scalar.Add(first, index(inside, length))), upper)
        return block(inside, first, end, carried)

    return for_each(emit, lower, upper, length, initial, body)


def _added(emit: Builder, sums: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    return [emit(scalar.Add(one, other)) for one, other in zip(sums, others, strict=True)]
