"""`kernel.attention` for a GPU: some keys at a time, with the softmax corrected as larger scores come.

A block of threads does a few queries. A thread computes the scores of one key; they become powers relative
to the largest so far and go to shared memory. Then each thread adds up its columns of the values, weighted
by these powers. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix instructions
(`dlc.lowering.matrix_attention`), but for f32 with heads of more than 128 elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_attention import Attention
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32
from dlc.lowering.loop_words import for_each, index, minimum
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.matrix_attention import MatrixAttention
from dlc.lowering.product_sources import both, read
from dlc.lowering.tiled_attention import LOWEST, State, TiledAttention
from dlc.lowering.warp_matrices import by_matrices
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

    def write(self, emit: Builder, batch: Sequence[Value], first: Value) -> None:
        rows = [emit(scalar.Add(first, index(emit, r))) for r in range(QUERIES)]
        self._finish(emit, batch, rows, self._attend(emit, batch, rows))

    def _attend(self, emit: Builder, batch: Sequence[Value], rows: Sequence[Value]) -> State:
        """What there is after all keys."""
        writer = self.writer
        last = emit(scalar.Subtract(writer.size(self.m, "m"), index(emit, 1)))
        # Queries beyond the last are computed as the last one, and not written.
        queries = [minimum(emit, row, last) for row in rows]
        count = writer.size(self.op.count, "n")
        powers = emit(simt.Shared(QUERIES * THREADS, F32))

        def keys(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            scores = self._scores(deep, batch, queries, start, count)
            state = self._powers(deep, scores, State.of(carried, QUERIES), powers)
            deep.place(simt.Barrier())
            sums = self._weighted(deep, batch, start, count, powers, state.sums)
            deep.place(simt.Barrier())
            return State(state.largest, state.total, sums).values

        start = State.start(emit, QUERIES, QUERIES * self.columns)
        found = for_each(emit, index(emit, 0), count, THREADS, start.values, keys)
        return State.of(found, QUERIES)

    # The steps for some keys, one to a thread.

    def _scores(
        self,
        emit: Builder,
        batch: Sequence[Value],
        queries: Sequence[Value],
        start: Value,
        count: Value,
    ) -> list[Value]:
        """The score of each query with the thread's key, -inf for what is hidden or beyond the last."""
        key = emit(scalar.Add(start, self.writer.thread))
        yes, no = Block(), Block()
        inside, beyond = Builder(yes, emit.location), Builder(no, emit.location)
        products = self._products(inside, batch, queries, key)
        found = [
            self._seen(inside, batch, query, key, score)
            for query, score in zip(queries, products, strict=True)
        ]
        inside.place(loop.Yield(found))
        beyond.place(loop.Yield([_number(beyond, LOWEST)] * QUERIES))
        return list(emit.all(loop.If(emit(scalar.Compare(key, count, "lt")), yes, no)))

    def _products(
        self, emit: Builder, batch: Sequence[Value], queries: Sequence[Value], key: Value
    ) -> Sequence[Value]:
        def step(deep: Builder, d: Value, sums: list[Value]) -> Sequence[Value]:
            there = read(self.writer, deep, 1, [*batch, key, d])
            elements = [read(self.writer, deep, 0, [*batch, query, d]) for query in queries]
            return [
                deep(scalar.Fma(element, there, sum))
                for element, sum in zip(elements, sums, strict=True)
            ]

        depth = self.writer.size(self.depth, "depth")
        return for_each(emit, index(emit, 0), depth, 1, [_number(emit, 0)] * QUERIES, step)

    def _seen(
        self, emit: Builder, batch: Sequence[Value], query: Value, key: Value, product: Value
    ) -> Value:
        """A score, scaled and masked."""
        lowest = _number(emit, LOWEST)
        score = emit(scalar.Multiply(product, _number(emit, self.op.scale)))
        if self.op.mask:
            mask = read(self.writer, emit, 3, [*batch, query, key])
            hides = mask.type is BOOL
            score = emit(scalar.Select(mask, score, lowest) if hides else scalar.Add(score, mask))
        if self.op.causal is not None:
            last = emit(scalar.Add(query, self.writer.size(self.op.causal, "causal")))
            score = emit(scalar.Select(emit(scalar.Compare(key, last, "le")), score, lowest))
        return score

    def _powers(self, emit: Builder, scores: Sequence[Value], state: State, room: Value) -> State:
        """Scores become powers in shared memory, and what there was is scaled to the new largest one."""
        largest: list[Value] = []
        total: list[Value] = []
        sums: list[Value] = []
        for number, score in enumerate(scores):
            before = state.largest[number]
            found = self.writer.together(emit, "maximum", score)
            largest.append(emit(scalar.Maximum(before, found)))
            base = self.relative(emit, largest[-1])
            factor = emit(scalar.Exp(emit(scalar.Subtract(before, base))))
            power = emit(scalar.Exp(emit(scalar.Subtract(score, base))))
            total.append(emit(scalar.Fma(state.total[number], factor, power)))
            own = state.sums[number * self.columns : (number + 1) * self.columns]
            sums += [emit(scalar.Multiply(sum, factor)) for sum in own]
            place = emit(scalar.Add(self.writer.thread, index(emit, number * THREADS)))
            emit.place(loop.Store(power, room, place))
        return State(largest, total, sums)

    def _weighted(
        self,
        emit: Builder,
        batch: Sequence[Value],
        start: Value,
        count: Value,
        room: Value,
        sums: Sequence[Value],
    ) -> tuple[Value, ...]:
        """Add the values of these keys, weighted by the powers."""
        # Columns beyond the last are computed as the last one, and not written.
        last = index(emit, self.width - 1)
        columns = [minimum(emit, column, last) for column in self._columns(emit)]

        def step(deep: Builder, number: Value, carried: list[Value]) -> Sequence[Value]:
            key = deep(scalar.Add(start, number))
            powers = [
                deep(loop.Load(room, deep(scalar.Add(number, index(deep, q * THREADS))), F32))
                for q in range(QUERIES)
            ]
            values = [read(self.writer, deep, 2, [*batch, key, column]) for column in columns]
            pairs = [(power, value) for power in powers for value in values]
            return [deep(scalar.Fma(*pair, sum)) for pair, sum in zip(pairs, carried, strict=True)]

        left = minimum(emit, emit(scalar.Subtract(count, start)), index(emit, THREADS))
        return for_each(emit, index(emit, 0), left, 1, sums, step)

    def _columns(self, emit: Builder) -> list[Value]:
        """The columns of the values that are the thread's."""
        thread = self.writer.thread
        return [
            emit(scalar.Add(thread, index(emit, part * THREADS))) for part in range(self.columns)
        ]

    def _finish(
        self, emit: Builder, batch: Sequence[Value], rows: Sequence[Value], state: State
    ) -> None:
        """Divide the sums of each query by the sum of its powers, and write the logarithm of that."""
        m, width = self.writer.size(self.m, "m"), index(emit, self.width)
        columns = self._columns(emit)
        there = [emit(scalar.Compare(column, width, "lt")) for column in columns]
        for number, row in enumerate(rows):
            total = self.writer.together(emit, "add", state.total[number])
            inside = emit(scalar.Compare(row, m, "lt"))
            for part, column in enumerate(columns):
                sum = state.sums[number * self.columns + part]
                within = emit(scalar.And(inside, there[part]))
                value = emit(scalar.Divide(sum, total))
                self.store(emit, within, value, 0, [*batch, row, column])
            if self.op.logarithms:
                once = both(emit, inside, self.writer.once(emit))
                value = self.logarithm(emit, state.largest[number], total)
                self.store(emit, once, value, 1, [*batch, row])


def _number(emit: Builder, value: float) -> Value:
    return emit(scalar.Constant(value, F32))
