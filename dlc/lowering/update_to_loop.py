"""`kernel.update` as loops: row by row, in registers.

Over its target, only the rows of the update are written; elsewhere each row of the target is copied and,
where the update meets it, overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, kernels_in_order, loop, mem, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import product
from dlc.ir.passes import Context
from dlc.ir.types import I64, INDEX
from dlc.lowering.body import Body, Point, Step
from dlc.lowering.lanes import Lane, Linear, Uniform, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, nanoseconds, tile_rows
from dlc.runtime.abi import Status

ELEMENT = 100
"""Picoseconds for an element that is copied."""


def lower_update(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for an update in destination form."""
    assert isinstance(op, kernels_in_order.Update)
    return _Update(op, context.options.vector_bytes).lower()


class _Update:
    def __init__(self, op: kernels_in_order.Update, vector_bytes: int) -> None:
        self.writer = Writer(op)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])
        target, update = (kernel.array_type(value) for value in op.inputs[:2])
        self.dtype, self.shape, self.part = target.dtype, target.shape, update.shape
        self.out = len(op.inputs)
        self.body = Body(self.writer, {}, max(1, vector_bytes // self.dtype.bytes))
        self.parts = [self.writer.size(size, "part", k).value for k, size in enumerate(self.part)]

    def lower(self) -> Lowered:
        writer, emit = self.writer, self.writer.emit
        shape = self.part if self.in_place else self.shape
        *outer, across = shape
        rows, per_tile = product(outer), tile_rows(across * ELEMENT)
        starts = [self._start(emit, axis) for axis in range(len(shape))]
        count = writer.size(per_tile, "rows_per_tile").value
        lower = emit(scalar.Multiply(writer.first.value, count))
        last = emit(scalar.Multiply(writer.last.value, count))
        upper = minimum(emit, last, writer.size(rows, "rows").value)
        extents = [writer.size(size, "extent", k).value for k, size in enumerate(outer)]

        def row(inner: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            places = unravel(inner, number, extents) if extents else []
            if self.in_place:
                self._put(inner, places, starts)
            else:
                self._copy_and_put(inner, places, starts)
            return ()

        for_each(emit, lower, upper, 1, (), row, parallel=True)
        work = per_tile * across * ELEMENT
        return writer.finish(ceil_divide(rows, per_tile), nanoseconds(work))

    def _start(self, emit: Builder, axis: int) -> Value:
        """Where the update begins along an axis; the call fails, and it is 0, where that leaves no room."""
        lane = self.body.load(Point(emit, 1, {}), 2 + axis, [], I64)
        value = emit(scalar.Cast(in_lanes(emit, lane, 1), INDEX))
        room = self.writer.size(self.shape[axis] - self.part[axis] + 1, "room", axis).value
        zero = index(emit, 0)
        low = emit(scalar.Compare(value, zero, "ge"))
        inside = emit(scalar.And(low, emit(scalar.Compare(value, room, "lt"))))
        good, bad = Block(), Block()
        Builder(good, emit.location).place(loop.Yield([]))
        failing = Builder(bad, emit.location)
        failing.place(loop.Fail(self.writer.tile.value, value, room, int(Status.INDEX)))
        failing.place(loop.Yield([]))
        emit.place(loop.If(inside, good, bad))
        return emit(scalar.Select(inside, value, zero))

    def _put(self, emit: Builder, places: list[Value], starts: list[Value]) -> None:
        """Write a row of the update into the result; `places` count from where the update begins."""
        there = [emit(scalar.Add(k, s)) for k, s in zip(places, starts, strict=False)]

        def at(lanes: int) -> Step:
            def some(inner: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                moved = inner(scalar.Add(position, starts[-1]))
                point = Point(inner, lanes, {})
                source = [*map(Uniform, places), _lane(position, lanes)]
                value = self.body.load(point, 1, source, self.dtype)
                self._store(point, value, [*map(Uniform, there), _lane(moved, lanes)])
                return ()

            return some

        self.body.stretch_loops(emit, index(emit, 0), self.parts[-1], at)

    def _copy_and_put(self, emit: Builder, places: list[Value], starts: list[Value]) -> None:
        """Copy a row of the target and put what the update has of it over that."""

        def at(lanes: int) -> Step:
            def some(inner: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                point = Point(inner, lanes, {})
                where: list[Lane] = [*map(Uniform, places), _lane(position, lanes)]
                self._store(point, self.body.load(point, 0, where, self.dtype), where)
                return ()

            return some

        end = self.writer.size(self.shape[-1], "across").value
        self.body.stretch_loops(emit, index(emit, 0), end, at)
        inside = [emit(scalar.Subtract(k, s)) for k, s in zip(places, starts, strict=False)]
        self._where_met(emit, inside, starts, 0)

    def _where_met(
        self, emit: Builder, inside: list[Value], starts: list[Value], axis: int
    ) -> None:
        """Put the row of the update, if there is one at these places from `axis` on."""
        if axis == len(inside):
            self._put(emit, inside, starts)
            return
        low = emit(scalar.Compare(inside[axis], index(emit, 0), "ge"))
        high = emit(scalar.Compare(inside[axis], self.parts[axis], "lt"))
        yes, no = Block(), Block()
        inner = Builder(yes, emit.location)
        self._where_met(inner, inside, starts, axis + 1)
        for block in (yes, no):
            Builder(block, emit.location).place(loop.Yield([]))
        emit.place(loop.If(emit(scalar.And(low, high)), yes, no))

    def _store(self, point: Point, value: Lane, places: Sequence[Lane]) -> None:
        pointer = self.writer.pointers[self.out]
        self.body.store(point, value, pointer, places, self.body.strides(self.out))


def _lane(position: Value, lanes: int) -> Lane:
    return Uniform(position) if lanes == 1 else Linear(position)
