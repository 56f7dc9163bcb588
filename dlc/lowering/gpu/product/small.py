"""A product for a GPU in any dtype: every element is one sum in order of k.

A block computes a square tile of the result. The threads load a k-tile of both operands into shared
memory, then each thread adds its products to a few sums in registers, and so on along k.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Index, Pointer, constant, fma
from dlc.ir.dims import ceil_divide, product
from dlc.lowering.gpu.product.k_positions import KPosition
from dlc.lowering.gpu.product.operands import Geometry, Operand
from dlc.lowering.gpu.product.results import write_results
from dlc.lowering.gpu.product.shared_layout import load_if
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.words import iterate, unravel, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import GpuTarget
from dlc.target.work import nanoseconds

SIDE = 64
"""Rows and columns of a tile."""
K_STEPS = 16
"""Steps along k of a k-tile."""
ACROSS = 16
"""Threads along each side of a tile; a thread has every sixteenth row and column."""
SUMS_PER_SIDE = SIDE // ACROSS
THREADS = ACROSS * ACROSS
ROW_PITCH = SIDE + 1
"""Elements from one k to the next in shared memory: one more, so that columns lie in different banks."""
UNROLL = 4
"""Steps along k that are unrolled."""


class SmallProduct:
    """Lowers a product in square tiles."""

    def __init__(self, geometry: Geometry, gpu: GpuTarget) -> None:
        self.geometry = geometry
        self.gpu = gpu
        self.writer = GridWriter(geometry.op, THREADS)
        self.dtype = geometry.op.accumulator

    def lower(self) -> Lowered:
        writer, geometry = self.writer, self.geometry
        down, across = ceil_divide(geometry.rows, SIDE), ceil_divide(geometry.columns, SIDE)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = writer.unravel_tile(counts)
        first = i * SIDE, j * SIDE
        y, x = unravel(writer.thread, [ACROSS] * 2)
        sums = self._sums(batch, first, (y, x))
        self._write_results(batch, first, (y, x), sums)
        work = SIDE * SIDE * geometry.inner * self.gpu.costs.small_product
        return writer.finish(product(geometry.batch) * down * across, nanoseconds(work))

    def _sums(
        self, batch: Sequence[Expr], first: tuple[Expr, Expr], own: tuple[Expr, Expr]
    ) -> list[Expr]:
        """The sums of the thread, row by row; it is number `own` of the tile, down and across."""
        writer = self.writer
        buffers = (
            writer.shared(K_STEPS * ROW_PITCH, self.dtype),
            writer.shared(K_STEPS * ROW_PITCH, self.dtype),
        )
        k_tiles = self.geometry.k_tiles(K_STEPS)
        operands = self.geometry.operands(writer, batch, k_tiles)

        def k_tile(_: Expr, carried: list[Expr]) -> list[Index]:
            position, sums = carried[: -len(zeros)], carried[-len(zeros) :]
            for buffer, operand, low in zip(buffers, operands, first, strict=True):
                self._load_k_tile(buffer, operand, low, position)
            writer.barrier()
            sums = self._multiply(buffers, own, sums)
            writer.barrier()
            return [*k_tiles.advance(writer, position), *sums]

        zeros = [constant(writer.emit, 0, self.dtype)] * (SUMS_PER_SIDE * SUMS_PER_SIDE)
        count = writer.size(k_tiles.count, "strips")
        start = [*k_tiles.start(writer), *zeros]
        return iterate(writer.emit, 0, count, start, k_tile)[-len(zeros) :]

    def _load_k_tile(
        self, buffer: Pointer, operand: Operand, low: Expr, position: KPosition
    ) -> None:
        """Load a k-tile of an operand into shared memory as `[k, side]`, with zeros out of bounds."""
        for part in range(SIDE * K_STEPS // THREADS):
            element = self.writer.thread + part * THREADS
            slow, fast = unravel(element, [K_STEPS if operand.along_k else SIDE] * 2)
            side, k = (slow, fast) if operand.along_k else (fast, slow)
            offset, within = operand.locate(position, low + side, k)
            loaded = load_if(within, operand.array, offset)
            buffer[k * ROW_PITCH + side] = loaded.cast(self.dtype)

    def _multiply(
        self, buffers: tuple[Pointer, Pointer], own: tuple[Expr, Expr], sums: list[Expr]
    ) -> list[Expr]:
        """Add the products of a k-tile."""

        def steps(start: Expr, sums: list[Expr]) -> list[Expr]:
            for k in range(UNROLL):
                base = (start + k) * ROW_PITCH
                rows, columns = (
                    [buffer[base + (near + part * ACROSS)] for part in range(SUMS_PER_SIDE)]
                    for buffer, near in zip(buffers, own, strict=True)
                )
                pairs = [(row, column) for row in rows for column in columns]
                sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, K_STEPS, sums, steps, UNROLL)

    def _write_results(
        self,
        batch: Sequence[Expr],
        first: tuple[Expr, Expr],
        own: tuple[Expr, Expr],
        sums: Sequence[Expr],
    ) -> None:
        """Apply the epilogue to each of the thread's sums that is within the result."""
        writer, geometry = self.writer, self.geometry
        body = epilogue_body(geometry.op, writer, 1)
        rows, columns = writer.size(geometry.rows, "m"), writer.size(geometry.columns, "n")
        for position, sum in enumerate(sums):
            down, across = divmod(position, SUMS_PER_SIDE)
            row = first[0] + (own[0] + down * ACROSS)
            column = first[1] + (own[1] + across * ACROSS)
            with when((row < rows) & (column < columns)):
                index = geometry.domain_index(writer, batch, row, column)
                write_results(geometry.op, body, writer, [index], [sum])
