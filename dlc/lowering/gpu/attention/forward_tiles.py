"""What both ways to compute attention on a GPU share: a block for some queries, and a walk along the keys.

Scores become powers relative to the largest so far; where larger ones come, what there was is scaled down.
At the end the weighted sums of the values are divided by the sum of the powers. (T. Dao et al.,
"FlashAttention", 2022.)

A row whose scores are all -inf so far has powers relative to 0: they are 0, as are its sums, and at the
end 0 / 0 is NaN, which is what the softmax of nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, constant, select
from dlc.dialects.kernel.attention import Attention
from dlc.ir.core import Builder
from dlc.ir.dims import ceil_divide, product
from dlc.ir.types import F32
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.words import unravel, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

LOWEST = float("-inf")


@dataclass(frozen=True, slots=True)
class State:
    """Of each row of a thread the largest score, its part of the sum of powers, and its sums by columns."""

    largest: Sequence[Expr]
    total: Sequence[Expr]
    sums: Sequence[Expr]

    @property
    def values(self) -> list[Expr]:
        return [*self.largest, *self.total, *self.sums]

    @classmethod
    def of(cls, values: Sequence[Expr], rows: int) -> State:
        """The one that has these values."""
        return cls(values[:rows], values[rows : 2 * rows], values[2 * rows :])

    @classmethod
    def start(cls, emit: Builder, rows: int, sums: int) -> State:
        """Before any key."""
        lowest, zero = constant(emit, LOWEST, F32), constant(emit, 0, F32)
        return cls([lowest] * rows, [zero] * rows, [zero] * sums)


class TiledAttention:
    """An attention in the making, of which a block of `threads` threads does `queries` queries.

    `product_ps` is what one multiplication and addition costs.
    """

    def __init__(self, op: Attention, threads: int, queries: int, product_ps: int) -> None:
        self.op = op
        self.product_ps = product_ps
        self.queries = queries
        self.writer = GridWriter(op, threads)
        *self.batch, self.m, self.depth = kernel.array_type(op.query).shape
        assert isinstance(op.width, int)
        self.width = op.width

    def lower(self) -> Lowered:
        writer, op = self.writer, self.op
        down = ceil_divide(self.m, self.queries)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.batch)]
        counts.append(writer.size(down, "down"))
        *batch, tile = unravel(writer.tile, counts)
        self.write(batch, tile * self.queries)
        work = self.queries * op.count * (self.depth + self.width) * self.product_ps
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        """Write what a thread does for the queries from `first` on."""
        raise NotImplementedError

    def relative(self, largest: Expr) -> Expr:
        """What scores are relative to where this is the largest."""
        return select(largest.equals(LOWEST), 0, largest)

    def logarithm(self, largest: Expr, total: Expr) -> Expr:
        """The logarithm of a query's sum of powers, from what they are relative to and their sum."""
        base = self.relative(largest)
        return total.log() + base

    def store(self, within: Expr, value: Expr, result: int, places: Sequence[Expr]) -> None:
        """Write an element of a result, if it is within."""
        view = len(self.op.operands) - len(self.op.outs) + result
        with when(within):
            self.writer.store(view, places, value.cast(self.writer.views[view].dtype))
