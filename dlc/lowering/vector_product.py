"""A product for a GPU of which one operand has a few rows: the other one is read once, 16 bytes at a time.

With one row a product is as fast as memory gives its matrix, so all threads read parts of that. Threads of
a block share k out: each adds up the products of its part, for some neighbouring results or for one, and
what they have is combined in a fixed tree. The results along the long side of the matrix are spread over
as many blocks as a GPU has cores, if there are so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import loop, scalar, simt
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.types import DType
from dlc.lowering.epilogue import epilogue_body
from dlc.lowering.formula import convert, number
from dlc.lowering.loop_words import for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.product_result import write_results
from dlc.lowering.product_sources import Geometry, Source, below, both
from dlc.lowering.shared_lines import multiple, plus
from dlc.lowering.simt_writer import GridWriter, either, when
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
        geometry, writer, emit = self.geometry, self.writer, self.writer.emit
        counts = [writer.size(size, "batch", k) for k, size in enumerate(geometry.batch)]
        block, *batch = unravel(emit, writer.tile, [index(emit, 0), *counts])
        sources = geometry.sources(writer, emit, batch, geometry.strips(1))
        every, long = product(geometry.batch), self.sides[1 - self.few]
        blocks = self.gpu.occupancy.blocks
        shape = _shape(sources[1 - self.few], long, every, geometry.inner, blocks)
        first = multiple(emit, block, shape.results)
        if shape.along_k:
            place, leads, sums = self._one_each(emit, sources, shape, first)
        else:
            place, leads, sums = self._some_each(emit, sources, shape, first)
        self._finish(emit, batch, place, leads, sums)
        work = shape.results * self.most * geometry.inner * self.gpu.costs.vector_product
        # A call without rows has nothing to do: all tiles have the few rows that there are.
        down = ceil_divide(self.sides[self.few], max(1, self.most))
        return writer.finish(every * down * ceil_divide(long, shape.results), nanoseconds(work))

    def _one_each(
        self, emit: Builder, sources: Sequence[Source], shape: _Shape, first: Value
    ) -> tuple[Value, Value, list[Value]]:
        """Sums for one result of a thread, which all that share it have in the end.

        Where the result is, whether the thread is to write it, and the sums by rows.
        """
        apart, part = unravel(emit, self.writer.thread, [index(emit, shape.share)] * 2)
        place = plus(emit, first, apart)
        begin = multiple(emit, part, shape.group)
        own = minimum(emit, place, plus(emit, self.limits[1 - self.few], -1))
        sums = self._walk(emit, sources, shape, own, begin)
        if shape.share > WARP:
            sums = [self.writer.together(emit, "add", sum) for sum in sums]
        else:
            sums = [self.writer.among(emit, "add", sum, shape.share) for sum in sums]
        return place, emit(scalar.Compare(part, index(emit, 0), "eq")), sums

    def _some_each(
        self, emit: Builder, sources: Sequence[Source], shape: _Shape, first: Value
    ) -> tuple[Value, Value, list[Value]]:
        """The same for neighbouring results: in the end the first threads have one each."""
        thread = self.writer.thread
        part, apart = unravel(emit, thread, [index(emit, shape.apart)] * 2)
        column = plus(emit, first, multiple(emit, apart, shape.each))
        own = minimum(emit, column, plus(emit, self.limits[1 - self.few], -shape.each))
        sums = self._walk(emit, sources, shape, own, part)
        distance = shape.apart
        while distance < WARP:
            sums = [emit(scalar.Add(sum, emit(simt.Exchange(sum, distance)))) for sum in sums]
            distance *= 2
        leads = emit(scalar.Compare(thread, index(emit, shape.results), "lt"))
        return plus(emit, first, thread), leads, self._of_all_warps(emit, shape, sums)

    def _of_all_warps(self, emit: Builder, shape: _Shape, sums: Sequence[Value]) -> list[Value]:
        """The sums of the warps added up: a thread gets those of the result that has its number."""
        warps, rows, results = THREADS // WARP, self.most, shape.results
        room = emit(simt.Shared(warps * rows * results, self.dtype))
        warp, lane = unravel(emit, self.writer.thread, [index(emit, WARP)] * 2)
        start = plus(emit, multiple(emit, warp, rows * results), multiple(emit, lane, shape.each))
        stores = [
            loop.Store(sum, room, plus(emit, start, row * results + k))
            for row in range(rows)
            for k, sum in enumerate(sums[row * shape.each : (row + 1) * shape.each])
        ]
        when(emit, emit(scalar.Compare(lane, index(emit, shape.apart), "lt")), *stores)
        emit.place(simt.Barrier())
        own = minimum(emit, self.writer.thread, index(emit, results - 1))
        found: list[Value] = []
        for row in range(rows):
            total = number(emit, 0, self.dtype)
            for other in range(warps):
                place = plus(emit, own, (other * rows + row) * results)
                total = emit(scalar.Add(total, emit(loop.Load(room, place, self.dtype))))
            found.append(total)
        return found

    # The walk along k.

    def _walk(
        self,
        emit: Builder,
        sources: Sequence[Source],
        shape: _Shape,
        own: Value,
        begin: Value,
    ) -> list[Value]:
        """The thread's sums, row by row, for its results from `own` on; it has pieces from `begin` on."""
        rows, matrix = sources[self.few], sources[1 - self.few]
        sums = [number(emit, 0, self.dtype)] * (self.most * shape.each)

        def pieces(deep: Builder, starts: Sequence[Value], sums: list[Value]) -> list[Value]:
            read = [self._read(deep, matrix, shape, start, own, shape.group) for start in starts]
            for start, piece in zip(starts, read, strict=True):
                sums = self._add(deep, rows, shape, start, piece, sums)
            return sums

        def several(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            starts = [plus(deep, start, k * shape.step) for k in range(TOGETHER)]
            following = plus(deep, start, TOGETHER * shape.step)
            return [following, *pieces(deep, starts, carried[1:])]

        def one(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            return pieces(deep, [start], carried)

        # Where the last of several pieces begins inside, all of them are inside.
        limit = plus(emit, self.inner, -(TOGETHER - 1) * shape.step)
        span = TOGETHER * shape.step
        begin, *sums = for_each(emit, begin, limit, span, [begin, *sums], several)
        return list(for_each(emit, begin, self.inner, shape.step, sums, one))

    def _add(
        self,
        emit: Builder,
        source: Source,
        shape: _Shape,
        start: Value,
        piece: Sequence[Value],
        sums: Sequence[Value],
    ) -> list[Value]:
        """The sums with the products of a piece of the matrix, which begins at `start` along k."""
        found: list[Value] = []
        for row in range(self.most):
            own = sums[row * shape.each : (row + 1) * shape.each]
            count = shape.group if shape.along_k else 1
            factors = self._read(emit, source, shape, start, self._row(emit, row), count)
            if shape.along_k:
                (total,) = own
                for pair in zip(factors, piece, strict=True):
                    total = self._plus(emit, *pair, total)
                found.append(total)
            else:
                (factor,) = factors
                pairs = zip(piece, own, strict=True)
                found += [self._plus(emit, factor, other, sum) for other, sum in pairs]
        return found

    def _plus(self, emit: Builder, one: Value, other: Value, sum: Value) -> Value:
        if self.dtype.is_float:
            return emit(scalar.Fma(one, other, sum))
        return emit(scalar.Add(emit(scalar.Multiply(one, other)), sum))

    def _row(self, emit: Builder, row: int) -> Value:
        """One of the few rows; those beyond the last are computed as the last one, and not written."""
        if isinstance(self.sides[self.few], int):
            return index(emit, row)
        return minimum(emit, index(emit, row), plus(emit, self.limits[self.few], -1))

    def _read(
        self,
        emit: Builder,
        source: Source,
        shape: _Shape,
        start: Value,
        side: Value,
        count: int,
    ) -> list[Value]:
        """So many neighbours of an operand, along k or along the side, as pieces of the matrix are."""
        together = source.whole and source.along_k == shape.along_k
        if count > 1 and not together:
            starts = [plus(emit, start, k) for k in range(count)]
            return [self._read(emit, source, shape, each, side, 1)[0] for each in starts]
        place, _ = source.place(emit, [start], side, index(emit, 0))
        if count == 1:
            found = [emit(loop.Load(source.pointer, place, source.dtype))]
        else:
            found = list(emit.all(simt.Load(source.pointer, place, source.dtype, count)))
        return [convert(emit, value, self.dtype) for value in found]

    # Results.

    def _finish(
        self,
        emit: Builder,
        batch: Sequence[Value],
        place: Value,
        leads: Value,
        sums: Sequence[Value],
    ) -> None:
        """Apply the epilogue to the finished sums of a result, in the thread that leads."""
        op, writer = self.geometry.op, self.writer
        body = epilogue_body(op, writer, 1)
        for number_of_row, sum in enumerate(sums):
            along = [index(emit, number_of_row), place]
            row, column = along if self.few == 0 else along[::-1]
            inside = [below(emit, row, self.limits[0]), below(emit, column, self.limits[1])]

            def write(
                deep: Builder, row: Value = row, column: Value = column, sum: Value = sum
            ) -> None:
                found = self.geometry.place(writer, deep, batch, row, column)
                write_results(op, body, writer, deep, [found], [sum])

            either(emit, both(emit, leads, *inside), write)
