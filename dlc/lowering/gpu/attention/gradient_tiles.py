"""What both ways to compute the gradient of attention on a GPU share: a block's rows, and a walk.

A block has some queries and what they receive, or `by_keys` some keys and values, as its *rows*, and walks
along the others, its *columns*. Rows times columns are scores, and what the weights receive; weights and
what scores receive follow from them and from two numbers for each query. Times the columns again they are
added to what the rows receive. So each number is added up by one thread, in order. (T. Dao,
"FlashAttention-2", 2023, algorithm 2, with a walk for each of its two loops.)
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, mem
from dlc.dialects.expr import Expr, Index, maximum, minimum, select
from dlc.dialects.kernel.attention import AttentionGradient
from dlc.ir.dims import ceil_divide, interval, product
from dlc.ir.types import BOOL, F32
from dlc.lowering.gpu.attention.forward_tiles import LOWEST
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.words import unravel, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

QUERY, KEYS, VALUES, DY, LOGARITHMS, MEANS, MASK = range(7)
"""The views of a kernel, in order."""

Statistics = tuple[Expr, Expr]
"""Of a query: the logarithm of its sum of powers, and the mean of what its scores receive."""


class TiledAttentionGradient:
    """A gradient in the making: a block of `threads` threads has `sides`, rows and columns at a time.

    `product_ps` is what one multiplication and addition costs. Of what is written, `depth` are the
    elements of queries and keys, `width` those of values.
    """

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
        *batch, tile = unravel(writer.tile, counts)
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
        """The columns that have to do with the rows from `first` on: from one up to a limit."""
        count = self.count_of_columns()
        if not self._sees_a_key():
            return 0, count
        causal = self.writer.size(self.op.causal or 0, "causal")
        if self.op.by_keys:
            return maximum(first - causal, 0), count
        return 0, minimum(count, first + causal + self.rows)

    def _sees_a_key(self) -> bool:
        """Whether the order hides keys, but every query sees one; what sees none gives NaN to all."""
        if self.op.causal is None:
            return False
        program = mem.program_of(self.op)
        least, _ = interval(self.op.causal, {} if program is None else program.bounds)
        return least is not None and least >= 0

    # What comes from memory.

    def statistics(self, batch: Sequence[Expr], query: Expr) -> Statistics:
        """The two numbers of a query, of the last one where there is none."""
        place = [*batch, self._clamped(query, by_query=True)]
        return self.writer.load(LOGARITHMS, place), self.writer.load(MEANS, place)

    def _clamped(self, place: Expr, *, by_query: bool) -> Expr:
        """The place of a query or a key, of the last one where it is beyond."""
        of_columns = by_query == self.op.by_keys
        count = self.count_of_columns() if of_columns else self.count_of_rows()
        return minimum(place, count - 1)

    # The formulas.

    def weigh(
        self,
        batch: Sequence[Expr],
        place: tuple[Expr, Expr],
        products: tuple[Expr, Expr],
        statistics: Statistics,
    ) -> tuple[Expr, Expr]:
        """The weight of a row and a column, and what their score receives; 0 beyond the columns.

        `products` are those of query and key, and of what the query receives and the value.
        """
        product, received = products
        logarithm, mean = statistics
        score = self._masked(batch, self._query_and_key(*place), product)
        p = (score - logarithm).exp()
        ds = p * (received - mean)
        within = place[1] < self.count_of_columns()
        return select(within, p, 0), select(within, ds, 0)

    def _masked(self, batch: Sequence[Expr], place: tuple[Expr, Expr], product: Expr) -> Expr:
        """A score, scaled and masked; -inf for what is hidden."""
        query, key = place
        score = product * self.op.scale
        if self.op.mask:
            where = self._clamped(query, by_query=True), self._clamped(key, by_query=False)
            mask = self.writer.load(MASK, [*batch, *where])
            if mask.dtype is BOOL:
                score = select(mask, score, LOWEST)
            else:
                score = score + mask.cast(F32)
        if self.op.causal is not None:
            last = query + self.writer.size(self.op.causal, "causal")
            score = select(key <= last, score, LOWEST)
        return score

    # Results.

    def store(self, batch: Sequence[Expr], which: int, place: tuple[Expr, Expr], sum: Expr) -> None:
        """Write an element of what a row receives, if there is one.

        `which` is 0 for queries and keys, which receive a multiple of the sum, and 1 for values.
        """
        row, along = place
        view = len(self.op.operands) - len(self.op.outs) + which
        with when((row < self.count_of_rows()) & (along < self.elements[which])):
            value = sum * self.op.scale if which == 0 else sum
            self.writer.store(view, [*batch, row, along], value.cast(self.writer.views[view].dtype))


def elements_of(op: AttentionGradient) -> tuple[int, int]:
    """How many elements queries and keys have, and values."""
    depth, width = (kernel.array_type(v).shape[-1] for v in (op.query, op.values))
    assert isinstance(depth, int) and isinstance(width, int)
    return depth, width
