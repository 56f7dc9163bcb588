"""Skinny products (GEMV) for a GPU: one operand has few rows, the matrix is read once, 16 bytes at a time.

Such a product is bound by the bandwidth with which its matrix is read, so all threads read parts of that.
The threads of a block divide k: each adds up the products of its part, for one result or some neighbouring
ones, and a fixed tree combines their sums. The results along the long side of the matrix are spread over
enough blocks to keep a GPU busy, if there are as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Expr, constant, fma, index, minimum
from dlc.dialects.simt import WARP
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.types import DType
from dlc.lowering.gpu.product.operands import Geometry, Operand
from dlc.lowering.gpu.product.results import write_results
from dlc.lowering.gpu.writer import GridWriter, load_several, shuffle_xor, when
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.words import iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS, SECTOR, GpuTarget
from dlc.target.work import nanoseconds

THREADS = 256
CHUNKS_IN_FLIGHT = 4
"""Chunks of the matrix that a thread loads before it multiplies any of them."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The division of a block's work: `share` threads have the same results and divide k."""

    along_k: bool
    """Whether a chunk of the matrix is some elements along k, for one result; else along the long side."""
    chunk: int
    """Elements of a chunk."""
    share: int

    @property
    def apart(self) -> int:
        """Groups of threads with different results."""
        return THREADS // self.share

    @property
    def each(self) -> int:
        """Results of a thread."""
        return 1 if self.along_k else self.chunk

    @property
    def results(self) -> int:
        """Results of the block along the long side."""
        return self.apart * self.each

    @property
    def step(self) -> int:
        """Steps along k that the threads cover with one chunk each."""
        return self.share * (self.chunk if self.along_k else 1)


def _shape(operand: Operand, long: Size, batch: Size, inner: Size, blocks: int) -> _Shape:
    """The division of the results along the long side of a matrix; `blocks` keep the GPU busy."""
    size = operand.dtype.bytes
    chunk = ACCESS // size if operand.whole else 1
    count = long * batch
    if operand.along_k:
        # A warp has a result, the whole block where these are few and long, fewer threads where short.
        if isinstance(count, int) and count <= 2 * blocks and _is_long(inner, THREADS * chunk):
            return _Shape(True, chunk, THREADS)
        share = WARP
        while share > 1 and isinstance(inner, int) and (share // 2) * chunk >= inner:
            share //= 2
        return _Shape(True, chunk, share)
    apart, least = WARP, max(1, SECTOR // (chunk * size))
    while apart > least and isinstance(count, int) and count < blocks * apart * chunk:
        apart //= 2
    return _Shape(False, chunk, THREADS // apart)


def _is_long(inner: Size, least: int) -> bool:
    """Whether k has at least `least` steps, or is unknown until a call."""
    return not isinstance(inner, int) or inner >= least


class VectorProduct:
    """Lowers a product of which axis `few` of the result, 0 or 1, has up to `most` rows."""

    def __init__(self, geometry: Geometry, few: int, most: int, gpu: GpuTarget) -> None:
        self.geometry = geometry
        self.gpu = gpu
        self.few = few
        self.most = most
        self.sides = geometry.rows, geometry.columns
        self.writer = GridWriter(geometry.op, THREADS)
        self.dtype: DType = geometry.op.accumulator
        self.limits = self.writer.size(geometry.rows, "m"), self.writer.size(geometry.columns, "n")
        self.inner = self.writer.size(geometry.inner, "inner")

    def lower(self) -> Lowered:
        geometry, writer = self.geometry, self.writer
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        block, *batch = writer.unravel_tile([0, *counts])
        operands = geometry.operands(writer, batch, geometry.k_tiles(1))
        every, long = product(geometry.batch), self.sides[1 - self.few]
        blocks = self.gpu.occupancy.blocks
        shape = _shape(operands[1 - self.few], long, every, geometry.inner, blocks)
        share_out = self._one_each if shape.along_k else self._some_each
        position, leads, sums = share_out(operands, shape, block * shape.results)
        self._write_results(batch, position, leads, sums)
        work = shape.results * self.most * geometry.inner * self.gpu.costs.vector_product
        # A call without rows has nothing to do: all tiles have the few rows that there are.
        down = ceil_divide(self.sides[self.few], max(1, self.most))
        return writer.finish(every * down * ceil_divide(long, shape.results), nanoseconds(work))

    def _one_each(
        self, operands: Sequence[Operand], shape: _Shape, first: Expr
    ) -> tuple[Expr, Expr, list[Expr]]:
        """One result for each thread; the threads that share it all get its sums.

        Returns the position along the long side, whether the thread writes there, and the sums by row.
        """
        apart, part = unravel(self.writer.thread, [shape.share] * 2)
        position = first + apart
        begin = part * shape.chunk
        own = minimum(position, self.limits[1 - self.few] + -1)
        sums = self._walk(operands, shape, own, begin)
        if shape.share > WARP:
            sums = [self.writer.block_reduce("add", sum) for sum in sums]
        else:
            sums = [self.writer.warp_reduce("add", sum, shape.share) for sum in sums]
        return position, part.equals(0), sums

    def _some_each(
        self, operands: Sequence[Operand], shape: _Shape, first: Expr
    ) -> tuple[Expr, Expr, list[Expr]]:
        """Several neighbouring results for each thread; in the end the first threads have one each."""
        thread = self.writer.thread
        part, apart = unravel(thread, [shape.apart] * 2)
        column = first + apart * shape.each
        own = minimum(column, self.limits[1 - self.few] + -shape.each)
        sums = self._walk(operands, shape, own, part)
        distance = shape.apart
        while distance < WARP:
            sums = [sum + shuffle_xor(sum, distance) for sum in sums]
            distance *= 2
        leads = thread < shape.results
        return first + thread, leads, self._of_all_warps(shape, sums)

    def _of_all_warps(self, shape: _Shape, sums: Sequence[Expr]) -> list[Expr]:
        """The sums of the warps added up through shared memory; thread i gets those of result i."""
        writer, rows, results = self.writer, self.most, shape.results
        warps = THREADS // WARP
        partial = writer.shared(warps * rows * results, self.dtype)
        warp, lane = unravel(writer.thread, [WARP] * 2)
        start = warp * (rows * results) + lane * shape.each
        with when(lane < shape.apart):
            for position, sum in enumerate(sums):
                row, k = divmod(position, shape.each)
                partial[start + (row * results + k)] = sum
        writer.barrier()
        own = minimum(writer.thread, results - 1)
        totals: list[Expr] = []
        for row in range(rows):
            total = constant(writer.emit, 0, self.dtype)
            for other in range(warps):
                total = total + partial[own + (other * rows + row) * results]
            totals.append(total)
        return totals

    # The walk along k.

    def _walk(
        self, operands: Sequence[Operand], shape: _Shape, own: Expr, begin: Expr
    ) -> list[Expr]:
        """The thread's sums by row, for its results from `own` on, over its chunks of k from `begin` on."""
        emit = self.writer.emit
        rows, matrix = operands[self.few], operands[1 - self.few]
        sums = [constant(emit, 0, self.dtype)] * (self.most * shape.each)

        def chunks(starts: Sequence[Expr], sums: list[Expr]) -> list[Expr]:
            loaded = [self._load(matrix, shape, start, own, shape.chunk) for start in starts]
            for start, chunk_elements in zip(starts, loaded, strict=True):
                sums = self._add(rows, shape, start, chunk_elements, sums)
            return sums

        def several(start: Expr, carried: list[Expr]) -> list[Expr]:
            starts = [start + k * shape.step for k in range(CHUNKS_IN_FLIGHT)]
            advance = start + CHUNKS_IN_FLIGHT * shape.step
            return [advance, *chunks(starts, carried[1:])]

        def one(start: Expr, sums: list[Expr]) -> list[Expr]:
            return chunks([start], sums)

        # Where the last of several chunks begins within k, all of them are within.
        limit = self.inner + -(CHUNKS_IN_FLIGHT - 1) * shape.step
        span = CHUNKS_IN_FLIGHT * shape.step
        begin, *sums = iterate(emit, begin, limit, [begin, *sums], several, span)
        return iterate(emit, begin, self.inner, sums, one, shape.step)

    def _add(
        self,
        operand: Operand,
        shape: _Shape,
        start: Expr,
        chunk_elements: Sequence[Expr],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """The sums with the products of a chunk of the matrix, which begins at `start` along k."""
        totals: list[Expr] = []
        for row in range(self.most):
            own = sums[row * shape.each : (row + 1) * shape.each]
            count = shape.chunk if shape.along_k else 1
            factors = self._load(operand, shape, start, self._row(row), count)
            if shape.along_k:
                (total,) = own
                for factor, other in zip(factors, chunk_elements, strict=True):
                    total = fma(factor, other, total)
                totals.append(total)
            else:
                (factor,) = factors
                pairs = zip(chunk_elements, own, strict=True)
                totals += [fma(factor, other, sum) for other, sum in pairs]
        return totals

    def _row(self, row: int) -> Expr:
        """One of the few rows; those beyond the last are computed as the last one, and not written."""
        row_index = index(self.writer.emit, row)
        if isinstance(self.sides[self.few], int):
            return row_index
        return minimum(row_index, self.limits[self.few] + -1)

    def _load(
        self, operand: Operand, shape: _Shape, start: Expr, side: Expr, count: int
    ) -> list[Expr]:
        """`count` neighbouring elements of an operand, along k or the side as in chunks of the matrix."""
        is_vector = operand.whole and operand.along_k == shape.along_k
        if count > 1 and not is_vector:
            starts = [start + k for k in range(count)]
            return [self._load(operand, shape, each, side, 1)[0] for each in starts]
        offset, _ = operand.locate([start], side, 0)
        array = operand.array
        loaded = [array[offset]] if count == 1 else load_several(array, offset, count)
        return [value.cast(self.dtype) for value in loaded]

    # Results.

    def _write_results(
        self, batch: Sequence[Expr], position: Expr, leads: Expr, sums: Sequence[Expr]
    ) -> None:
        """Apply the epilogue to the finished sums of a result, in the thread that leads."""
        op, writer = self.geometry.op, self.writer
        body = epilogue_body(op, writer, 1)
        for k, sum in enumerate(sums):
            indices = [index(writer.emit, k), position]
            row, column = indices if self.few == 0 else indices[::-1]
            with when(leads & (row < self.limits[0]) & (column < self.limits[1])):
                domain_index = self.geometry.domain_index(writer, batch, row, column)
                write_results(op, body, writer, [domain_index], [sum])
