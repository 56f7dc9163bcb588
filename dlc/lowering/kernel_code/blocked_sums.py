"""Sums of many floats in blocks: partial sums of `STEPS` additions each, which are added up.

Each addition rounds by up to half a unit of the sum so far. Where one sum goes on over millions of
elements, small ones are rounded away: 0.1 twenty million times, in f32, is off by percents. A block begins
at 0 again, and so do blocks of blocks. See Higham, Accuracy and Stability of Numerical Algorithms, 4.2.
Where blocks begin follows from the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, minimum
from dlc.dialects.interface import bounds_around
from dlc.ir.bounded import never_negative
from dlc.ir.core import Builder, Op
from dlc.ir.dims import Size
from dlc.ir.dims import minimum as minimum_size
from dlc.ir.types import DType
from dlc.lowering.kernel_code.words import iterate

STEPS = 512
"""Additions of a block, one after the other."""

Loop = Callable[[Expr, list[Expr]], Sequence[Expr]]
"""The body of a counted loop, from the position and the carried values."""
Innermost = Callable[[list[Expr], list[Expr]], Sequence[Expr]]
"""The body of a nest of loops, from the positions and the carried values."""
Block = Callable[[Expr, Expr, list[Expr]], Sequence[Expr]]
"""The body of a loop over blocks: from where one begins and ends, and what is carried."""


def is_long(op: Op, steps: Size) -> bool:
    """Whether something takes, or may take, more steps than a block has."""
    return not never_negative(STEPS - steps, bounds_around(op))


def rounds(combine: str, dtype: DType) -> bool:
    """Whether partial results are rounded: those of other functions are as exact in any order."""
    return combine == "add" and dtype.is_float


def block_lengths(
    op: kernel.Reduce, dtype: DType, *, lanes: int = 1, registers: int = 1
) -> list[int | None]:
    """For each axis of a fold the steps of a block, or None where one loop does it.

    `registers` registers take neighbours along the last axis side by side, the rest follow one by one.
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
    extents: Sequence[Expr],
    lengths: Sequence[Index | None],
    carried: Sequence[Expr],
    starts: Sequence[Expr],
    innermost: Innermost,
    indices: tuple[Expr, ...] = (),
) -> list[Expr]:
    """`nest`, where the axes that have a length are added up in blocks of it, which begin at `starts`."""
    if not extents:
        return list(innermost(list(indices), list(carried)))

    def body(position: Expr, sums: list[Expr]) -> list[Expr]:
        where = (*indices, position)
        return sum_nest(emit, extents[1:], lengths[1:], sums, starts, innermost, where)

    length = lengths[0]
    if length is None:
        return iterate(emit, 0, extents[0], carried, body)
    return add_in_blocks(emit, 0, extents[0], 1, length, carried, starts, body)


def add_in_blocks(
    emit: Builder,
    lower: Index,
    upper: Expr,
    step: int,
    length: Index,
    carried: Sequence[Expr],
    starts: Sequence[Expr],
    body: Loop,
) -> list[Expr]:
    """The carried values with the sums of a loop, in blocks of `length` steps and in blocks of those.

    Each block begins at `starts`.
    """

    def one(first: Expr, end: Expr, totals: list[Expr]) -> list[Expr]:
        return _added(totals, iterate(emit, first, end, starts, body, step))

    def several(first: Expr, end: Expr, totals: list[Expr]) -> list[Expr]:
        return _added(totals, in_blocks(emit, first, end, step * length, starts, one))

    totals = in_blocks(emit, lower, upper, step * length * STEPS, starts, several)
    return totals if list(carried) == list(starts) else _added(carried, totals)


def in_blocks(
    emit: Builder,
    lower: Index,
    upper: Expr,
    length: Index,
    initial: Sequence[Expr],
    block: Block,
) -> list[Expr]:
    """A loop over blocks of a range; carried values go through all of them."""

    def body(first: Expr, carried: list[Expr]) -> Sequence[Expr]:
        return block(first, minimum(first + length, upper), carried)

    return iterate(emit, lower, upper, initial, body, length)


def _added(sums: Sequence[Expr], others: Sequence[Expr]) -> list[Expr]:
    return [one + other for one, other in zip(sums, others, strict=True)]
