"""`kernel.attention` for a GPU: some keys at a time, with the softmax corrected as larger scores come.

A block of threads does a few queries. A thread computes the scores of one key; they become powers relative
to the largest so far and go to shared memory. Then each thread adds up its columns of the values, weighted
by these powers. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix instructions
(`dlc.lowering.gpu.attention.tensor_core_forward`), but for f32 with heads of more than 128 elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, constant, fma, maximum, minimum, select
from dlc.dialects.kernel.attention import Attention
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32
from dlc.lowering.gpu.attention.forward_tiles import LOWEST, State, TiledAttention
from dlc.lowering.gpu.attention.tensor_core_forward import MatrixAttention
from dlc.lowering.gpu.attention.warp_matrices import by_matrices
from dlc.lowering.kernel_code.words import either, iterate
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget

QUERIES = 4
"""Queries of a block: each key and each value that is read serves all of them."""
THREADS = 128
"""Threads of a block, and keys at a time."""


def lower_attention(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one attention in destination form."""
    assert isinstance(op, Attention)
    assert not op.panel, "operands of attention are in panels for CPUs only"
    way = MatrixAttention if by_matrices(op, context.options) else _Attention
    return way(op, gpu_of(context.options)).lower()


class _Attention(TiledAttention):
    def __init__(self, op: Attention, gpu: GpuTarget) -> None:
        super().__init__(op, THREADS, QUERIES, gpu.costs.attention)
        self.columns = -(-self.width // THREADS)
        """Columns of the values that a thread adds up."""

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        rows = [first + r for r in range(QUERIES)]
        self._finish(batch, rows, self._attend(batch, rows))

    def _attend(self, batch: Sequence[Expr], rows: Sequence[Expr]) -> State:
        """What there is after all keys."""
        writer = self.writer
        last = writer.size(self.m, "m") - 1
        # Queries beyond the last are computed as the last one, and not written.
        queries = [minimum(row, last) for row in rows]
        count = writer.size(self.op.count, "n")
        powers = writer.shared(QUERIES * THREADS, F32)

        def keys(start: Expr, carried: list[Expr]) -> list[Expr]:
            scores = self._scores(batch, queries, start, count)
            state = self._powers(scores, State.of(carried, QUERIES), powers)
            writer.barrier()
            sums = self._weighted(batch, start, count, powers, state.sums)
            writer.barrier()
            return State(state.largest, state.total, sums).values

        start = State.start(writer.emit, QUERIES, QUERIES * self.columns)
        return State.of(iterate(writer.emit, 0, count, start.values, keys, THREADS), QUERIES)

    # The steps for some keys, one to a thread.

    def _scores(
        self, batch: Sequence[Expr], queries: Sequence[Expr], start: Expr, count: Expr
    ) -> list[Expr]:
        """The score of each query with the thread's key, -inf for what is hidden or beyond the last."""
        key = start + self.writer.thread

        def inside() -> list[Expr]:
            products = zip(queries, self._products(batch, queries, key), strict=True)
            return [self._masked(batch, query, key, product) for query, product in products]

        def beyond() -> list[Expr]:
            return [constant(self.writer.emit, LOWEST, F32)] * QUERIES

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
            score = select(mask, score, LOWEST) if mask.dtype is BOOL else score + mask
        if self.op.causal is not None:
            last = query + self.writer.size(self.op.causal, "causal")
            score = select(key <= last, score, LOWEST)
        return score

    def _powers(self, scores: Sequence[Expr], state: State, powers: Pointer) -> State:
        """Scores become powers in shared memory, and what there was is scaled to the new largest one."""
        largest: list[Expr] = []
        total: list[Expr] = []
        sums: list[Expr] = []
        for query, score in enumerate(scores):
            before = state.largest[query]
            largest.append(maximum(before, self.writer.block_reduce("maximum", score)))
            base = self.relative(largest[-1])
            factor = (before - base).exp()
            power = (score - base).exp()
            total.append(fma(state.total[query], factor, power))
            own = state.sums[query * self.columns : (query + 1) * self.columns]
            sums += [sum * factor for sum in own]
            powers[self.writer.thread + query * THREADS] = power
        return State(largest, total, sums)

    def _weighted(
        self,
        batch: Sequence[Expr],
        start: Expr,
        count: Expr,
        powers: Pointer,
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """Add the values of these keys, weighted by the powers."""
        writer = self.writer
        # Columns beyond the last are computed as the last one, and not written.
        columns = [minimum(column, self.width - 1) for column in self._columns()]

        def step(number: Expr, sums: list[Expr]) -> list[Expr]:
            key = start + number
            weights = [powers[number + query * THREADS] for query in range(QUERIES)]
            elements = [writer.load(2, [*batch, key, column]) for column in columns]
            pairs = [(weight, element) for weight in weights for element in elements]
            return [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]

        return iterate(writer.emit, 0, minimum(count - start, THREADS), sums, step)

    def _columns(self) -> list[Expr]:
        """The columns of the values that are the thread's."""
        return [self.writer.thread + part * THREADS for part in range(self.columns)]

    def _finish(self, batch: Sequence[Expr], rows: Sequence[Expr], state: State) -> None:
        """Divide the sums of each query by the sum of its powers, and write the logarithm of that."""
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
