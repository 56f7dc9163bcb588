"""`kernel.attention` of f16, bf16 and tf32 for a GPU, by matrix instructions.

A block has 64 queries or 32, a warp 16 of them. Some keys and their values at a time are in shared memory,
and the next ones are copied meanwhile. A warp multiplies its queries with the keys; scores become powers
relative to the largest so far, rounded as the values are, in the same registers that the product with the
values reads them from. (T. Dao, "FlashAttention-2", 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_attention import MOST_NARROW, Attention
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.types import BOOL, F32, U8
from dlc.lowering.formula import convert, number
from dlc.lowering.lanes import combine
from dlc.lowering.loop_words import for_each, index, minimum
from dlc.lowering.product_sources import below, both, read
from dlc.lowering.shared_lines import multiple, plus
from dlc.lowering.tiled_attention import LOWEST, State, TiledAttention
from dlc.lowering.warp_matrices import Tile, WarpRows, bring_rows, lines_of, tile_for
from dlc.target.gpu import GpuTarget

TILES = {128: Tile(4, 64), 256: Tile(4, 32), 512: Tile(2, 16)}
"""For which 48 KiB have room, twice for keys and values."""


class MatrixAttention(TiledAttention):
    """An attention in the making. Queries, keys and values have at most 128 elements each."""

    def __init__(self, op: Attention, gpu: GpuTarget) -> None:
        *_, depth = kernel.array_type(op.query).shape
        assert isinstance(depth, int) and isinstance(op.width, int)
        widest = max(depth, op.width)
        assert widest <= MOST_NARROW
        self.dtype = kernel.array_type(op.query).dtype
        tile = tile_for(TILES, self.dtype, widest)
        super().__init__(op, tile.warps * WARP, tile.rows, gpu.costs.matrix_attention)
        self.keys = tile.columns
        """Keys at a time."""
        self.lines = [
            lines_of(self.dtype, count, elements)
            for count, elements in (
                (self.queries, depth),
                (self.keys, depth),
                (self.keys, self.width),
            )
        ]
        """Of queries, keys and values."""
        self.warp = WarpRows(self.writer)

    def write(self, emit: Builder, batch: Sequence[Value], first: Value) -> None:
        rows = self.warp.rows(emit, first)
        self._finish(emit, batch, rows, self._attend(emit, batch, first, rows))

    # The walk along the keys.

    def _attend(
        self, emit: Builder, batch: Sequence[Value], first: Value, rows: Sequence[Value]
    ) -> State:
        """What there is after all keys that the block's queries see."""
        queries, keys, values = self.lines
        count = self.writer.size(self.op.count, "n")
        length = queries.bytes + 2 * (keys.bytes + values.bytes)
        room = emit(simt.Shared(length // self.dtype.bytes, self.dtype))
        stages = emit(loop.Offset(room, index(emit, queries.bytes), U8))
        limit = self.writer.size(self.m, "m")
        bring_rows(self.writer, emit, 0, batch, (first, limit), queries, room)
        self._bring_both(emit, batch, stages, index(emit, 0), index(emit, 0), count)

        def some(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            stage, *rest = carried
            deep.place(simt.Wait(0))
            deep.place(simt.Barrier())
            other = deep(scalar.Subtract(index(deep, 1), stage))
            following = plus(deep, start, self.keys)
            self._bring_both(deep, batch, stages, other, following, count)
            state = self._some_keys(
                deep, batch, rows, start, count, (room, *self._rooms(deep, stages, stage)), rest
            )
            return [other, *state.values]

        start = State.start(emit, 2, self.warp.sums(values))
        carried = [index(emit, 0), *start.values]
        end = self._end(emit, first, count)
        found = for_each(emit, index(emit, 0), end, self.keys, carried, some)
        emit.place(simt.Wait(0))
        return State.of(found[1:], 2)

    def _end(self, emit: Builder, first: Value, count: Value) -> Value:
        """The first key that no query of the block sees."""
        if self.op.causal is None:
            return count
        last = plus(emit, first, self.writer.size(self.op.causal, "causal"))
        return minimum(emit, count, plus(emit, last, self.queries))

    def _bring_both(
        self,
        emit: Builder,
        batch: Sequence[Value],
        stages: Value,
        stage: Value,
        first: Value,
        count: Value,
    ) -> None:
        """Start to bring some keys and their values."""
        rooms = self._rooms(emit, stages, stage)
        for view, lines, room in zip((1, 2), self.lines[1:], rooms, strict=True):
            bring_rows(self.writer, emit, view, batch, (first, count), lines, room)
        emit.place(simt.Commit())

    def _rooms(self, emit: Builder, stages: Value, stage: Value) -> tuple[Value, Value]:
        """Where the keys and values of a stage are."""
        _, keys, values = self.lines
        start = multiple(emit, stage, keys.bytes + values.bytes)
        room = emit(loop.Offset(stages, start, U8))
        return room, emit(loop.Offset(room, index(emit, keys.bytes), U8))

    # The steps for some keys.

    def _some_keys(
        self,
        emit: Builder,
        batch: Sequence[Value],
        rows: Sequence[Value],
        start: Value,
        count: Value,
        rooms: tuple[Value, Value, Value],
        carried: Sequence[Value],
    ) -> State:
        queries, keys, values = zip(self.lines, rooms, strict=True)
        seen: list[Value] = []
        for k, score in enumerate(self.warp.products(emit, queries, keys)):
            key = plus(emit, start, self.warp.column(emit, k))
            seen.append(self._seen(emit, batch, rows[k % 4 // 2], key, count, score))
        state, powers = self._powers(emit, seen, State.of(carried, 2))
        sums = self.warp.weighted(emit, *values, powers, list(state.sums))
        return State(state.largest, state.total, sums)

    def _seen(
        self,
        emit: Builder,
        batch: Sequence[Value],
        query: Value,
        key: Value,
        count: Value,
        product: Value,
    ) -> Value:
        """A score, scaled and masked; -inf for what is hidden or beyond the last key."""
        lowest = number(emit, LOWEST, F32)
        score = emit(scalar.Multiply(product, number(emit, self.op.scale, F32)))
        within = below(emit, key, count)
        if self.op.causal is not None:
            last = plus(emit, query, self.writer.size(self.op.causal, "causal"))
            within = both(emit, within, emit(scalar.Compare(key, last, "le")))
        if not self.op.mask:
            return emit(scalar.Select(within, score, lowest))
        limit = self.writer.size(self.m, "m")
        yes, no = Block(), Block()
        inside, outside = Builder(yes, emit.location), Builder(no, emit.location)
        mask = read(self.writer, inside, 3, [*batch, query, key])
        if mask.type is BOOL:
            masked = inside(scalar.Select(mask, score, number(inside, LOWEST, F32)))
        else:
            masked = inside(scalar.Add(score, convert(inside, mask, F32)))
        inside.place(loop.Yield([masked]))
        outside.place(loop.Yield([number(outside, LOWEST, F32)]))
        there = both(emit, within, below(emit, query, limit))
        (found,) = emit.all(loop.If(there, yes, no))
        return found

    def _powers(
        self, emit: Builder, scores: Sequence[Value], state: State
    ) -> tuple[State, list[Value]]:
        """Scores become powers, and what there was is scaled to the new largest one."""
        largest, total = list(state.largest), list(state.total)
        sums, powers = list(state.sums), list(scores)
        for row in range(2):
            own = [k for k in range(len(scores)) if k % 4 // 2 == row]
            most = self._of_row(emit, "maximum", [scores[k] for k in own])
            before, largest[row] = largest[row], emit(scalar.Maximum(largest[row], most))
            base = self.relative(emit, largest[row])
            factor = emit(scalar.Exp(emit(scalar.Subtract(before, base))))
            total[row] = emit(scalar.Multiply(total[row], factor))
            for k in own:
                powers[k] = emit(scalar.Exp(emit(scalar.Subtract(scores[k], base))))
                total[row] = emit(scalar.Add(total[row], powers[k]))
            for k in range(len(sums)):
                if k % 4 // 2 == row:
                    sums[k] = emit(scalar.Multiply(sums[k], factor))
        return State(largest, total, sums), powers

    def _of_row(self, emit: Builder, name: str, values: Sequence[Value]) -> Value:
        """The numbers of a row combined: those of a thread, then of the four that have the row."""
        found, *others = values
        for other in others:
            found = combine(emit, name, found, other)
        for distance in (1, 2):
            found = combine(emit, name, found, emit(simt.Exchange(found, distance)))
        return found

    # Results.

    def _finish(
        self, emit: Builder, batch: Sequence[Value], rows: Sequence[Value], state: State
    ) -> None:
        """Divide the sums of each query by the sum of its powers, and write the logarithm of that."""
        limits = self.writer.size(self.m, "m"), index(emit, self.width)
        for row, query in enumerate(rows):
            total = self._of_row(emit, "add", [state.total[row]])
            inside = below(emit, query, limits[0])
            for eighth in range(-(-self.width // 8)):
                for k in range(2):
                    sum = 4 * eighth + 2 * row + k
                    column = self.warp.column(emit, sum)
                    within = both(emit, inside, below(emit, column, limits[1]))
                    value = emit(scalar.Divide(state.sums[sum], total))
                    self.store(emit, within, value, 0, [*batch, query, column])
            if self.op.logarithms:
                once = emit(scalar.Compare(self.warp.part, index(emit, 0), "eq"))
                value = self.logarithm(emit, state.largest[row], total)
                self.store(emit, both(emit, inside, once), value, 1, [*batch, query])
