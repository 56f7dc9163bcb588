"""`kernel.sort` for a GPU: a block sorts a row by comparing pairs in the order of a bitonic network.

The keys and the places that they come from are in shared memory if the row is short, else in the kernel's
scratch. Keys that are equal are ordered by their places, so the sort is stable; the row is filled up to a
power of two with places beyond its end, which come last. (K. Batcher, "Sorting networks and their
applications", 1968.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, kernels_in_order, loop, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX, POINTER, U8, DType, wide
from dlc.lowering.body import Body, Point
from dlc.lowering.lanes import Lane, Uniform, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.simt_writer import GridWriter, either, threads_for
from dlc.lowering.work import ceil_divide, nanoseconds

THREADS = 256
MAX_SHARED = 32 << 10
"""Bytes of shared memory for the keys and places of a row."""
PICOSECONDS = 500
"""Of one element, roughly, in each round; there are about 50."""


def lower_sort(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for sorted rows in destination form."""
    assert isinstance(op, kernels_in_order.Sort)
    return _Sort(op).lower()


@dataclass(frozen=True, slots=True)
class _Row:
    """Keys and the places they come from, and how many of both there are: a power of two."""

    keys: Value
    places: Value
    count: Value


class _Sort:
    def __init__(self, op: kernels_in_order.Sort) -> None:
        self.op = op
        type = kernel.array_type(op.inputs[0])
        self.shape, self.dtype, self.key = type.shape, type.dtype, wide(type.dtype)
        self.size: Size = self.shape[op.axis]
        self.outer = [extent for axis, extent in enumerate(self.shape) if axis != op.axis]
        self.writer = GridWriter(op, threads_for(self.size, 2, THREADS))
        self.body = Body(self.writer, {}, 1)

    def lower(self) -> Lowered:
        writer, emit, rows = self.writer, self.writer.emit, product(self.outer)
        extents = [writer.size(extent, "extent", k).value for k, extent in enumerate(self.outer)]
        others = writer.unravel_values(emit, writer.tile.value, extents, rows)
        self.length = writer.size(self.size, "length").value
        count = self._count(emit)
        each = self.key.bytes + INDEX.bytes
        cost = nanoseconds(self.size * 50 * PICOSECONDS)
        if isinstance(self.size, int) and _power(self.size) * each <= MAX_SHARED:
            room = _power(self.size)
            keys, places = (emit(simt.Shared(room, dtype)) for dtype in (self.key, INDEX))
            self._sort(emit, others, _Row(keys, places, count))
            return writer.finish(rows, cost)
        scratch = writer.block.add_argument(POINTER, "scratch")
        # A power of two is less than twice the length.
        room = ceil_divide(2 * self.size * each, 64) * 64
        start = emit(scalar.Multiply(writer.tile.value, writer.size(room, "room").value))
        places = emit(loop.Offset(scratch, start, U8))
        keys = emit(loop.Offset(places, count, INDEX))
        self._sort(emit, others, _Row(keys, places, count))
        return writer.finish(rows, cost, rows * room, (scratch,))

    def _count(self, emit: Builder) -> Value:
        """The smallest power of two that is not below the length; 0 of a row without elements."""

        def below(inside: Builder, values: Sequence[Value]) -> Value:
            return inside(scalar.Compare(values[0], self.length, "lt"))

        def double(inside: Builder, values: Sequence[Value]) -> Sequence[Value]:
            return [inside(scalar.Add(values[0], values[0]))]

        first = minimum(emit, index(emit, 1), self.length)
        (count,) = _while(emit, [first], below, double)
        return count

    def _sort(self, emit: Builder, others: Sequence[Value], row: _Row) -> None:
        """Read a row, sort it, and write what is wanted of it."""
        self._read(emit, others, row)
        emit.place(simt.Barrier())

        def more(inside: Builder, values: Sequence[Value]) -> Value:
            return inside(scalar.Compare(values[0], row.count, "le"))

        def merge(inside: Builder, values: Sequence[Value]) -> Sequence[Value]:
            (width,) = values
            self._merge(inside, row, width)
            return [inside(scalar.Add(width, width))]

        _while(emit, [index(emit, 2)], more, merge)
        self._write(emit, others, row)

    def _merge(self, emit: Builder, row: _Row, width: Value) -> None:
        """Make stretches of so many that rise and fall in turns."""
        two = index(emit, 2)

        def more(inside: Builder, values: Sequence[Value]) -> Value:
            return inside(scalar.Compare(values[0], index(inside, 0), "gt"))

        def round(inside: Builder, values: Sequence[Value]) -> Sequence[Value]:
            (apart,) = values
            pairs = inside(scalar.RawDivide(row.count, index(inside, 2)))

            def pair(deep: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
                self._order(deep, row, number, apart, width)
                return ()

            for_each(inside, self.writer.thread.value, pairs, self.writer.threads, (), pair)
            inside.place(simt.Barrier())
            return [inside(scalar.RawDivide(apart, index(inside, 2)))]

        _while(emit, [emit(scalar.RawDivide(width, two))], more, round)

    def _order(self, emit: Builder, row: _Row, number: Value, apart: Value, width: Value) -> None:
        """Bring a pair into the order of its stretch."""
        inside = emit(scalar.And(number, emit(scalar.Subtract(apart, index(emit, 1)))))
        low = emit(scalar.Subtract(emit(scalar.Add(number, number)), inside))
        high = emit(scalar.Add(low, apart))
        keys = [emit(loop.Load(row.keys, at, self.key)) for at in (low, high)]
        places = [emit(loop.Load(row.places, at, INDEX)) for at in (low, high)]
        rises = emit(scalar.Compare(emit(scalar.And(low, width)), index(emit, 0), "eq"))
        ordered = self._comes_first(emit, keys, places)
        wrong = emit(scalar.Compare(ordered, rises, "ne"))

        def swap(deep: Builder) -> None:
            for room, values in ((row.keys, keys), (row.places, places)):
                deep.place(loop.Store(values[1], room, low))
                deep.place(loop.Store(values[0], room, high))

        either(emit, wrong, swap)

    def _comes_first(self, emit: Builder, keys: Sequence[Value], places: Sequence[Value]) -> Value:
        """Whether the first of two is to come first; places differ, and those beyond the row come last."""
        by_place = emit(scalar.Compare(places[0], places[1], "lt"))
        less = self._is_before(emit, keys[0], keys[1])
        more = self._is_before(emit, keys[1], keys[0])
        equal = emit(scalar.And(by_place, emit(scalar.Not(more))))
        by_key = emit(scalar.Or(less, equal))
        farther = emit(scalar.Maximum(places[0], places[1]))
        both_real = emit(scalar.Compare(farther, self.length, "lt"))
        return emit(scalar.Select(both_real, by_key, by_place))

    def _is_before(self, emit: Builder, one: Value, other: Value) -> Value:
        """Whether a key comes strictly before another; NaN is above all numbers."""
        test = emit(scalar.Compare(one, other, "gt" if self.op.descending else "lt"))
        if not self.key.is_float:
            return test
        low, high = (other, one) if self.op.descending else (one, other)
        nan = emit(scalar.Compare(high, high, "ne"))
        number = emit(scalar.Compare(low, low, "eq"))
        return emit(scalar.Or(test, emit(scalar.And(nan, number))))

    # Rows in memory.

    def _at(self, others: Sequence[Value], along: Value) -> list[Lane]:
        axis = self.op.axis
        return [Uniform(value) for value in (*others[:axis], along, *others[axis:])]

    def _load(self, emit: Builder, view: int, place: Sequence[Lane], dtype: DType) -> Value:
        return in_lanes(emit, self.body.load(Point(emit, 1, {}), view, place, dtype), 1)

    def _read(self, emit: Builder, others: Sequence[Value], row: _Row) -> None:
        """The keys of a row, each with its place; beyond its end the last one again."""
        last = emit(scalar.Subtract(self.length, index(emit, 1)))

        def one(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            place = self._at(others, minimum(inside, k, last))
            key = self._load(inside, 0, place, self.dtype)
            if self.key is not self.dtype:
                key = inside(scalar.Cast(key, self.key))
            inside.place(loop.Store(key, row.keys, k))
            inside.place(loop.Store(k, row.places, k))
            return ()

        for_each(emit, self.writer.thread.value, row.count, self.writer.threads, (), one)

    def _write(self, emit: Builder, others: Sequence[Value], row: _Row) -> None:
        """All inputs in the order that was found."""
        reads = len(self.op.inputs)

        def one(inside: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            where = inside(loop.Load(row.places, k, INDEX))
            for view, value in enumerate(self.op.inputs):
                dtype = kernel.array_type(value).dtype
                found = self._load(inside, view, self._at(others, where), dtype)
                pointer, strides = (
                    self.writer.pointers[reads + view],
                    self.body.strides(reads + view),
                )
                place = self._at(others, k)
                self.body.store(Point(inside, 1, {}), Uniform(found), pointer, place, strides)
            return ()

        count = self.writer.size(self.op.count, "count").value
        for_each(emit, self.writer.thread.value, count, self.writer.threads, (), one)


def _power(size: int) -> int:
    """The smallest power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()


def _while(
    emit: Builder,
    initial: Sequence[Value],
    test: Callable[[Builder, Sequence[Value]], Value],
    body: Callable[[Builder, Sequence[Value]], Sequence[Value]],
) -> tuple[Value, ...]:
    """Go on as long as a test holds of the carried values."""
    types = [value.type for value in initial]
    condition, work = Block(types), Block(types)
    inside = Builder(condition, emit.location)
    inside.place(loop.Yield([test(inside, condition.arguments)]))
    inside = Builder(work, emit.location)
    inside.place(loop.Yield(body(inside, work.arguments)))
    return emit.all(loop.While(initial, condition, work))
