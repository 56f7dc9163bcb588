"""`kernel.attention_gradient` of f16, bf16 and tf32 for a GPU, by matrix instructions.

A block has 64 rows or 16, a warp 16 of them. Tiles of columns are double-buffered in shared memory: the
next one is copied (`cp.async`) while the warps compute with one. A warp's weights and score gradients,
rounded to the columns' dtype, stay in the registers from which the products with the columns read them.
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
from dlc.lowering.gpu.attention.warp_matrices import (
    AttentionTile,
    WarpRows,
    layout_of,
    load_rows,
    tile_for,
)
from dlc.lowering.kernel_code.words import iterate
from dlc.target.gpu import GpuTarget

TILES = {128: AttentionTile(4, 32), 256: AttentionTile(4, 16), 512: AttentionTile(1, 16)}
"""Tiles by the bytes of a row: 48 KiB hold two arrays of rows, and two of columns twice."""


class MatrixAttentionGradient(TiledAttentionGradient):
    """Lowers a gradient with heads of at most 128 elements."""

    def __init__(self, op: AttentionGradient, gpu: GpuTarget) -> None:
        widest = max(elements_of(op))
        assert widest <= MOST_NARROW
        self.dtype = kernel.array_type(op.query).dtype
        tile = tile_for(TILES, self.dtype, widest)
        sides = tile.rows, tile.columns
        super().__init__(op, tile.warps * WARP, sides, gpu.costs.matrix_attention)
        self.own_layouts, self.walked_layouts = (
            [layout_of(self.dtype, count, elements) for elements in self.elements]
            for count in (self.rows, self.columns)
        )
        self.warp = WarpRows(self.writer)

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        writer = self.writer
        length = sum(layout.bytes for layout in self.own_layouts)
        buffer = writer.shared((length + 2 * self._stage_bytes) // self.dtype.bytes, self.dtype)
        own = [buffer, buffer.skip(self.own_layouts[0].bytes)]
        stages = buffer.skip(length)
        limit = self.count_of_rows()
        for view, layout, target in zip(self.own, self.own_layouts, own, strict=True):
            load_rows(writer, view, batch, (first, limit), layout, target)
        rows = self.warp.rows(first)
        row_statistics = [] if self.op.by_keys else [self.statistics(batch, row) for row in rows]
        begin, end = self.range(first)
        begin = index(writer.emit, begin)
        self._load_columns(batch, self._stage(stages, index(writer.emit, 0)), begin)

        def walk_step(start: Expr, carried: list[Expr]) -> list[Index]:
            stage, *sums = carried
            writer.wait()
            writer.barrier()
            other = 1 - stage
            self._load_columns(batch, self._stage(stages, other), start + self.columns)
            walked = self._stage(stages, stage)
            weights = self._weights(batch, rows, start, (own, walked), row_statistics)
            return [other, *self._added(weights, walked, sums)]

        zeros = [constant(writer.emit, 0, F32)] * sum(self._sums)
        _, *sums = iterate(writer.emit, begin, end, [0, *zeros], walk_step, self.columns)
        writer.wait()
        self._write_results(batch, rows, sums)

    @property
    def _sums(self) -> list[int]:
        """The number of a thread's sums of each result."""
        results = self.walked_layouts if self.op.by_keys else self.walked_layouts[:1]
        return [self.warp.sums(layout) for layout in results]

    # Shared memory.

    @property
    def _stage_bytes(self) -> int:
        """Bytes of a tile of columns."""
        return sum(layout.bytes for layout in self.walked_layouts)

    def _stage(self, stages: Pointer, stage: Expr) -> list[Pointer]:
        """The buffers of a stage's two arrays of columns."""
        buffer = stages.skip(stage * self._stage_bytes)
        return [buffer, buffer.skip(self.walked_layouts[0].bytes)]

    def _load_columns(self, batch: Sequence[Expr], buffers: Sequence[Pointer], first: Expr) -> None:
        """Start to copy a tile of columns."""
        limit = self.count_of_columns()
        for view, layout, buffer in zip(self.walked, self.walked_layouts, buffers, strict=True):
            load_rows(self.writer, view, batch, (first, limit), layout, buffer)
        self.writer.commit()

    # One tile of columns.

    def _weights(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        buffers: tuple[Sequence[Pointer], Sequence[Pointer]],
        row_statistics: Sequence[Statistics],
    ) -> tuple[list[Expr], list[Expr]]:
        """The gradients of the thread's scores, and their weights; `row_statistics` are empty `by_keys`."""
        products = [
            self.warp.products((self.own_layouts[k], own), (self.walked_layouts[k], walked))
            for k, (own, walked) in enumerate(zip(*buffers, strict=True))
        ]
        score_gradients, weights = list[Expr](), list[Expr]()
        of_columns: dict[tuple[int, int], Statistics] = {}
        for k, pair in enumerate(zip(*products, strict=True)):
            column = start + self.warp.column(k)
            if self.op.by_keys:
                which = k // 4, k % 2
                if which not in of_columns:
                    of_columns[which] = self.statistics(batch, column)
                statistics = of_columns[which]
            else:
                statistics = row_statistics[k % 4 // 2]
            p, ds = self.weigh(batch, (rows[k % 4 // 2], column), pair, statistics)
            score_gradients.append(ds)
            weights.append(p)
        return score_gradients, weights

    def _added(
        self,
        weights: tuple[list[Expr], list[Expr]],
        walked: Sequence[Pointer],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """Add the columns, weighted, to the rows' gradients."""
        added, done = list[Expr](), 0
        for which, count in enumerate(self._sums):
            own = sums[done : done + count]
            layout = self.walked_layouts[which]
            added += self.warp.weighted(layout, walked[which], weights[which], own)
            done += count
        return added

    def _write_results(
        self, batch: Sequence[Expr], rows: Sequence[Expr], sums: Sequence[Expr]
    ) -> None:
        done = 0
        for which, count in enumerate(self._sums):
            for k in range(min(count, -(-self.elements[which] // 8) * 4)):
                position = rows[k % 4 // 2], self.warp.column(k)
                self.store(batch, which, position, sums[done + k])
            done += count
