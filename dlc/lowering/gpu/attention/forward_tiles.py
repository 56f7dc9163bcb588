"""Online softmax, shared by both lowerings of attention for a GPU: a block of queries walks the keys.

Exponentials are computed relative to the running maximum of a query's scores, and what was summed before is
rescaled when the maximum grows (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
2018). At the end the weighted sums of the values are divided by the sum of exponentials, so that no row of
scores is ever stored (T. Dao et al., "FlashAttention", 2022).

While all scores of a row are -inf, exponentials are relative to 0: they and the sums are 0, and at the end
0 / 0 is NaN, which is the softmax of a row that is masked throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, constant, select
from dlc.dialects.kernel.attention import Attention
from dlc.ir.core import Builder
from dlc.ir.dims import ceil_divide, product
from dlc.ir.types import F32, I32
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.words import when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

MINUS_INFINITY = float("-inf")


@dataclass(frozen=True, slots=True)
class SoftmaxState:
    """For each row of a thread: running maximum, partial sum of exponentials, sums by column."""

    largest: Sequence[Expr]
    total: Sequence[Expr]
    sums: Sequence[Expr]

    @property
    def values(self) -> list[Expr]:
        return [*self.largest, *self.total, *self.sums]

    @classmethod
    def of(cls, values: Sequence[Expr], rows: int) -> SoftmaxState:
        """The state with these `values`, of a thread with `rows` rows."""
        return cls(values[:rows], values[rows : 2 * rows], values[2 * rows :])

    @classmethod
    def start(cls, emit: Builder, rows: int, sums: int) -> SoftmaxState:
        """The state before any key."""
        lowest, zero = constant(emit, MINUS_INFINITY, F32), constant(emit, 0, F32)
        return cls([lowest] * rows, [zero] * rows, [zero] * sums)


class TiledAttention:
    """Lowers an attention whose blocks of `threads` threads have `queries` queries each.

    `product_ps` is the cost of one multiplication and addition in picoseconds.
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
        # With signs LLVM knows that nothing wraps, and leaves fewer addresses to the loop.
        *batch, tile = writer.unravel_tile(counts, I32)
        self.write(batch, tile * self.queries)
        work = self.queries * op.count * (self.depth + self.width) * self.product_ps
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        """Write what a thread does for the queries from `first` on."""
        raise NotImplementedError

    def softmax_base(self, largest: Expr) -> Expr:
        """The number subtracted from scores whose maximum is `largest`: it, or 0 where it is -inf."""
        return select(largest.equals(MINUS_INFINITY), 0, largest)

    def logarithm(self, largest: Expr, total: Expr) -> Expr:
        """The logarithm of a query's sum of exponentials, from its maximum and the sum relative to that."""
        base = self.softmax_base(largest)
        return total.log() + base

    def store(self, within: Expr, value: Expr, result: int, indices: Sequence[Expr]) -> None:
        """Write an element of a result if it is within bounds."""
        view = len(self.op.operands) - len(self.op.outs) + result
        with when(within):
            self.writer.store(view, indices, value.cast(self.writer.views[view].dtype))
