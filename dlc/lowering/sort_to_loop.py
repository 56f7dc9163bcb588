"""`kernel.sort` as loops: each row's keys and places are merged from below in the thread's scratch.

A merge sort is stable and takes the same steps for any keys. The results are then read at the places that
were found, so they keep their bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, kernels_in_order, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX, POINTER, U8, DType, wide
from dlc.lowering.body import Body, Point
from dlc.lowering.lanes import Lane, Uniform, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, tile_rows, tiles

STEP = 3000
"""Picoseconds for one element in one round of merging."""
ROUNDS = 12
"""Rounds that a row of unknown length is taken to need."""


def lower_sort(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for sorted rows in destination form."""
    assert isinstance(op, kernels_in_order.Sort)
    return _Sort(op).lower()


@dataclass(frozen=True, slots=True)
class _Run:
    """Keys and the places they come from, in two arrays of the scratch."""

    keys: Value
    places: Value


class _Sort:
    def __init__(self, op: kernels_in_order.Sort) -> None:
        self.op = op
        self.writer = Writer(op)
        type = kernel.array_type(op.inputs[0])
        self.shape, self.dtype, self.key = type.shape, type.dtype, wide(type.dtype)
        self.length = self.writer.size(self.shape[op.axis], "length").value
        self.body = Body(self.writer, {}, 1)
        self.scratch = self.writer.block.add_argument(POINTER, "scratch")
        self.bytes: Size = 0

    def lower(self) -> Lowered:
        op, writer, emit = self.op, self.writer, self.writer.emit
        size = self.shape[op.axis]
        outer = [extent for axis, extent in enumerate(self.shape) if axis != op.axis]
        work = size * STEP * (size.bit_length() + 2 if isinstance(size, int) else ROUNDS)
        per_tile = tile_rows(work)
        runs = [_Run(self._room(k, self.key), self._room(2 + k, INDEX)) for k in range(2)]
        height, rows = writer.size(per_tile, "rows_per_tile").value, writer.size(product(outer), "rows").value
        lower = emit(scalar.Multiply(writer.first.value, height))
        upper = minimum(emit, emit(scalar.Multiply(writer.last.value, height)), rows)
        extents = [writer.size(extent, "extent", k).value for k, extent in enumerate(outer)]

        def row(inner: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            others = unravel(inner, number, extents) if extents else []
            self._read(inner, others, runs[0])
            self._write(inner, others, self._merge_all(inner, runs[0], runs[1]))
            return ()

        for_each(emit, lower, upper, 1, (), row)
        count, cost = tiles(product(outer), per_tile, work)
        return writer.finish(count, cost, self.bytes, (self.scratch,))

    def _room(self, number: int, dtype: DType) -> Value:
        """An array in the scratch for a row and one element more, which a merge may look at."""
        start = self.writer.size(self.bytes, "scratch", number).value
        room = (self.shape[self.op.axis] + 1) * dtype.bytes
        self.bytes = self.bytes + ceil_divide(room, 64) * 64
        return self.writer.emit(loop.Offset(self.scratch, start, U8))

    def _at(self, others: list[Value], along: Value) -> list[Lane]:
        axis = self.op.axis
        return [Uniform(v) for v in (*others[:axis], along, *others[axis:])]

    def _read(self, emit: Builder, others: list[Value], run: _Run) -> None:
        """The keys of a row, each with its place."""

        def one(inner: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            lane = self.body.load(Point(inner, 1, {}), 0, self._at(others, k), self.dtype)
            key = in_lanes(inner, lane, 1)
            if self.key is not self.dtype:
                key = inner(scalar.Cast(key, self.key))
            inner.place(loop.Store(key, run.keys, k))
            inner.place(loop.Store(k, run.places, k))
            return ()

        for_each(emit, index(emit, 0), self.length, 1, (), one)

    def _write(self, emit: Builder, others: list[Value], run: _Run) -> None:
        """All inputs in the order that was found."""
        reads = len(self.op.inputs)

        def one(inner: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            where = inner(loop.Load(run.places, k, INDEX))
            point = Point(inner, 1, {})
            for view, value in enumerate(self.op.inputs):
                dtype = kernel.array_type(value).dtype
                lane = self.body.load(point, view, self._at(others, where), dtype)
                pointer, strides = (
                    self.writer.pointers[reads + view],
                    self.body.strides(reads + view),
                )
                self.body.store(point, lane, pointer, self._at(others, k), strides)
            return ()

        count = self.writer.size(self.op.count, "count").value
        for_each(emit, index(emit, 0), count, 1, (), one)

    def _merge_all(self, emit: Builder, source: _Run, target: _Run) -> _Run:
        """Merge stretches of 1, 2, 4, ... until there is one; where it lies."""
        initial = [index(emit, 1), source.keys, source.places, target.keys, target.places]
        types = [value.type for value in initial]
        test, body = Block(types), Block(types)
        condition = Builder(test, emit.location)
        condition.place(
            loop.Yield([condition(scalar.Compare(test.arguments[0], self.length, "lt"))])
        )
        inner = Builder(body, emit.location)
        width, keys, places, keys2, places2 = body.arguments
        self._merge(inner, width, _Run(keys, places), _Run(keys2, places2))
        double = inner(scalar.Add(width, width))
        inner.place(loop.Yield([double, keys2, places2, keys, places]))
        _, keys, places, _, _ = emit.all(loop.While(initial, test, body))
        return _Run(keys, places)

    def _merge(self, emit: Builder, width: Value, source: _Run, target: _Run) -> None:
        """One round: neighbouring stretches become one of twice the width."""
        double = emit(scalar.Add(width, width))
        above = emit(scalar.Subtract(emit(scalar.Add(self.length, double)), index(emit, 1)))
        pairs = emit(scalar.RawDivide(above, double))

        def pair(inner: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            low = inner(scalar.Multiply(number, double))
            middle = minimum(inner, inner(scalar.Add(low, width)), self.length)
            high = minimum(inner, inner(scalar.Add(low, double)), self.length)

            def take(deep: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
                return self._take(deep, k, carried, middle, high, source, target)

            for_each(inner, low, high, 1, [low, middle], take)
            return ()

        for_each(emit, index(emit, 0), pairs, 1, (), pair)

    def _take(
        self,
        emit: Builder,
        k: Value,
        carried: list[Value],
        middle: Value,
        high: Value,
        source: _Run,
        target: _Run,
    ) -> list[Value]:
        """Move the smaller of the first elements of two stretches; the left one of equals."""
        i, j = carried
        left, right = (emit(loop.Load(source.keys, at, self.key)) for at in (i, j))
        some_left = emit(scalar.Compare(i, middle, "lt"))
        some_right = emit(scalar.Compare(j, high, "lt"))
        better = emit(scalar.And(some_right, self._is_before(emit, right, left)))
        is_right = emit(scalar.Or(better, emit(scalar.Not(some_left))))
        key = emit(scalar.Select(is_right, right, left))
        where = emit(scalar.Select(is_right, j, i))
        emit.place(loop.Store(key, target.keys, k))
        emit.place(loop.Store(emit(loop.Load(source.places, where, INDEX)), target.places, k))
        step = emit(scalar.Cast(is_right, INDEX))
        next_j = emit(scalar.Add(j, step))
        next_i = emit(scalar.Add(i, emit(scalar.Subtract(index(emit, 1), step))))
        return [next_i, next_j]

    def _is_before(self, emit: Builder, one: Value, other: Value) -> Value:
        """Whether a key comes strictly before another; NaN is above all numbers."""
        test = emit(scalar.Compare(one, other, "gt" if self.op.descending else "lt"))
        if not self.key.is_float:
            return test
        low, high = (other, one) if self.op.descending else (one, other)
        nan = emit(scalar.Compare(high, high, "ne"))
        number = emit(scalar.Compare(low, low, "eq"))
        return emit(scalar.Or(test, emit(scalar.And(nan, number))))
