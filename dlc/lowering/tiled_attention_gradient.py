"""What both ways to compute the gradient of attention on a GPU share: a block's rows, and a walk.

A block has some queries and what they receive, or `by_keys` some keys and values, as its *rows*, and walks
along the others, its *columns*. Rows times columns are scores, and what the weights receive; weights and
what scores receive follow from them and from two numbers for each query. Times the columns again they are
added to what the rows receive. So each number is added up by one thread, in order. (T. Dao,
"FlashAttention-2", 2023, algorithm 2, with a walk for each of its two loops.)
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, mem, scalar
from dlc.dialects.kernel_attention import AttentionGradient
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import ceil_divide, interval, product
from dlc.ir.types import BOOL, F32
from dlc.lowering.formula import convert, number
from dlc.lowering.loop_words import index, minimum, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.product_sources import below, both, offset, read
from dlc.lowering.shared_lines import plus
from dlc.lowering.simt_writer import GridWriter, either
from dlc.lowering.tiled_attention import LOWEST
from dlc.target.work import nanoseconds

QUERY, KEYS, VALUES, DY, LOGARITHMS, MEANS, MASK = range(7)
"""The views of a kernel, in order."""

Statistics = tuple[Value, Value]
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
        writer, emit = self.writer, self.writer.emit
        own, walked = self.counts
        down = ceil_divide(own, self.rows)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.batch)]
        counts.append(writer.size(down, "down"))
        *batch, tile = unravel(emit, writer.tile, counts)
        first = emit(scalar.Multiply(tile, index(emit, self.rows)))
        self.write(emit, batch, first)
        depth, width = self.elements
        each = 2 * (depth + width) if self.op.by_keys else 2 * depth + width
        work = self.rows * walked * each * self.product_ps
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def write(self, emit: Builder, batch: Sequence[Value], first: Value) -> None:
        """Write what a thread does for the rows from `first` on."""
        raise NotImplementedError

    # Sizes.

    def count_of_rows(self) -> Value:
        return self.writer.size(self.counts[0], "rows")

    def count_of_columns(self) -> Value:
        return self.writer.size(self.counts[1], "columns")

    def _query_and_key(self, row: Value, column: Value) -> tuple[Value, Value]:
        return (column, row) if self.op.by_keys else (row, column)

    def range(self, emit: Builder, first: Value) -> tuple[Value, Value]:
        """The columns that have to do with the rows from `first` on: from one up to a limit."""
        zero, count = index(emit, 0), self.count_of_columns()
        if not self._sees_a_key():
            return zero, count
        causal = self.writer.size(self.op.causal or 0, "causal")
        if self.op.by_keys:
            return emit(scalar.Maximum(emit(scalar.Subtract(first, causal)), zero)), count
        beyond = plus(emit, plus(emit, first, causal), self.rows)
        return zero, minimum(emit, count, beyond)

    def _sees_a_key(self) -> bool:
        """Whether the order hides keys, but every query sees one; what sees none gives NaN to all."""
        if self.op.causal is None:
            return False
        program = mem.program_of(self.op)
        least, _ = interval(self.op.causal, {} if program is None else program.bounds)
        return least is not None and least >= 0

    # What comes from memory.

    def statistics(self, emit: Builder, batch: Sequence[Value], query: Value) -> Statistics:
        """The two numbers of a query, of the last one where there is none."""
        place = self._clamped(emit, query, by_query=True)
        logarithm, mean = (
            read(self.writer, emit, view, [*batch, place]) for view in (LOGARITHMS, MEANS)
        )
        return logarithm, mean

    def _clamped(self, emit: Builder, place: Value, *, by_query: bool) -> Value:
        """The place of a query or a key, of the last one where it is beyond."""
        of_columns = by_query == self.op.by_keys
        count = self.count_of_columns() if of_columns else self.count_of_rows()
        return minimum(emit, place, emit(scalar.Subtract(count, index(emit, 1))))

    # The formulas.

    def weigh(
        self,
        emit: Builder,
        batch: Sequence[Value],
        place: tuple[Value, Value],
        products: tuple[Value, Value],
        statistics: Statistics,
    ) -> tuple[Value, Value]:
        """The weight of a row and a column, and what their score receives; 0 beyond the columns.

        `products` are those of query and key, and of what the query receives and the value.
        """
        product, received = products
        logarithm, mean = statistics
        score = self._score(emit, batch, self._query_and_key(*place), product)
        p = emit(scalar.Exp(emit(scalar.Subtract(score, logarithm))))
        ds = emit(scalar.Multiply(p, emit(scalar.Subtract(received, mean))))
        within = below(emit, place[1], self.count_of_columns())
        zero = number(emit, 0, F32)
        p, ds = (emit(scalar.Select(within, value, zero)) for value in (p, ds))
        return p, ds

    def _score(
        self, emit: Builder, batch: Sequence[Value], place: tuple[Value, Value], product: Value
    ) -> Value:
        """A score, scaled and masked; -inf for what is hidden."""
        query, key = place
        lowest = number(emit, LOWEST, F32)
        score = emit(scalar.Multiply(product, number(emit, self.op.scale, F32)))
        if self.op.mask:
            there = [
                self._clamped(emit, query, by_query=True),
                self._clamped(emit, key, by_query=False),
            ]
            mask = read(self.writer, emit, MASK, [*batch, *there])
            if mask.type is BOOL:
                score = emit(scalar.Select(mask, score, lowest))
            else:
                score = emit(scalar.Add(score, convert(emit, mask, F32)))
        if self.op.causal is not None:
            last = plus(emit, query, self.writer.size(self.op.causal, "causal"))
            seen = emit(scalar.Compare(key, last, "le"))
            score = emit(scalar.Select(seen, score, lowest))
        return score

    # Results.

    def store(
        self,
        emit: Builder,
        batch: Sequence[Value],
        which: int,
        place: tuple[Value, Value],
        sum: Value,
    ) -> None:
        """Write an element of what a row receives, if there is one.

        `which` is 0 for queries and keys, which receive a multiple of the sum, and 1 for values.
        """
        row, along = place
        view = len(self.op.operands) - len(self.op.outs) + which
        inside = both(
            emit,
            below(emit, row, self.count_of_rows()),
            below(emit, along, index(emit, self.elements[which])),
        )

        def write(deep: Builder) -> None:
            value = sum
            if which == 0:
                value = deep(scalar.Multiply(sum, number(deep, self.op.scale, F32)))
            where = offset(self.writer, deep, view, [*batch, row, along])
            narrow = convert(deep, value, self.writer.views[view].dtype)
            deep.place(loop.Store(narrow, self.writer.pointers[view], where))

        either(emit, inside, write)


def elements_of(op: AttentionGradient) -> tuple[int, int]:
    """How many elements queries and keys have, and values."""
    depth, width = (kernel.array_type(v).shape[-1] for v in (op.query, op.values))
    assert isinstance(depth, int) and isinstance(width, int)
    return depth, width
