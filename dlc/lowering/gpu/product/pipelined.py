"""A multi-stage pipelined product for a GPU: `cp.async` copies k-tiles while earlier ones are multiplied.

A block computes a threadblock tile of the result. Shared memory has a circular buffer of stages, each with
the k-tiles of both operands; copies (`simt.copy`) are two or three stages ahead of the one that is
multiplied, and a stage is filled again when all threads have passed the barrier after its use. Finished
sums pass through shared memory, so that neighbouring threads apply the epilogue to neighbouring columns,
and its code is there once for a group of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from dlc.dialects.expr import Expr, Index, Pointer, constant, select
from dlc.ir.dims import ceil_divide, divides, product
from dlc.ir.types import F32, INDEX, U32
from dlc.lowering.gpu.product.k_positions import KTiles
from dlc.lowering.gpu.product.k_tiles import KTile, KTileLoader
from dlc.lowering.gpu.product.operands import Geometry, Operand
from dlc.lowering.gpu.product.results import TOGETHER, write_results, written_together
from dlc.lowering.gpu.product.warp_products import (
    GROUP_ROWS,
    MatrixProduct,
    ScalarProduct,
    Tiling,
    WarpProduct,
)
from dlc.lowering.gpu.writer import GridWriter, load_several, store_several
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.words import for_each, iterate, unravel, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.work import nanoseconds

ROW_PADDING = 8
"""Elements of padding between rows of sums in shared memory, so that rows begin in other banks."""


class PipelinedProduct:
    """Lowers a product with a given tiling, by matrix instructions or by `fma`."""

    def __init__(
        self,
        geometry: Geometry,
        tiling: Tiling,
        warp_product: type[MatrixProduct | ScalarProduct],
        product_ps: int,
    ) -> None:
        """`product_ps` is the cost of one multiplication and addition in picoseconds."""
        self.geometry = geometry
        self.tiling = tiling
        self.warp_product = warp_product
        self.product_ps = product_ps
        self.writer = GridWriter(geometry.op, tiling.threads, tiling.blocks)

    def lower(self) -> Lowered:
        writer, tiling, geometry = self.writer, self.tiling, self.geometry
        down = ceil_divide(geometry.rows, tiling.rows)
        across = ceil_divide(geometry.columns, tiling.columns)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = writer.unravel_tile(counts)
        self._tile(batch, (i * tiling.rows, j * tiling.columns))
        work = tiling.rows * tiling.columns * geometry.inner * self.product_ps
        return writer.finish(product(geometry.batch) * down * across, nanoseconds(work))

    def _tile(self, batch: Sequence[Expr], first: tuple[Expr, Expr]) -> None:
        tiling, writer = self.tiling, self.writer
        geometry = self.geometry
        depth = tiling.k_bytes // writer.views[0].dtype.bytes
        k_tiles = geometry.k_tiles(depth, geometry.position_dtype(writer))
        left, right = geometry.operands(writer, batch, k_tiles)
        lhs, rhs = self._k_tile(left, of_rows=True), self._k_tile(right, of_rows=False)
        spilled = tiling.down * GROUP_ROWS * self._pitch * F32.bytes
        buffer = writer.shared(max(tiling.shared_bytes, spilled) // F32.bytes, F32)
        warps = self.warp_product(tiling, writer, lhs, rhs)
        sums = _Pipeline(writer, tiling.stages, (lhs, rhs), buffer, first, k_tiles).run(warps)
        for group in range(tiling.warp_rows // GROUP_ROWS):
            writer.barrier()
            self._spill_sums(buffer, warps, group, sums)
            writer.barrier()
            self._apply_epilogue(batch, first, buffer, group)

    def _k_tile(self, operand: Operand, *, of_rows: bool) -> KTile:
        tiling = self.tiling
        side = tiling.rows if of_rows else tiling.columns
        swizzle = self.warp_product.swizzle(operand, of_rows=of_rows)
        return KTile(self.writer, operand, (side, tiling.k_bytes), swizzle)

    # Finished sums, some rows of each warp at a time.

    @property
    def _pitch(self) -> int:
        return self.tiling.columns + ROW_PADDING

    def _spill_sums(
        self, buffer: Pointer, warps: WarpProduct, group: int, sums: Sequence[Expr]
    ) -> None:
        """Store the warps' sums of a group of rows in shared memory."""
        top = warps.down * GROUP_ROWS
        for vector in warps.sum_vectors(group, sums):
            offset = (top + vector.row) * self._pitch + (warps.column + vector.column)
            store_several(buffer, offset, vector.sums)

    def _apply_epilogue(
        self, batch: Sequence[Expr], first: tuple[Expr, Expr], buffer: Pointer, group: int
    ) -> None:
        """Apply the epilogue to the sums of a group of rows, neighbouring threads to neighbouring columns.

        A thread stays in its columns: several, where their results can be written by one store.
        """
        tiling, writer, geometry = self.tiling, self.writer, self.geometry
        body = epilogue_body(geometry.op, writer, 1)
        rows, columns = writer.size(geometry.rows, "m"), writer.size(geometry.columns, "n")
        each = written_together(geometry.op) if divides(TOGETHER, geometry.columns) else 1
        across = tiling.columns // each
        start, part = unravel(writer.thread, [across] * 2)
        tile_column = part * each
        column = first[1] + tile_column
        with for_each(
            writer.emit, start, tiling.down * GROUP_ROWS, writer.threads // across
        ) as line:
            warp, rest = unravel(line, [GROUP_ROWS] * 2)
            row = first[0] + (warp * tiling.warp_rows + (rest + group * GROUP_ROWS))
            within = (row < rows) & (column < columns)
            offset = line * self._pitch + tile_column
            with when(within):
                sums = load_several(buffer, offset, each)
                indices = [
                    geometry.domain_index(writer, batch, row, column + k) for k in range(each)
                ]
                write_results(geometry.op, body, writer, indices, sums)


class _Pipeline:
    """The main loop along k: copies of k-tiles run ahead of the one that is multiplied.

    A stage is known by its distance in bytes from the first one. An iteration fills the stage that the one
    before has read.
    """

    def __init__(
        self,
        writer: GridWriter,
        stages: int,
        tiles: tuple[KTile, KTile],
        buffer: Pointer,
        first: tuple[Expr, Expr],
        k_tiles: KTiles,
    ) -> None:
        self.writer = writer
        self.ahead = stages - 1
        self.k_tiles = k_tiles
        lhs, rhs = tiles
        self.buffer = buffer
        self.loaders = [
            KTileLoader(lhs, k_tiles, first[0], buffer),
            KTileLoader(rhs, k_tiles, first[1], buffer.skip(lhs.bytes)),
        ]
        self.stage_bytes = lhs.bytes + rhs.bytes
        self.end = stages * self.stage_bytes

    def run(self, warps: WarpProduct) -> list[Expr]:
        """The finished sums of the thread. All copies are done; the last stage may still be read."""
        writer, ahead = self.writer, self.ahead
        place = _Place(self.k_tiles.start(writer), [loader.start() for loader in self.loaders])

        def fill(_: Expr, carried: list[Expr]) -> list[Index]:
            stage, *rest = carried
            return [self._next(stage), *self._load_k_tiles(stage, place.like(rest)).values]

        writing, *rest = iterate(writer.emit, 0, ahead, [self._stage(0), *place.values], fill)
        place = place.like(rest)

        def k_tile(_: Expr, carried: list[Expr]) -> list[Index]:
            reading, writing, *rest = carried
            now, sums = place.like(rest[: -warps.count]), rest[-warps.count :]
            writer.wait(ahead - 1)
            writer.barrier()
            after = self._load_k_tiles(writing, now)
            sums = warps.multiply(self.buffer, reading.cast(INDEX), sums)
            return [self._next(reading), reading, *after.values, *sums]

        count = writer.size(self.k_tiles.count, "strips")
        sums = [constant(writer.emit, 0, F32)] * warps.count
        start = [self._stage(0), writing, *place.values, *sums]
        carried = iterate(writer.emit, 0, count, start, k_tile)
        writer.wait()
        return carried[-warps.count :]

    def _load_k_tiles(self, stage: Expr, place: _Place) -> _Place:
        """Start to copy the k-tiles at a place into a stage, if there are any; returns the next place."""
        position, skip = place.position, stage.cast(INDEX)
        with when(self.k_tiles.exists(self.writer, position)):
            for loader, addresses in zip(self.loaders, place.addresses, strict=True):
                loader.load(skip, position, addresses)
        self.writer.commit()
        return _Place(
            self.k_tiles.advance(self.writer, position),
            [
                loader.advance(position, addresses)
                for loader, addresses in zip(self.loaders, place.addresses, strict=True)
            ],
        )

    def _stage(self, bytes: int) -> Expr:
        return constant(self.writer.emit, bytes, U32)

    def _next(self, stage: Expr) -> Expr:
        after = stage + self.stage_bytes
        return select(after.equals(self.end), self._stage(0), after)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a k-tile begins: its position along k, and where a thread's units of each operand are."""

    position: Sequence[Expr]
    addresses: Sequence[Sequence[Expr]]

    @property
    def values(self) -> list[Expr]:
        """All of them, as a loop carries them."""
        return [*self.position, *[each for own in self.addresses for each in own]]

    def like(self, values: Sequence[Expr]) -> _Place:
        """A place from what a loop carries."""
        counts = [len(self.position), *map(len, self.addresses)]
        ends = list(accumulate(counts))
        position, *addresses = (
            values[end - count : end] for end, count in zip(ends, counts, strict=True)
        )
        return _Place(position, addresses)
