"""`kernel.attention` of f16, bf16 and tf32 for a GPU, by matrix instructions.

A block has 64 queries or 32, a warp 16 of them. Keys and values are double-buffered in shared memory: the
next tile is copied (`cp.async`) while the warps compute with one. A warp multiplies its queries with the
keys; the online softmax turns scores into exponentials, rounded to the values' dtype, in the registers from
which the product with the values reads them (T. Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    combine,
    constant,
    index,
    maximum,
    minimum,
    select,
)
from dlc.dialects.kernel.attention import MOST_NARROW, Attention
from dlc.dialects.simt import WARP
from dlc.ir.types import BOOL, F32
from dlc.lowering.gpu.attention.forward_tiles import MINUS_INFINITY, SoftmaxState, TiledAttention
from dlc.lowering.gpu.attention.warp_matrices import (
    AttentionTile,
    WarpRows,
    layout_of,
    load_rows,
    tile_for,
)
from dlc.lowering.gpu.writer import exponential, shuffle_xor
from dlc.lowering.kernel_code.words import either, iterate
from dlc.target.gpu import GpuTarget

TILES = {128: AttentionTile(4, 64), 256: AttentionTile(4, 32), 512: AttentionTile(2, 16)}
"""Tiles by the bytes of a row: 48 KiB hold the queries, and keys and values twice."""


class MatrixAttention(TiledAttention):
    """Lowers an attention with heads of at most 128 elements."""

    def __init__(self, op: Attention, gpu: GpuTarget) -> None:
        *_, depth = kernel.array_type(op.query).shape
        assert isinstance(depth, int) and isinstance(op.width, int)
        widest = max(depth, op.width)
        assert widest <= MOST_NARROW
        self.dtype = kernel.array_type(op.query).dtype
        tile = tile_for(TILES, self.dtype, widest)
        super().__init__(op, tile.warps * WARP, tile.rows, gpu.costs.matrix_attention)
        self.keys = tile.columns
        """Keys of a tile."""
        self.layout = [
            layout_of(self.dtype, count, elements)
            for count, elements in (
                (self.queries, depth),
                (self.keys, depth),
                (self.keys, self.width),
            )
        ]
        """The shared-memory layouts of queries, keys and values."""
        self.warp = WarpRows(self.writer)

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        rows = self.warp.rows(first)
        self._write_results(batch, rows, self._attend(batch, first, rows))

    # The main loop along the keys.

    def _attend(self, batch: Sequence[Expr], first: Expr, rows: Sequence[Expr]) -> SoftmaxState:
        """The softmax state after all keys that the block's queries see."""
        writer = self.writer
        queries, keys, values = self.layout
        count = writer.size(self.op.count, "n")
        length = queries.bytes + 2 * (keys.bytes + values.bytes)
        buffer = writer.shared(length // self.dtype.bytes, self.dtype)
        stages = buffer.skip(queries.bytes)
        limit = writer.size(self.m, "m")
        load_rows(writer, 0, batch, (first, limit), queries, buffer)
        zero = index(writer.emit, 0)
        self._load_stage(batch, self._stage(stages, zero), zero, count)

        def walk_step(start: Expr, carried: list[Expr]) -> list[Index]:
            stage, *rest = carried
            writer.wait()
            writer.barrier()
            other = 1 - stage
            advance = start + self.keys
            self._load_stage(batch, self._stage(stages, other), advance, count)
            buffers = (buffer, *self._stage(stages, stage))
            state = self._attend_to_tile(
                batch, rows, start, count, buffers, SoftmaxState.of(rest, 2)
            )
            return [other, *state.values]

        start = SoftmaxState.start(writer.emit, 2, self.warp.sums(values))
        end = self._end(first, count)
        _, *last = iterate(writer.emit, 0, end, [0, *start.values], walk_step, self.keys)
        writer.wait()
        return SoftmaxState.of(last, 2)

    def _end(self, first: Expr, count: Expr) -> Expr:
        """The first key that no query of the block sees."""
        if self.op.causal is None:
            return count
        last = first + self.writer.size(self.op.causal, "causal")
        return minimum(count, last + self.queries)

    def _load_stage(
        self, batch: Sequence[Expr], buffers: tuple[Pointer, Pointer], first: Expr, count: Expr
    ) -> None:
        """Start to copy a tile of keys and values."""
        for view, layout, buffer in zip((1, 2), self.layout[1:], buffers, strict=True):
            load_rows(self.writer, view, batch, (first, count), layout, buffer)
        self.writer.commit()

    def _stage(self, stages: Pointer, stage: Expr) -> tuple[Pointer, Pointer]:
        """The buffers of a stage's keys and values."""
        _, keys, values = self.layout
        buffer = stages.skip(stage * (keys.bytes + values.bytes))
        return buffer, buffer.skip(keys.bytes)

    # One step of the main loop.

    def _attend_to_tile(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        count: Expr,
        buffers: tuple[Pointer, Pointer, Pointer],
        state: SoftmaxState,
    ) -> SoftmaxState:
        queries, keys, values = zip(self.layout, buffers, strict=True)
        scores = [product * self.op.scale for product in self.warp.products(queries, keys)]

        def masked() -> list[Expr]:
            return [
                self._masked(batch, rows[k % 4 // 2], start + self.warp.column(k), count, score)
                for k, score in enumerate(scores)
            ]

        if self.op.mask:
            scores = masked()
        else:
            scores = either(self._sees_all(rows, start, count), lambda: scores, masked)
        state, exponentials = self._update_softmax(scores, state)
        sums = self.warp.weighted(*values, exponentials, state.sums)
        return SoftmaxState(state.largest, state.total, sums)

    def _sees_all(self, rows: Sequence[Expr], start: Expr, count: Expr) -> Expr:
        """Whether the queries of a thread see all keys of a tile: all tiles but those at the edges."""
        end = start + self.keys
        inside = end <= count
        if self.op.causal is None:
            return inside
        return inside & (end <= rows[0] + self.writer.size(self.op.causal, "causal") + 1)

    def _masked(
        self, batch: Sequence[Expr], query: Expr, key: Expr, count: Expr, score: Expr
    ) -> Expr:
        """A scaled score, masked; -inf for what is hidden or beyond the last key."""
        writer = self.writer
        lowest = constant(writer.emit, MINUS_INFINITY, F32)
        within = key < count
        if self.op.causal is not None:
            last = query + writer.size(self.op.causal, "causal")
            within = within & (key <= last)
        if not self.op.mask:
            return select(within, score, lowest)
        limit = writer.size(self.m, "m")

        def masked() -> list[Expr]:
            mask = writer.load(3, [*batch, query, key])
            if mask.dtype is BOOL:
                return [select(mask, score, MINUS_INFINITY)]
            return [score + mask.cast(F32)]

        (masked_score,) = either(within & (query < limit), masked, lambda: [lowest])
        return masked_score

    def _update_softmax(
        self, scores: Sequence[Expr], state: SoftmaxState
    ) -> tuple[SoftmaxState, list[Expr]]:
        """Online softmax: rescale the state to the new maxima; the exponentials of the scores."""
        largest, total = list(state.largest), list(state.total)
        sums, exponentials = list(state.sums), list(scores)
        for row in range(2):
            own = [k for k in range(len(scores)) if k % 4 // 2 == row]
            most = self._row_reduce("maximum", [scores[k] for k in own])
            before, largest[row] = largest[row], maximum(largest[row], most)
            base = self.softmax_base(largest[row])
            factor = exponential(before - base, self.dtype)
            total[row] = total[row] * factor
            for k in own:
                exponentials[k] = exponential(scores[k] - base, self.dtype)
                total[row] = total[row] + exponentials[k]
            for k in range(len(sums)):
                if k % 4 // 2 == row:
                    sums[k] = sums[k] * factor
        return SoftmaxState(largest, total, sums), exponentials

    def _row_reduce(self, name: str, values: Sequence[Expr]) -> Expr:
        """The values of a row combined: those of a thread, then of the four threads that hold the row."""
        result, *others = values
        for other in others:
            result = combine(name, result, other)
        for distance in (1, 2):
            result = combine(name, result, shuffle_xor(result, distance))
        return result

    # Results.

    def _write_results(
        self, batch: Sequence[Expr], rows: Sequence[Expr], state: SoftmaxState
    ) -> None:
        """Divide the sums of each query by its sum of exponentials, and write the logarithm of that."""
        m = self.writer.size(self.m, "m")
        for row, query in enumerate(rows):
            total = self._row_reduce("add", [state.total[row]])
            inside = query < m
            for eighth in range(-(-self.width // 8)):
                for k in range(2):
                    sum = 4 * eighth + 2 * row + k
                    column = self.warp.column(sum)
                    within = inside & (column < self.width)
                    self.store(within, state.sums[sum] / total, 0, [*batch, query, column])
            if self.op.logarithms:
                once = self.warp.part.equals(0)
                logarithm = self.logarithm(state.largest[row], total)
                self.store(inside & once, logarithm, 1, [*batch, query])
