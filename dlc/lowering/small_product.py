"""A product for a GPU in any dtype: every element is one sum in order of k.

A block computes a square tile of the result. Step by step along k its threads bring a strip of both
operands into shared memory, and each thread adds up a few elements of the tile in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import loop, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import ceil_divide, product
from dlc.lowering.epilogue import epilogue_body
from dlc.lowering.formula import convert, number
from dlc.lowering.loop_words import for_each, index, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.product_result import write_results
from dlc.lowering.product_sources import Geometry, Source, State, below, both
from dlc.lowering.shared_lines import if_within
from dlc.lowering.simt_writer import GridWriter, nothing
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
        writer, emit = self.writer, self.writer.emit
        down, across = (
            ceil_divide(self.geometry.rows, SIDE),
            ceil_divide(self.geometry.columns, SIDE),
        )
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.geometry.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = unravel(emit, writer.tile, counts)
        first = [emit(scalar.Multiply(place, index(emit, SIDE))) for place in (i, j)]
        y, x = unravel(emit, writer.thread, [index(emit, ACROSS)] * 2)
        sums = self._sums(emit, batch, first, y, x)
        self._finish(emit, batch, first, y, x, sums)
        work = SIDE * SIDE * self.geometry.inner * self.gpu.costs.small_product
        return writer.finish(product(self.geometry.batch) * down * across, nanoseconds(work))

    def _sums(
        self, emit: Builder, batch: Sequence[Value], first: Sequence[Value], y: Value, x: Value
    ) -> list[Value]:
        """The sums of the thread, row by row."""
        rooms = [emit(simt.Shared(STRIP * PITCH, self.dtype)) for _ in range(2)]
        strips = self.geometry.strips(STRIP)
        sources = self.geometry.sources(self.writer, emit, batch, strips)

        def strip(deep: Builder, _: Value, carried: list[Value]) -> Sequence[Value]:
            state, sums = carried[: -len(zeros)], carried[-len(zeros) :]
            for room, source, low in zip(rooms, sources, first, strict=True):
                self._bring(deep, room, source, low, state)
            deep.place(simt.Barrier())
            sums = self._multiply(deep, rooms, y, x, sums)
            deep.place(simt.Barrier())
            return [*strips.following(self.writer, deep, state), *sums]

        zeros = [number(emit, 0, self.dtype)] * (EACH * EACH)
        count = self.writer.size(strips.count, "strips")
        start = [*strips.start(emit), *zeros]
        return list(for_each(emit, index(emit, 0), count, 1, start, strip))[-len(zeros) :]

    def _bring(self, emit: Builder, room: Value, source: Source, low: Value, state: State) -> None:
        """Bring a strip of an operand into shared memory: `[k, side]`, zeros beyond its ends."""
        for part in range(SIDE * STRIP // THREADS):
            number = emit(scalar.Add(self.writer.thread, index(emit, part * THREADS)))
            fast = index(emit, STRIP if source.along_k else SIDE)
            slow, quick = unravel(emit, number, [fast, fast])
            s, k = (slow, quick) if source.along_k else (quick, slow)
            place, within = source.place(emit, state, emit(scalar.Add(low, s)), k)
            value = if_within(emit, within, source.pointer, place, source.dtype)
            there = emit(scalar.Add(emit(scalar.Multiply(k, index(emit, PITCH))), s))
            emit.place(loop.Store(convert(emit, value, self.dtype), room, there))

    def _multiply(
        self, emit: Builder, rooms: Sequence[Value], y: Value, x: Value, sums: list[Value]
    ) -> list[Value]:
        """Add the products of a strip."""

        def steps(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            for k in range(UNROLL):
                step = deep(scalar.Add(start, index(deep, k)))
                base = deep(scalar.Multiply(step, index(deep, PITCH)))
                rows, columns = (
                    [self._shared(deep, room, base, near, part) for part in range(EACH)]
                    for room, near in ((rooms[0], y), (rooms[1], x))
                )
                pairs = [(row, column) for row in rows for column in columns]
                carried = [
                    self._add(deep, *pair, sum) for pair, sum in zip(pairs, carried, strict=True)
                ]
            return carried

        return list(for_each(emit, index(emit, 0), index(emit, STRIP), UNROLL, sums, steps))

    def _shared(self, emit: Builder, room: Value, base: Value, near: Value, part: int) -> Value:
        place = emit(scalar.Add(base, emit(scalar.Add(near, index(emit, part * ACROSS)))))
        return emit(loop.Load(room, place, self.dtype))

    def _add(self, emit: Builder, lhs: Value, rhs: Value, sum: Value) -> Value:
        if self.dtype.is_float:
            return emit(scalar.Fma(lhs, rhs, sum))
        return emit(scalar.Add(emit(scalar.Multiply(lhs, rhs)), sum))

    def _finish(
        self,
        emit: Builder,
        batch: Sequence[Value],
        first: Sequence[Value],
        y: Value,
        x: Value,
        sums: Sequence[Value],
    ) -> None:
        """The epilogue for each sum of the thread that is inside of the result."""
        body = epilogue_body(self.geometry.op, self.writer, 1)
        limits = (
            self.writer.size(self.geometry.rows, "m"),
            self.writer.size(self.geometry.columns, "n"),
        )
        for position, sum in enumerate(sums):
            parts = divmod(position, EACH)
            row, column = (
                emit(scalar.Add(low, emit(scalar.Add(near, index(emit, part * ACROSS)))))
                for low, near, part in zip(first, (y, x), parts, strict=True)
            )
            within = both(emit, below(emit, row, limits[0]), below(emit, column, limits[1]))
            work = Block()
            inside = Builder(work, emit.location)
            places = self.geometry.place(self.writer, inside, batch, row, column)
            write_results(self.geometry.op, body, self.writer, inside, [places], [sum])
            inside.place(loop.Yield([]))
            emit.place(loop.If(within, work, nothing(emit)))
