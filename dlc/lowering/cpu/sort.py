"""`kernel.sort` on a CPU: each row by itself, in the thread's scratch.

The words of a row are sorted by counting the words before each one if the row is short, else by digits.
Where few of many are wanted, only the words better than all of those found so far are kept, and registers
without a better one are passed over. The results are
gathered by the places of the sorted words, so they keep their bits, and rows have the same results on any
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, broadcast, constant, minimum, reduce_lanes
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, INDEX, POINTER, U32, U64, DType, VectorType
from dlc.lowering.cpu.radix_sort import Digits, radix_sort
from dlc.lowering.cpu.sort_words import PLACE_BITS, Words, key_dtype, ordered_bits
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours
from dlc.lowering.kernel_code.words import (
    either,
    for_each,
    iterate,
    repeat_while,
    unravel,
    whole_registers,
)
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import tile_rows, tiles

SHORT = 64
"""Up to this length counting the words before each word is faster than sorting by digits."""
FEW = 1024
"""The most elements for which the others are not sorted."""
SHARE = 4
"""A selection pays if the row has at least this many times as many elements."""
ROOM = 128
"""The least number of words among which a selection keeps the best."""


def lower_sort(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a sort in destination form."""
    assert isinstance(op, kernel.Sort)
    return _Sort(op, cpu_of(context.options)).lower()


def selects(count: Size, length: Size) -> bool:
    """Whether the first `count` of `length` elements are found without sorting the others."""
    if not isinstance(count, int) or count > FEW:
        return False
    return not isinstance(length, int) or length >= max(SHARE * count, 2 * SHORT)


class _Sort:
    def __init__(self, op: kernel.Sort, cpu: CpuTarget) -> None:
        self.op = op
        self.costs = cpu.costs
        self.writer = Writer(op)
        type = kernel.array_type(op.inputs[0])
        self.shape, self.dtype = type.shape, type.dtype
        self.size = self.shape[op.axis]
        self.length = self.writer.size(self.size, "length")
        self.body = Body(self.writer, {}, 1)
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.scratch = Pointer(self.writer.emit, argument, INDEX)
        self.bytes: Size = 0
        self.selects = selects(op.count, self.size)
        assert isinstance(op.count, int) or not self.selects
        room = max(ROOM, 4 * op.count) if self.selects and isinstance(op.count, int) else 0
        self.room: Size = room or self.size
        """The most words that are sorted at once."""
        self.key = key = key_dtype(self.dtype)
        is_row_contiguous = self.writer.views[0].strides[op.axis] == 1
        self.lanes = cpu.lanes(key) if is_row_contiguous and self.dtype is not BOOL else 1
        """Elements that a selection compares at once."""
        start = PLACE_BITS if key.bits <= PLACE_BITS else 0
        self.digits = Digits.of(key.bits, start, self.room)
        self.is_short = isinstance(self.size, int) and self.size <= SHORT

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        outer = [extent for axis, extent in enumerate(self.shape) if axis != op.axis]
        work = self._work()
        per_tile = tile_rows(product(outer), work, self.costs)
        source, target = self._words(), self._words()
        counters = self._allocate(0 if self.is_short else self.digits.counters, U32)
        height = writer.size(per_tile, "rows_per_tile")
        rows = writer.size(product(outer), "rows")
        lower = writer.first * height
        upper = minimum(writer.last * height, rows)
        extents = [writer.size(extent, "extent", k) for k, extent in enumerate(outer)]
        with for_each(writer.emit, lower, upper) as number:
            row = _Row(self, unravel(number, extents) if extents else [])
            row.write(row.sorted(source, target, counters))
        count, cost = tiles(product(outer), per_tile, work)
        return writer.finish(count, cost, self.bytes, (self.scratch.value,))

    def _work(self) -> Size:
        """Picoseconds for a row: reading, counting, a pass for each digit, and writing are about alike."""
        passes = 2 if self.selects else 3 + self.digits.count
        return self.size * self.costs.sorted_element * passes

    def _words(self) -> Words:
        keys = self._allocate(self.room, U64)
        return Words(keys, None if self.digits.start else self._allocate(self.room, INDEX))

    def _allocate(self, count: Size, dtype: DType) -> Pointer:
        """An array in the scratch; one more element than asked for, so that the first always exists."""
        start = self.writer.size(self.bytes, "scratch", len(self.writer.emit.block))
        needed_bytes = (count + 1) * dtype.bytes
        self.bytes = self.bytes + ceil_divide(needed_bytes, 64) * 64
        return self.scratch.skip(start).of(dtype)


@dataclass(frozen=True, slots=True)
class _Row:
    """The sort of one row, whose index along the other axes is `outer`."""

    sort: _Sort
    outer: list[Expr]

    def _elements(self, along: Lane) -> list[Lane]:
        axis, outer = self.sort.op.axis, [Uniform(place) for place in self.outer]
        return [*outer[:axis], along, *outer[axis:]]

    def _keys(self, place: Expr, lanes: int) -> Expr:
        """The keys of `lanes` elements from a place on."""
        elements = self._elements(neighbours(place, lanes))
        loaded = in_lanes(self.sort.body.load(Point(lanes, {}), 0, elements), lanes)
        return ordered_bits(loaded, descending=self.sort.op.descending)

    def _read(self, target: Words, place: Expr, at: Expr) -> None:
        """Write the word of the element at a place."""
        target.put(at, self._keys(place, 1), place)

    def sorted(self, source: Words, target: Words, counters: Pointer) -> Words:
        """Read the row and sort it, or as much of it as is wanted."""
        sort = self.sort
        if sort.selects:
            return self._selected(source, target, counters)
        with for_each(sort.writer.emit, 0, sort.length) as k:
            self._read(source, k, k)
        return self._in_order(sort.length, source, target, counters)

    def _in_order(self, length: Expr, source: Words, target: Words, counters: Pointer) -> Words:
        if self.sort.is_short:
            _sort_by_rank(length, source, target)
            return target
        return radix_sort(length, source, target, counters, self.sort.digits)

    def write(self, words: Words) -> None:
        """Write all inputs in the sorted order."""
        sort, point = self.sort, Point(1, {})
        reads = len(sort.op.inputs)
        count = sort.writer.size(sort.op.count, "count")
        with for_each(sort.writer.emit, 0, count) as k:
            place = words.place(k)
            for view in range(reads):
                lane = sort.body.load(point, view, self._elements(Uniform(place)))
                sort.body.store_in(point, lane, reads + view, self._elements(Uniform(k)))

    # Selection ------------------------------------------------------------------------------------

    def _selected(self, source: Words, target: Words, counters: Pointer) -> Words:
        """The best `count` words in order.

        Words better than the last of the best so far are appended to them; when the room is nearly full
        they are sorted, and the best are kept.
        """
        sort, emit = self.sort, self.sort.writer.emit
        room, count = sort.room, sort.op.count
        assert isinstance(room, int) and isinstance(count, int)

        def keep_best(kept: Expr) -> list[Expr]:
            ordered = self._few_in_order(kept, source, target, counters)
            with for_each(emit, 0, count) as k:
                source.copy(ordered, k, k)
            return [constant(emit, count, INDEX), source.keys[count - 1]]

        def read_some(carried: list[Expr]) -> list[Expr]:
            place, kept, limit = carried
            end = minimum(place + (room - kept), sort.length)
            more = self._append_better(place, end, kept, limit, source)
            nearly_full = more >= room - room // SHARE
            return [end, *either(nearly_full, lambda: keep_best(more), lambda: [more, limit])]

        if sort.key is U32 and sort.lanes >= max(count, 2):
            none = constant(emit, 0, INDEX)
            carried = [none, none, self._limit_by_lanes(count, source, target)]
        else:
            first = minimum(constant(emit, room, INDEX), sort.length)
            with for_each(emit, 0, first) as k:
                self._read(source, k, k)
            unlimited = [first, constant(emit, 0, U64)]
            kept, limit = either(first < sort.length, lambda: keep_best(first), lambda: unlimited)
            carried = [first, kept, limit]
        _, kept, _ = repeat_while(emit, carried, lambda now: now[0] < sort.length, read_some)
        return self._few_in_order(kept, source, target, counters)

    def _limit_by_lanes(self, count: int, source: Words, target: Words) -> Expr:
        """A word behind at least `count` words of the row, or behind all.

        The best key of each lane, over all registers of the row, is that of another element, so as many
        elements as there are lanes are as good as the worst of these keys, and `count` as the one there.
        """
        emit, lanes, length = self.sort.writer.emit, self.sort.lanes, self.sort.length

        def better(first: Expr, carried: list[Expr]) -> list[Expr]:
            return [minimum(carried[0], self._keys(first, lanes))]

        worst = constant(emit, (1 << U32.bits) - 1, VectorType(U32, lanes))
        whole = whole_registers(constant(emit, 0, INDEX), length, lanes)
        (best,) = iterate(emit, 0, whole, [worst], better, lanes)
        keys = target.keys.of(U32)
        keys.store(0, best)
        for lane in range(lanes):
            source.put(lane, keys[lane], constant(emit, lane, INDEX))
        _sort_by_rank(constant(emit, lanes, INDEX), source, target)
        return target.keys[count - 1] | (1 << PLACE_BITS) - 1

    def _few_in_order(self, count: Expr, source: Words, target: Words, counters: Pointer) -> Words:
        """Sort words whose number the row decides."""

        def by_rank() -> list[Expr]:
            _sort_by_rank(count, source, target)
            return target.pointers()

        def by_digits() -> list[Expr]:
            return radix_sort(count, source, target, counters, self.sort.digits).pointers()

        return source.carried(either(count <= SHORT, by_rank, by_digits))

    def _append_better(
        self, start: Expr, end: Expr, kept: Expr, limit: Expr, target: Words
    ) -> Expr:
        """Write the words of elements behind those kept, and keep the better ones; returns their number.

        Every word is written, and the next one over it unless it is kept: there is no branch to predict.
        But first a register of elements is compared at once: most have none that is better.
        """
        emit, lanes = start.emit, self.sort.lanes

        def append(place: Expr, carried: list[Expr]) -> list[Expr]:
            (at,) = carried
            self._read(target, place, at)
            return [at + (target.keys[at] < limit).cast(INDEX)]

        if lanes == 1:
            return iterate(emit, start, end, [kept], append)[0]
        key = limit >> PLACE_BITS if target.places is None else limit
        least = broadcast(key.cast(self.sort.key), lanes)

        def append_some(first: Expr, carried: list[Expr]) -> list[Expr]:
            better = reduce_lanes("or", self._keys(first, lanes) <= least)
            last = first + lanes
            return either(
                better, lambda: iterate(emit, first, last, carried, append), lambda: carried
            )

        whole = whole_registers(start, end, lanes)
        some = iterate(emit, start, whole, [kept], append_some, lanes)
        return iterate(emit, whole, end, some, append)[0]


def _sort_by_rank(length: Expr, source: Words, target: Words) -> None:
    """Move each word behind as many words as are before it; of equal ones, the earlier is."""
    emit = length.emit
    with for_each(emit, 0, length) as k:
        key = source.keys[k]

        def count_not_after(j: Expr, carried: list[Expr], key: Expr = key) -> list[Expr]:
            return [carried[0] + (source.keys[j] <= key).cast(INDEX)]

        def count_before(j: Expr, carried: list[Expr], key: Expr = key) -> list[Expr]:
            return [carried[0] + (source.keys[j] < key).cast(INDEX)]

        (rank,) = iterate(emit, 0, k, [0], count_not_after)
        (rank,) = iterate(emit, k + 1, length, [rank], count_before)
        target.copy(source, k, rank)
