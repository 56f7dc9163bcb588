"""`kernel.attention` for a GPU by scalar arithmetic: online softmax over blocks of keys (FlashAttention).

A block of threads has a few queries. Each thread computes the scores of one key; `exp(score - maximum)`,
relative to the running maximum, goes to shared memory. Then each thread adds up its columns of the values,
weighted by these exponentials. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix
instructions (`dlc.lowering.gpu.attention.tensor_core_forward`), except f32 with heads of more than 128
elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Pointer, constant, fma, maximum, minimum, select
from dlc.dialects.kernel.attention import Attention
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32
from dlc.lowering.gpu.attention.forward_tiles import MINUS_INFINITY, SoftmaxState, TiledAttention
from dlc.lowering.gpu.attention.tensor_core_forward import MatrixAttention
from dlc.lowering.gpu.attention.warp_matrices import by_matrices
from dlc.lowering.kernel_code.words import either, iterate
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget

QUERIES = 4
"""Queries of a block, which share each key and value that is read."""
THREADS = 128
"""Threads of a block, and keys of one step."""


def lower_attention(op: Attention, context: Context) -> Lowered:
    """The function for one attention in destination form."""
    assert not op.panel, "operands of attention are in panels for CPUs only"
    cls = MatrixAttention if by_matrices(op, context.options) else _Attention
    return cls(op, gpu_of(context.options)).lower()


class _Attention(TiledAttention):
    def __init__(self, op: Attention, gpu: GpuTarget) -> None:
        super().__init__(op, THREADS, QUERIES, gpu.costs.attention)
        self.columns = -(-self.width // THREADS)
        """Columns of the values that a thread adds up."""

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        rows = [first + r for r in range(QUERIES)]
        self._write_results(batch, rows, self._attend(batch, rows))

    def _attend(self, batch: Sequence[Expr], rows: Sequence[Expr]) -> SoftmaxState:
        """The softmax state after all keys."""
        writer = self.writer
        last = writer.size(self.m, "m") - 1
        # Queries beyond the last are computed as the last one, and not written.
        queries = [minimum(row, last) for row in rows]
        count = writer.size(self.op.count, "n")
        exponentials = writer.shared(QUERIES * THREADS, F32)

        def keys(start: Expr, carried: list[Expr]) -> list[Expr]:
            scores = self._scores(batch, queries, start, count)
            state = self._update_softmax(scores, SoftmaxState.of(carried, QUERIES), exponentials)
            writer.barrier()
            sums = self._add_values(batch, start, count, exponentials, state.sums)
            writer.barrier()
            return SoftmaxState(state.largest, state.total, sums).values

        start = SoftmaxState.start(writer.emit, QUERIES, QUERIES * self.columns)
        return SoftmaxState.of(iterate(writer.emit, 0, count, start.values, keys, THREADS), QUERIES)

    # One step: a key for each thread.

    def _scores(
        self, batch: Sequence[Expr], queries: Sequence[Expr], start: Expr, count: Expr
    ) -> list[Expr]:
        """The score of each query with the thread's key, -inf for what is hidden or beyond the last."""
        key = start + self.writer.thread

        def inside() -> list[Expr]:
            products = zip(queries, self._products(batch, queries, key), strict=True)
            return [self._masked(batch, query, key, product) for query, product in products]

        def beyond() -> list[Expr]:
            return [constant(self.writer.emit, MINUS_INFINITY, F32)] * QUERIES

        return either(key < count, inside, beyond)

    def _products(self, batch: Sequence[Expr], queries: Sequence[Expr], key: Expr) -> list[Expr]:
        writer = self.writer

        def step(d: Expr, sums: list[Expr]) -> list[Expr]:
            other = writer.load(1, [*batch, key, d])
            elements = [writer.load(0, [*batch, query, d]) for query in queries]
            return [fma(element, other, sum) for element, sum in zip(elements, sums, strict=True)]

        depth = writer.size(self.depth, "depth")
        return iterate(writer.emit, 0, depth, [constant(writer.emit, 0, F32)] * QUERIES, step)

    def _masked(self, batch: Sequence[Expr], query: Expr, key: Expr, product: Expr) -> Expr:
        """A score, scaled and masked."""
        score = product * self.op.scale
        if self.op.mask:
            mask = self.writer.load(3, [*batch, query, key])
            score = select(mask, score, MINUS_INFINITY) if mask.dtype is BOOL else score + mask
        if self.op.causal is not None:
            last = query + self.writer.size(self.op.causal, "causal")
            score = select(key <= last, score, MINUS_INFINITY)
        return score

    def _update_softmax(
        self, scores: Sequence[Expr], state: SoftmaxState, exponentials: Pointer
    ) -> SoftmaxState:
        """Online softmax: rescale the state to the new maxima; exponentials go to shared memory."""
        largest: list[Expr] = []
        total: list[Expr] = []
        sums: list[Expr] = []
        for query, score in enumerate(scores):
            before = state.largest[query]
            largest.append(maximum(before, self.writer.block_reduce("maximum", score)))
            base = self.softmax_base(largest[-1])
            factor = (before - base).exp()
            exponential = (score - base).exp()
            total.append(fma(state.total[query], factor, exponential))
            own = state.sums[query * self.columns : (query + 1) * self.columns]
            sums += [sum * factor for sum in own]
            exponentials[self.writer.thread + query * THREADS] = exponential
        return SoftmaxState(largest, total, sums)

    def _add_values(
        self,
        batch: Sequence[Expr],
        start: Expr,
        count: Expr,
        exponentials: Pointer,
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """Add the values of these keys, weighted by the exponentials."""
        writer = self.writer
        # Columns beyond the last are computed as the last one, and not written.
        columns = [minimum(column, self.width - 1) for column in self._columns()]

        def step(number: Expr, sums: list[Expr]) -> list[Expr]:
            key = start + number
            weights = [exponentials[number + query * THREADS] for query in range(QUERIES)]
            elements = [writer.load(2, [*batch, key, column]) for column in columns]
            pairs = [(weight, element) for weight in weights for element in elements]
            return [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]

        return iterate(writer.emit, 0, minimum(count - start, THREADS), sums, step)

    def _columns(self) -> list[Expr]:
        """The thread's columns of the values."""
        return [self.writer.thread + part * THREADS for part in range(self.columns)]

    def _write_results(
        self, batch: Sequence[Expr], rows: Sequence[Expr], state: SoftmaxState
    ) -> None:
        """Divide the sums of each query by its sum of exponentials, and write the logarithm of that."""
        m = self.writer.size(self.m, "m")
        columns = self._columns()
        exists = [column < self.width for column in columns]
        for query, row in enumerate(rows):
            total = self.writer.block_reduce("add", state.total[query])
            inside = row < m
            for part, column in enumerate(columns):
                sum = state.sums[query * self.columns + part]
                within = inside & exists[part]
                self.store(within, sum / total, 0, [*batch, row, column])
            if self.op.logarithms:
                once = inside & self.writer.once()
                self.store(once, self.logarithm(state.largest[query], total), 1, [*batch, row])
