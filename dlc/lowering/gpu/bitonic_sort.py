"""`kernel.sort` for a GPU by a bitonic sorting network (K. Batcher, "Sorting networks", 1968).

A block sorts a row. The keys and their original indices are in shared memory if the row is short, else in
the kernel's scratch. Equal keys are ordered by their indices, so the sort is stable; the row is padded to a
power of two with indices beyond its end, which come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, index, maximum, minimum, select
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX, POINTER, wide
from dlc.lowering.gpu.writer import GridWriter, threads_for
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.words import for_each, repeat_while, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget
from dlc.target.work import nanoseconds

THREADS = 256
ROUNDS = 50
"""Approximate number of compare-and-swap rounds of a row, for the cost."""


def lower_sort(op: kernel.Sort, context: Context) -> Lowered:
    """The function for a sort in destination form."""
    return _Sort(op, gpu_of(context.options)).lower()


@dataclass(frozen=True, slots=True)
class _Row:
    """The keys of a row and their original indices; `count`, a power of two, is the length with padding."""

    keys: Pointer
    indices: Pointer
    count: Expr


class _Sort:
    def __init__(self, op: kernel.Sort, gpu: GpuTarget) -> None:
        self.op = op
        type = kernel.array_type(op.inputs[0])
        self.shape, self.dtype, self.key = type.shape, type.dtype, wide(type.dtype)
        self.size: Size = self.shape[op.axis]
        self.outer = [extent for axis, extent in enumerate(self.shape) if axis != op.axis]
        self.gpu = gpu
        self.writer = GridWriter(op, threads_for(self.size, 2, THREADS))
        self.body = Body(self.writer, {}, 1)

    def lower(self) -> Lowered:
        writer, rows = self.writer, product(self.outer)
        extents = [writer.size(extent, "extent", k) for k, extent in enumerate(self.outer)]
        row_index = writer.unravel_tile(extents)
        self.length = writer.size(self.size, "length")
        count = self._count()
        pair_bytes = self.key.bytes + INDEX.bytes
        cost = nanoseconds(self.size * ROUNDS * self.gpu.costs.sorted_element)
        if (
            isinstance(self.size, int)
            and _power(self.size) * pair_bytes <= self.gpu.occupancy.row_bytes
        ):
            room = _power(self.size)
            keys, indices = writer.shared(room, self.key), writer.shared(room, INDEX)
            self._sort(row_index, _Row(keys, indices, count))
            return writer.finish(rows, cost)
        scratch = writer.block.add_argument(POINTER, "scratch")
        # A power of two is less than twice the length.
        room = ceil_divide(2 * self.size * pair_bytes, 64) * 64
        start = writer.tile * writer.size(room, "room")
        indices = Pointer(writer.emit, scratch, INDEX).skip(start)
        keys = (indices + count).of(self.key)
        self._sort(row_index, _Row(keys, indices, count))
        return writer.finish(rows, cost, rows * room, (scratch,))

    def _count(self) -> Expr:
        """The smallest power of two that is not below the length; 0 for an empty row."""
        emit = self.writer.emit
        first = minimum(index(emit, 1), self.length)
        (count,) = repeat_while(
            emit, [first], lambda count: count[0] < self.length, lambda count: [count[0] + count[0]]
        )
        return count

    def _sort(self, row_index: Sequence[Expr], row: _Row) -> None:
        """Read a row, sort it, and write the results."""
        self._read(row_index, row)
        self.writer.barrier()

        def merge(carried: list[Expr]) -> list[Expr]:
            (width,) = carried
            self._merge(row, width)
            return [width + width]

        repeat_while(self.writer.emit, [2], lambda width: width[0] <= row.count, merge)
        self._write(row_index, row)

    def _merge(self, row: _Row, width: Expr) -> None:
        """Merge to sorted sequences of `width` elements, alternately ascending and descending."""
        writer = self.writer

        def step(carried: list[Expr]) -> list[Expr]:
            (distance,) = carried
            pairs = row.count // 2
            with for_each(writer.emit, writer.thread, pairs, writer.threads) as number:
                self._order(row, number, distance, width)
            writer.barrier()
            return [distance // 2]

        repeat_while(writer.emit, [width // 2], lambda distance: distance[0] > 0, step)

    def _order(self, row: _Row, number: Expr, distance: Expr, width: Expr) -> None:
        """Compare and swap a pair in the direction of its sequence."""
        offset = number & (distance - 1)
        low = number + number - offset
        high = low + distance
        keys = row.keys[low], row.keys[high]
        indices = row.indices[low], row.indices[high]
        rises = (low & width).equals(0)
        with when(self._comes_first(keys, indices).differs(rises)):
            row.keys[low], row.keys[high] = keys[1], keys[0]
            row.indices[low], row.indices[high] = indices[1], indices[0]

    def _comes_first(self, keys: tuple[Expr, Expr], indices: tuple[Expr, Expr]) -> Expr:
        """Whether a pair is in order; the indices differ, and those of the padding come last."""
        by_index = indices[0] < indices[1]
        less = self._is_before(keys[0], keys[1])
        more = self._is_before(keys[1], keys[0])
        by_key = less | (by_index & ~more)
        both_exist = maximum(indices[0], indices[1]) < self.length
        return select(both_exist, by_key, by_index)

    def _is_before(self, one: Expr, other: Expr) -> Expr:
        """Whether a key is strictly before another; NaN is above all numbers."""
        descending = self.op.descending
        test = one > other if descending else one < other
        if not self.key.is_float:
            return test
        low, high = (other, one) if descending else (one, other)
        return test | (high.differs(high) & low.equals(low))

    # Rows in memory.

    def _element(self, row_index: Sequence[Expr], along: Expr) -> list[Lane]:
        axis = self.op.axis
        return [Uniform(place) for place in (*row_index[:axis], along, *row_index[axis:])]

    def _load(self, view: int, place: Sequence[Lane]) -> Expr:
        return in_lanes(self.body.load(Point(1, {}), view, place), 1)

    def _read(self, row_index: Sequence[Expr], row: _Row) -> None:
        """Read the keys of a row with their indices; the padding repeats the last key."""
        writer = self.writer
        last = self.length - 1
        with for_each(writer.emit, writer.thread, row.count, writer.threads) as k:
            key = self._load(0, self._element(row_index, minimum(k, last)))
            row.keys[k] = key.cast(self.key)
            row.indices[k] = k

    def _write(self, row_index: Sequence[Expr], row: _Row) -> None:
        """Write all inputs in the sorted order."""
        writer, reads = self.writer, len(self.op.inputs)
        count = writer.size(self.op.count, "count")
        with for_each(writer.emit, writer.thread, count, writer.threads) as k:
            source = row.indices[k]
            for view in range(reads):
                element = self._load(view, self._element(row_index, source))
                place = self._element(row_index, k)
                self.body.store_in(Point(1, {}), Uniform(element), reads + view, place)


def _power(size: int) -> int:
    """The smallest power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
