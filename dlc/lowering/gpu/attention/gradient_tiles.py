"""The gradient of attention on a GPU, as both lowerings share it: FlashAttention-2's backward pass.

A block has some queries and their output gradients, or `by_keys` some keys and values, as its *rows*, and
walks along the others, its *columns*. Rows times columns are the scores and the weights' gradients, which
are recomputed, not stored; weights and score gradients follow from them and from two numbers for each
query. Times the columns again they are added to the rows' gradients. So each element is summed by one
thread, in order, without atomics (T. Dao, "FlashAttention-2", 2023, algorithm 2, with a kernel for each of
its two loops).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, mem
from dlc.dialects.expr import Expr, Index, maximum, minimum, select
from dlc.dialects.kernel.attention import AttentionGradient
from dlc.ir.dims import ceil_divide, product
from dlc.ir.intervals import interval
from dlc.ir.types import BOOL, F32, I32, DType
from dlc.lowering.gpu.attention.forward_tiles import MINUS_INFINITY
from dlc.lowering.gpu.writer import GridWriter, exponential
from dlc.lowering.kernel_code.words import when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

QUERY, KEYS, VALUES, DY, LOGARITHMS, MEANS, MASK = range(7)
"""The views of a kernel, in order."""

Statistics = tuple[Expr, Expr]
"""Of a query: the logarithm of its sum of exponentials, and the mean of its weights' gradients."""


class TiledAttentionGradient:
    """Lowers a gradient with blocks of `threads` threads and tiles of `sides`, rows and columns.

    `product_ps` is the cost of one multiplication and addition in picoseconds. `depth` are the elements of
    queries and keys, `width` those of values.
    """

    dtype: DType = F32
    """What weights are rounded to before they are multiplied."""

    def __init__(
        self, op: AttentionGradient, threads: int, sides: tuple[int, int], product_ps: int
    ) -> None:
        self.op = op
        self.rows, self.columns = sides
        self.product_ps = product_ps
        self.writer = GridWriter(op, threads)
        *self.batch, m, _ = kernel.array_type(op.query).shape
        n = kernel.array_type(op.keys).shape[-2]
        self.elements = elements_of(op)
        self.own = (KEYS, VALUES) if op.by_keys else (QUERY, DY)
        self.walked = (QUERY, DY) if op.by_keys else (KEYS, VALUES)
        self.counts = (n, m) if op.by_keys else (m, n)
        """Of rows and columns in all."""

    def lower(self) -> Lowered:
        writer = self.writer
        own, walked = self.counts
        down = ceil_divide(own, self.rows)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.batch)]
        counts.append(writer.size(down, "down"))
        # With signs LLVM knows that nothing wraps, and leaves fewer addresses to the loop.
        *batch, tile = writer.unravel_tile(counts, I32)
        self.write(batch, tile * self.rows)
        depth, width = self.elements
        each = 2 * (depth + width) if self.op.by_keys else 2 * depth + width
        work = self.rows * walked * each * self.product_ps
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        """Write what a thread does for the rows from `first` on."""
        raise NotImplementedError

    # Sizes.

    def count_of_rows(self) -> Expr:
        return self.writer.size(self.counts[0], "rows")

    def count_of_columns(self) -> Expr:
        return self.writer.size(self.counts[1], "columns")

    def _query_and_key(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        return (column, row) if self.op.by_keys else (row, column)

    def range(self, first: Expr) -> tuple[Index, Expr]:
        """The columns, from one up to a limit, that see the block's rows or are seen by them."""
        count = self.count_of_columns()
        if not self._sees_a_key():
            return 0, count
        causal = self.writer.size(self.op.causal or 0, "causal")
        if self.op.by_keys:
            return maximum(first - causal, 0), count
        return 0, minimum(count, first + causal + self.rows)

    def _sees_a_key(self) -> bool:
        """Whether attention is causal and every query sees a key: one that sees none gives NaN to all."""
        if self.op.causal is None:
            return False
        program = mem.program_of(self.op)
        least, _ = interval(self.op.causal, {} if program is None else program.bounds)
        return least is not None and least >= 0

    # Loads.

    def statistics(self, batch: Sequence[Expr], query: Expr) -> Statistics:
        """The statistics of a query; of the last one where it is out of bounds."""
        index = [*batch, self._clamped(query, by_query=True)]
        return self.writer.load(LOGARITHMS, index), self.writer.load(MEANS, index)

    def _clamped(self, index: Expr, *, by_query: bool) -> Expr:
        """The index of a query or a key; of the last one where it is out of bounds."""
        of_columns = by_query == self.op.by_keys
        count = self.count_of_columns() if of_columns else self.count_of_rows()
        return minimum(index, count - 1)

    # The formulas.

    def weigh(
        self,
        batch: Sequence[Expr],
        position: tuple[Expr, Expr],
        products: tuple[Expr, Expr],
        statistics: Statistics,
    ) -> tuple[Expr, Expr]:
        """The weight of a row and a column, and the gradient of their score; 0 beyond the columns.

        `products` are those of query and key, and of output gradient and value.
        """
        product, weight_gradient = products
        logarithm, mean = statistics
        score = self._masked(batch, self._query_and_key(*position), product)
        p = exponential(score - logarithm, self.dtype)
        ds = p * (weight_gradient - mean)
        within = position[1] < self.count_of_columns()
        return select(within, p, 0), select(within, ds, 0)

    def _masked(self, batch: Sequence[Expr], pair: tuple[Expr, Expr], product: Expr) -> Expr:
        """A score, scaled and masked; -inf for what is hidden."""
        query, key = pair
        score = product * self.op.scale
        if self.op.mask:
            index = self._clamped(query, by_query=True), self._clamped(key, by_query=False)
            mask = self.writer.load(MASK, [*batch, *index])
            if mask.dtype is BOOL:
                score = select(mask, score, MINUS_INFINITY)
            else:
                score = score + mask.cast(F32)
        if self.op.causal is not None:
            last = query + self.writer.size(self.op.causal, "causal")
            score = select(key <= last, score, MINUS_INFINITY)
        return score

    # Results.

    def store(
        self, batch: Sequence[Expr], which: int, position: tuple[Expr, Expr], sum: Expr
    ) -> None:
        """Write an element of a row's gradient if it is within bounds.

        `which` is 0 for queries and keys, whose gradient is the scaled sum, and 1 for values.
        """
        row, along = position
        view = len(self.op.operands) - len(self.op.outs) + which
        with when((row < self.count_of_rows()) & (along < self.elements[which])):
            value = sum * self.op.scale if which == 0 else sum
            self.writer.store(view, [*batch, row, along], value.cast(self.writer.views[view].dtype))


def elements_of(op: AttentionGradient) -> tuple[int, int]:
    """The elements of a query or key, and of a value."""
    depth, width = (kernel.array_type(v).shape[-1] for v in (op.query, op.values))
    assert isinstance(depth, int) and isinstance(width, int)
    return depth, width
