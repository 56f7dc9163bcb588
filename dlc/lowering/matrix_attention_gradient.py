"""`kernel.attention_gradient` of f16, bf16 and tf32 for a GPU, by matrix instructions.

A block has 64 rows or 16, a warp 16 of them. Some columns at a time are in shared memory, and the next ones
are copied meanwhile. What a warp computes of its scores stays in the registers that the products with the
columns read it from, rounded as these are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_attention import MOST_NARROW, AttentionGradient
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import F32, U8
from dlc.lowering.formula import number
from dlc.lowering.loop_words import for_each, index
from dlc.lowering.shared_lines import multiple, plus
from dlc.lowering.tiled_attention_gradient import (
    Statistics,
    TiledAttentionGradient,
    elements_of,
)
from dlc.lowering.warp_matrices import Tile, WarpRows, bring_rows, lines_of, tile_for
from dlc.target.gpu import GpuTarget

TILES = {128: Tile(4, 32), 256: Tile(4, 16), 512: Tile(1, 16)}
"""For which 48 KiB have room, twice for columns; rows and columns have two arrays each."""


class MatrixAttentionGradient(TiledAttentionGradient):
    """A gradient in the making. Queries, keys and values have at most 128 elements each."""

    def __init__(self, op: AttentionGradient, gpu: GpuTarget) -> None:
        widest = max(elements_of(op))
        assert widest <= MOST_NARROW
        self.dtype = kernel.array_type(op.query).dtype
        tile = tile_for(TILES, self.dtype, widest)
        sides = tile.rows, tile.columns
        super().__init__(op, tile.warps * WARP, sides, gpu.costs.matrix_attention)
        self.own_lines, self.walked_lines = (
            [lines_of(self.dtype, count, elements) for elements in self.elements]
            for count in (self.rows, self.columns)
        )
        self.warp = WarpRows(self.writer)

    def write(self, emit: Builder, batch: Sequence[Value], first: Value) -> None:
        length = sum(lines.bytes for lines in self.own_lines)
        room = emit(simt.Shared((length + 2 * self._stage) // self.dtype.bytes, self.dtype))
        own = [room, self._behind(emit, room, self.own_lines[0].bytes)]
        stages = self._behind(emit, room, length)
        limit = self.count_of_rows()
        for view, lines, there in zip(self.own, self.own_lines, own, strict=True):
            bring_rows(self.writer, emit, view, batch, (first, limit), lines, there)
        rows = self.warp.rows(emit, first)
        known = [] if self.op.by_keys else [self.statistics(emit, batch, row) for row in rows]
        begin, end = self.range(emit, first)
        self._bring_columns(emit, batch, stages, index(emit, 0), begin)

        def some(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            stage, *sums = carried
            deep.place(simt.Wait(0))
            deep.place(simt.Barrier())
            other = deep(scalar.Subtract(index(deep, 1), stage))
            self._bring_columns(deep, batch, stages, other, plus(deep, start, self.columns))
            walked = self._columns_at(deep, stages, stage)
            weights = self._weights(deep, batch, rows, start, (own, walked), known)
            return [other, *self._added(deep, weights, walked, sums)]

        nothing = [number(emit, 0, F32)] * sum(self._sums)
        carried = [index(emit, 0), *nothing]
        _, *found = for_each(emit, begin, end, self.columns, carried, some)
        emit.place(simt.Wait(0))
        self._finish(emit, batch, rows, found)

    @property
    def _sums(self) -> list[int]:
        """How many sums of each result a thread has."""
        results = self.walked_lines if self.op.by_keys else self.walked_lines[:1]
        return [self.warp.sums(lines) for lines in results]

    # Shared memory.

    @property
    def _stage(self) -> int:
        """Bytes of the columns that are there at a time."""
        return sum(lines.bytes for lines in self.walked_lines)

    def _behind(self, emit: Builder, room: Value, length: int) -> Value:
        return emit(loop.Offset(room, index(emit, length), U8))

    def _columns_at(self, emit: Builder, stages: Value, stage: Value) -> list[Value]:
        """Where the two arrays of the columns of a stage are."""
        start = multiple(emit, stage, self._stage)
        room = emit(loop.Offset(stages, start, U8))
        return [room, self._behind(emit, room, self.walked_lines[0].bytes)]

    def _bring_columns(
        self, emit: Builder, batch: Sequence[Value], stages: Value, stage: Value, first: Value
    ) -> None:
        """Start to bring some columns."""
        limit = self.count_of_columns()
        rooms = self._columns_at(emit, stages, stage)
        for view, lines, room in zip(self.walked, self.walked_lines, rooms, strict=True):
            bring_rows(self.writer, emit, view, batch, (first, limit), lines, room)
        emit.place(simt.Commit())

    # The steps for some columns.

    def _weights(
        self,
        emit: Builder,
        batch: Sequence[Value],
        rows: Sequence[Value],
        start: Value,
        rooms: tuple[Sequence[Value], Sequence[Value]],
        known: Sequence[Statistics],
    ) -> tuple[list[Value], list[Value]]:
        """What the thread's scores receive, and their weights; `known` are the statistics of rows."""
        products = [
            self.warp.products(emit, (self.own_lines[k], own), (self.walked_lines[k], walked))
            for k, (own, walked) in enumerate(zip(*rooms, strict=True))
        ]
        received, weights = list[Value](), list[Value]()
        of_columns: dict[tuple[int, int], Statistics] = {}
        for k, pair in enumerate(zip(*products, strict=True)):
            column = plus(emit, start, self.warp.column(emit, k))
            if self.op.by_keys:
                which = k // 4, k % 2
                if which not in of_columns:
                    of_columns[which] = self.statistics(emit, batch, column)
                statistics = of_columns[which]
            else:
                statistics = known[k % 4 // 2]
            p, ds = self.weigh(emit, batch, (rows[k % 4 // 2], column), pair, statistics)
            received.append(ds)
            weights.append(p)
        return received, weights

    def _added(
        self,
        emit: Builder,
        weights: tuple[list[Value], list[Value]],
        walked: Sequence[Value],
        sums: Sequence[Value],
    ) -> list[Value]:
        """Add the columns, weighted, to what the rows receive."""
        found, done = list[Value](), 0
        for which, count in enumerate(self._sums):
            mine = list(sums[done : done + count])
            lines = self.walked_lines[which]
            found += self.warp.weighted(emit, lines, walked[which], weights[which], mine)
            done += count
        return found

    def _finish(
        self, emit: Builder, batch: Sequence[Value], rows: Sequence[Value], sums: Sequence[Value]
    ) -> None:
        done = 0
        for which, count in enumerate(self._sums):
            for k in range(min(count, -(-self.elements[which] // 8) * 4)):
                place = rows[k % 4 // 2], self.warp.column(emit, k)
                self.store(emit, batch, which, place, sums[done + k])
            done += count
