"""A product for a GPU in any dtype: every element is one sum in order of k.

A block computes a square tile of the result. Step by step along k its threads bring a strip of both
operands into shared memory, and each thread adds up a few elements of the tile in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Index, Pointer, constant, fma
from dlc.ir.dims import ceil_divide, product
from dlc.lowering.gpu.product.operands import Geometry, Source, State
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
STRIP = 16
"""Steps along k that are in shared memory at a time."""
ACROSS = 16
"""Threads along each side of a tile; a thread has every sixteenth row and column."""
EACH = SIDE // ACROSS
THREADS = ACROSS * ACROSS
PITCH = SIDE + 1
"""Elements from one k to the next in shared memory: one more, so that columns lie in different banks."""
UNROLL = 4
"""Steps along k that are written out."""


class SmallProduct:
    """A product in the making."""

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
        *batch, i, j = unravel(writer.tile, counts)
        first = i * SIDE, j * SIDE
        y, x = unravel(writer.thread, [ACROSS] * 2)
        sums = self._sums(batch, first, (y, x))
        self._finish(batch, first, (y, x), sums)
        work = SIDE * SIDE * geometry.inner * self.gpu.costs.small_product
        return writer.finish(product(geometry.batch) * down * across, nanoseconds(work))

    def _sums(
        self, batch: Sequence[Expr], first: tuple[Expr, Expr], own: tuple[Expr, Expr]
    ) -> list[Expr]:
        """The sums of the thread, row by row; it is number `own` of the tile, down and across."""
        writer = self.writer
        buffers = writer.shared(STRIP * PITCH, self.dtype), writer.shared(STRIP * PITCH, self.dtype)
        strips = self.geometry.strips(STRIP)
        sources = self.geometry.sources(writer, batch, strips)

        def strip(_: Expr, carried: list[Expr]) -> list[Index]:
            state, sums = carried[: -len(zeros)], carried[-len(zeros) :]
            for buffer, source, low in zip(buffers, sources, first, strict=True):
                self._load_strip(buffer, source, low, state)
            writer.barrier()
            sums = self._multiply(buffers, own, sums)
            writer.barrier()
            return [*strips.following(writer, state), *sums]

        zeros = [constant(writer.emit, 0, self.dtype)] * (EACH * EACH)
        count = writer.size(strips.count, "strips")
        start = [*strips.start(), *zeros]
        return iterate(writer.emit, 0, count, start, strip)[-len(zeros) :]

    def _load_strip(self, buffer: Pointer, source: Source, low: Expr, state: State) -> None:
        """Bring a strip of an operand into shared memory: `[k, side]`, zeros beyond its ends."""
        for part in range(SIDE * STRIP // THREADS):
            number = self.writer.thread + part * THREADS
            slow, quick = unravel(number, [STRIP if source.along_k else SIDE] * 2)
            side, k = (slow, quick) if source.along_k else (quick, slow)
            place, within = source.place(state, low + side, k)
            element = load_if(within, source.array, place)
            there = k * PITCH + side
            buffer[there] = element.cast(self.dtype)

    def _multiply(
        self, buffers: tuple[Pointer, Pointer], own: tuple[Expr, Expr], sums: list[Expr]
    ) -> list[Expr]:
        """Add the products of a strip."""

        def steps(start: Expr, sums: list[Expr]) -> list[Expr]:
            for k in range(UNROLL):
                base = (start + k) * PITCH
                rows, columns = (
                    [buffer[base + (near + part * ACROSS)] for part in range(EACH)]
                    for buffer, near in zip(buffers, own, strict=True)
                )
                pairs = [(row, column) for row in rows for column in columns]
                sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, STRIP, sums, steps, UNROLL)

    def _finish(
        self,
        batch: Sequence[Expr],
        first: tuple[Expr, Expr],
        own: tuple[Expr, Expr],
        sums: Sequence[Expr],
    ) -> None:
        """The epilogue for each sum of the thread that is inside of the result."""
        writer, geometry = self.writer, self.geometry
        body = epilogue_body(geometry.op, writer, 1)
        rows, columns = writer.size(geometry.rows, "m"), writer.size(geometry.columns, "n")
        for position, sum in enumerate(sums):
            down, across = divmod(position, EACH)
            row = first[0] + (own[0] + down * ACROSS)
            column = first[1] + (own[1] + across * ACROSS)
            with when((row < rows) & (column < columns)):
                where = geometry.place(writer, batch, row, column)
                write_results(geometry.op, body, writer, [where], [sum])
