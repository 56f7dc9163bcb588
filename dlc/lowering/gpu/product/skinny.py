"""A product for a GPU of which one operand has a few rows: the other one is read once, 16 bytes at a time.

With one row a product is as fast as memory gives its matrix, so all threads read parts of that. Threads of
a block share k out: each adds up the products of its part, for some neighbouring results or for one, and
what they have is combined in a fixed tree. The results along the long side of the matrix are spread over
as many blocks as a GPU has cores, if there are so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Expr, constant, fma, index, minimum
from dlc.dialects.simt import WARP
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.types import DType
from dlc.lowering.gpu.product.operands import Geometry, Source
from dlc.lowering.gpu.product.results import write_results
from dlc.lowering.gpu.writer import GridWriter, load_several, shuffle_xor, when
from dlc.lowering.kernel_code.epilogue import epilogue_body
from dlc.lowering.kernel_code.words import iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS, SECTOR, GpuTarget
from dlc.target.work import nanoseconds

THREADS = 256
TOGETHER = 4
"""Pieces of the matrix that a thread loads before it multiplies any of them."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a block shares its results out: `share` threads have the same ones, and parts of k."""

    along_k: bool
    """Whether a piece of the matrix is some numbers along k, for one result; else it is for several."""
    group: int
    """Elements of a piece."""
    share: int

    @property
    def apart(self) -> int:
        """Threads that have other results."""
        return THREADS // self.share

    @property
    def each(self) -> int:
        """Results of a thread."""
        return 1 if self.along_k else self.group

    @property
    def results(self) -> int:
        """Results of the block along the long side."""
        return self.apart * self.each

    @property
    def step(self) -> int:
        """Numbers along k of which the threads have a piece each."""
        return self.share * (self.group if self.along_k else 1)


def _shape(source: Source, long: Size, batch: Size, inner: Size, blocks: int) -> _Shape:
    """How the results along the long side are shared out, the matrix being read from this source.

    So many blocks keep the GPU busy.
    """
    size = source.dtype.bytes
    group = ACCESS // size if source.whole else 1
    count = long * batch
    if source.along_k:
        # A warp has a result, the whole block where these are few and long, fewer threads where short.
        if isinstance(count, int) and count <= 2 * blocks and _is_long(inner, THREADS * group):
            return _Shape(True, group, THREADS)
        share = WARP
        while share > 1 and isinstance(inner, int) and (share // 2) * group >= inner:
            share //= 2
        return _Shape(True, group, share)
    apart, least = WARP, max(1, SECTOR // (group * size))
    while apart > least and isinstance(count, int) and count < blocks * apart * group:
        apart //= 2
    return _Shape(False, group, THREADS // apart)


def _is_long(inner: Size, least: int) -> bool:
    """Whether k has so many steps, or perhaps any number."""
    return not isinstance(inner, int) or inner >= least


class VectorProduct:
    """A product in the making, of which axis `few` of the result, 0 or 1, has up to `most` rows."""

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
        block, *batch = unravel(writer.tile, [0, *counts])
        sources = geometry.sources(writer, batch, geometry.strips(1))
        every, long = product(geometry.batch), self.sides[1 - self.few]
        blocks = self.gpu.occupancy.blocks
        shape = _shape(sources[1 - self.few], long, every, geometry.inner, blocks)
        share_out = self._one_each if shape.along_k else self._some_each
        place, leads, sums = share_out(sources, shape, block * shape.results)
        self._finish(batch, place, leads, sums)
        work = shape.results * self.most * geometry.inner * self.gpu.costs.vector_product
        # A call without rows has nothing to do: all tiles have the few rows that there are.
        down = ceil_divide(self.sides[self.few], max(1, self.most))
        return writer.finish(every * down * ceil_divide(long, shape.results), nanoseconds(work))

    def _one_each(
        self, sources: Sequence[Source], shape: _Shape, first: Expr
    ) -> tuple[Expr, Expr, list[Expr]]:
        """Sums for one result of a thread, which all that share it have in the end.

        Where the result is, whether the thread is to write it, and the sums by rows.
        """
        apart, part = unravel(self.writer.thread, [shape.share] * 2)
        place = first + apart
        begin = part * shape.group
        own = minimum(place, self.limits[1 - self.few] + -1)
        sums = self._walk(sources, shape, own, begin)
        if shape.share > WARP:
            sums = [self.writer.block_reduce("add", sum) for sum in sums]
        else:
            sums = [self.writer.warp_reduce("add", sum, shape.share) for sum in sums]
        return place, part.equals(0), sums

    def _some_each(
        self, sources: Sequence[Source], shape: _Shape, first: Expr
    ) -> tuple[Expr, Expr, list[Expr]]:
        """The same for neighbouring results: in the end the first threads have one each."""
        thread = self.writer.thread
        part, apart = unravel(thread, [shape.apart] * 2)
        column = first + apart * shape.each
        own = minimum(column, self.limits[1 - self.few] + -shape.each)
        sums = self._walk(sources, shape, own, part)
        distance = shape.apart
        while distance < WARP:
            sums = [sum + shuffle_xor(sum, distance) for sum in sums]
            distance *= 2
        leads = thread < shape.results
        return first + thread, leads, self._of_all_warps(shape, sums)

    def _of_all_warps(self, shape: _Shape, sums: Sequence[Expr]) -> list[Expr]:
        """The sums of the warps added up: a thread gets those of the result that has its number."""
        writer, rows, results = self.writer, self.most, shape.results
        warps = THREADS // WARP
        partial = writer.shared(warps * rows * results, self.dtype)
        warp, lane = unravel(writer.thread, [WARP] * 2)
        start = warp * (rows * results) + lane * shape.each
        with when(lane < shape.apart):
            for place, sum in enumerate(sums):
                row, k = divmod(place, shape.each)
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

    def _walk(self, sources: Sequence[Source], shape: _Shape, own: Expr, begin: Expr) -> list[Expr]:
        """The thread's sums, row by row, for its results from `own` on; it has pieces from `begin` on."""
        emit = self.writer.emit
        rows, matrix = sources[self.few], sources[1 - self.few]
        sums = [constant(emit, 0, self.dtype)] * (self.most * shape.each)

        def pieces(starts: Sequence[Expr], sums: list[Expr]) -> list[Expr]:
            loaded = [self._load(matrix, shape, start, own, shape.group) for start in starts]
            for start, piece in zip(starts, loaded, strict=True):
                sums = self._add(rows, shape, start, piece, sums)
            return sums

        def several(start: Expr, carried: list[Expr]) -> list[Expr]:
            starts = [start + k * shape.step for k in range(TOGETHER)]
            following = start + TOGETHER * shape.step
            return [following, *pieces(starts, carried[1:])]

        def one(start: Expr, sums: list[Expr]) -> list[Expr]:
            return pieces([start], sums)

        # Where the last of several pieces begins inside, all of them are inside.
        limit = self.inner + -(TOGETHER - 1) * shape.step
        span = TOGETHER * shape.step
        begin, *sums = iterate(emit, begin, limit, [begin, *sums], several, span)
        return iterate(emit, begin, self.inner, sums, one, shape.step)

    def _add(
        self,
        source: Source,
        shape: _Shape,
        start: Expr,
        piece: Sequence[Expr],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """The sums with the products of a piece of the matrix, which begins at `start` along k."""
        totals: list[Expr] = []
        for row in range(self.most):
            own = sums[row * shape.each : (row + 1) * shape.each]
            count = shape.group if shape.along_k else 1
            factors = self._load(source, shape, start, self._row(row), count)
            if shape.along_k:
                (total,) = own
                for factor, other in zip(factors, piece, strict=True):
                    total = fma(factor, other, total)
                totals.append(total)
            else:
                (factor,) = factors
                pairs = zip(piece, own, strict=True)
                totals += [fma(factor, other, sum) for other, sum in pairs]
        return totals

    def _row(self, row: int) -> Expr:
        """One of the few rows; those beyond the last are computed as the last one, and not written."""
        place = index(self.writer.emit, row)
        if isinstance(self.sides[self.few], int):
            return place
        return minimum(place, self.limits[self.few] + -1)

    def _load(
        self, source: Source, shape: _Shape, start: Expr, side: Expr, count: int
    ) -> list[Expr]:
        """So many neighbours of an operand, along k or along the side, as pieces of the matrix are."""
        together = source.whole and source.along_k == shape.along_k
        if count > 1 and not together:
            starts = [start + k for k in range(count)]
            return [self._load(source, shape, each, side, 1)[0] for each in starts]
        place, _ = source.place([start], side, 0)
        array = source.array
        loaded = [array[place]] if count == 1 else load_several(array, place, count)
        return [value.cast(self.dtype) for value in loaded]

    # Results.

    def _finish(
        self, batch: Sequence[Expr], place: Expr, leads: Expr, sums: Sequence[Expr]
    ) -> None:
        """Apply the epilogue to the finished sums of a result, in the thread that leads."""
        op, writer = self.geometry.op, self.writer
        body = epilogue_body(op, writer, 1)
        for number, sum in enumerate(sums):
            along = [index(writer.emit, number), place]
            row, column = along if self.few == 0 else along[::-1]
            with when(leads & (row < self.limits[0]) & (column < self.limits[1])):
                where = self.geometry.place(writer, batch, row, column)
                write_results(op, body, writer, [where], [sum])
