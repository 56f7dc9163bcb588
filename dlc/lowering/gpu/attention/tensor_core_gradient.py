"""`kernel.attention_gradient` of f16, bf16 and tf32 for a GPU, by matrix instructions.

A block has 64 rows or 16, a warp 16 of them. Some columns at a time are in shared memory, and the next ones
are copied meanwhile. What a warp computes of its scores stays in the registers that the products with the
columns read it from, rounded as these are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer, constant, index
from dlc.dialects.kernel.attention import MOST_NARROW, AttentionGradient
from dlc.dialects.simt import WARP
from dlc.ir.types import F32
from dlc.lowering.gpu.attention.gradient_tiles import (
    Statistics,
    TiledAttentionGradient,
    elements_of,
)
from dlc.lowering.gpu.attention.warp_matrices import Tile, WarpRows, lines_of, load_rows, tile_for
from dlc.lowering.kernel_code.words import iterate
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

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        writer = self.writer
        length = sum(lines.bytes for lines in self.own_lines)
        buffer = writer.shared((length + 2 * self._stage_bytes) // self.dtype.bytes, self.dtype)
        own = [buffer, buffer.skip(self.own_lines[0].bytes)]
        stages = buffer.skip(length)
        limit = self.count_of_rows()
        for view, lines, there in zip(self.own, self.own_lines, own, strict=True):
            load_rows(writer, view, batch, (first, limit), lines, there)
        rows = self.warp.rows(first)
        known = [] if self.op.by_keys else [self.statistics(batch, row) for row in rows]
        begin, end = self.range(first)
        begin = index(writer.emit, begin)
        self._load_columns(batch, self._stage(stages, index(writer.emit, 0)), begin)

        def some(start: Expr, carried: list[Expr]) -> list[Index]:
            stage, *sums = carried
            writer.wait()
            writer.barrier()
            other = 1 - stage
            self._load_columns(batch, self._stage(stages, other), start + self.columns)
            walked = self._stage(stages, stage)
            weights = self._weights(batch, rows, start, (own, walked), known)
            return [other, *self._added(weights, walked, sums)]

        zeros = [constant(writer.emit, 0, F32)] * sum(self._sums)
        _, *sums = iterate(writer.emit, begin, end, [0, *zeros], some, self.columns)
        writer.wait()
        self._finish(batch, rows, sums)

    @property
    def _sums(self) -> list[int]:
        """How many sums of each result a thread has."""
        results = self.walked_lines if self.op.by_keys else self.walked_lines[:1]
        return [self.warp.sums(lines) for lines in results]

    # Shared memory.

    @property
    def _stage_bytes(self) -> int:
        """Bytes of the columns that are there at a time."""
        return sum(lines.bytes for lines in self.walked_lines)

    def _stage(self, stages: Pointer, stage: Expr) -> list[Pointer]:
        """Where the two arrays of the columns of a stage are."""
        buffer = stages.skip(stage * self._stage_bytes)
        return [buffer, buffer.skip(self.walked_lines[0].bytes)]

    def _load_columns(self, batch: Sequence[Expr], buffers: Sequence[Pointer], first: Expr) -> None:
        """Start to copy some columns."""
        limit = self.count_of_columns()
        for view, lines, buffer in zip(self.walked, self.walked_lines, buffers, strict=True):
            load_rows(self.writer, view, batch, (first, limit), lines, buffer)
        self.writer.commit()

    # The steps for some columns.

    def _weights(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        buffers: tuple[Sequence[Pointer], Sequence[Pointer]],
        known: Sequence[Statistics],
    ) -> tuple[list[Expr], list[Expr]]:
        """What the thread's scores receive, and their weights; `known` are the statistics of rows."""
        products = [
            self.warp.products((self.own_lines[k], own), (self.walked_lines[k], walked))
            for k, (own, walked) in enumerate(zip(*buffers, strict=True))
        ]
        received, weights = list[Expr](), list[Expr]()
        of_columns: dict[tuple[int, int], Statistics] = {}
        for k, pair in enumerate(zip(*products, strict=True)):
            column = start + self.warp.column(k)
            if self.op.by_keys:
                which = k // 4, k % 2
                if which not in of_columns:
                    of_columns[which] = self.statistics(batch, column)
                statistics = of_columns[which]
            else:
                statistics = known[k % 4 // 2]
            p, ds = self.weigh(batch, (rows[k % 4 // 2], column), pair, statistics)
            received.append(ds)
            weights.append(p)
        return received, weights

    def _added(
        self,
        weights: tuple[list[Expr], list[Expr]],
        walked: Sequence[Pointer],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """Add the columns, weighted, to what the rows receive."""
        added, done = list[Expr](), 0
        for which, count in enumerate(self._sums):
            own = sums[done : done + count]
            lines = self.walked_lines[which]
            added += self.warp.weighted(lines, walked[which], weights[which], own)
            done += count
        return added

    def _finish(self, batch: Sequence[Expr], rows: Sequence[Expr], sums: Sequence[Expr]) -> None:
        done = 0
        for which, count in enumerate(self._sums):
            for k in range(min(count, -(-self.elements[which] // 8) * 4)):
                place = rows[k % 4 // 2], self.warp.column(k)
                self.store(batch, which, place, sums[done + k])
            done += count
