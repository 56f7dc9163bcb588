"""`kernel.scatter` for a GPU: each block owns a stretch of the places that are indexed.

A block goes through all indices, some at a time, and notes in order those that fall into its stretch: the
updates of one place are then done by one thread, one after the other, in row-major order of the index
tensors. So no two threads meet, and the bits are the same in every run.

Where the target has more axes than are indexed, the threads share the elements behind a place; where it has
none, they share the places.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, kernels_in_order, loop, mem, scalar, simt
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import maximum, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.block_scan import scan
from dlc.lowering.body import Body, Point
from dlc.lowering.elements_to_simt import in_groups, lanes_at
from dlc.lowering.lanes import Lane, Uniform, Varying, combine, in_lanes
from dlc.lowering.loop_words import add, for_each, index, minimum
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.multiples import ACCESS
from dlc.lowering.simt_writer import GridWriter, either, when
from dlc.lowering.work import ceil_divide, nanoseconds
from dlc.runtime.abi import Status

THREADS = 256
EACH = 4
"""Indices that a thread looks at, at a time."""
STRETCHES = 264
"""Stretches that keep a GPU busy: each reads all indices."""
LEAST = 64
"""Places of a stretch, at least."""
PICOSECONDS = 1000
"""Of an element that is copied or updated, roughly."""
COMBINERS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


def lower_scatter(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for scattered updates in destination form."""
    assert isinstance(op, kernels_in_order.Scatter)
    return _Scatter(op).lower()


class _Scatter:
    def __init__(self, op: kernels_in_order.Scatter) -> None:
        self.op = op
        self.writer = GridWriter(op, THREADS)
        target, _, *indices = [kernel.array_type(value) for value in op.inputs]
        self.dtype, self.shape, self.indices = target.dtype, target.shape, indices[0]
        self.target = len(op.inputs)
        self.rest = [axis for axis in range(target.rank) if axis not in op.axes]
        self.indexed = product([self.shape[axis] for axis in op.axes])
        self.behind = product([self.shape[axis] for axis in self.rest])
        last = self.rest[-1:] == [target.rank - 1]
        most = ACCESS // self.dtype.bytes
        self.group = in_groups(self.shape[-1], most) if last else 1
        self.across = ceil_divide(self.behind, THREADS * self.group)
        """Blocks to a stretch, which share the elements behind its places."""
        self.stretch = maximum(LEAST, ceil_divide(self.indexed, STRETCHES))
        self.body = Body(self.writer, {}, self.group)

    def lower(self) -> Lowered:
        writer, emit = self.writer, self.writer.emit
        stretches = ceil_divide(self.indexed, self.stretch)
        counts = [writer.size(stretches, "stretches").value, writer.size(self.across, "across").value]
        number, part = writer.unravel_values(emit, writer.tile.value, counts, stretches * self.across)
        length = writer.size(self.stretch, "stretch").value
        low = emit(scalar.Multiply(number, length))
        high = minimum(emit, emit(scalar.Add(low, length)), writer.size(self.indexed, "indexed").value)
        own = self._own(emit, part)
        if not mem.same_place(self.op.inputs[0], self.op.outs[0]):
            self._copy(emit, low, high, own)
        self._update(emit, low, high, own)
        work = (self.stretch + self.indices.size) * PICOSECONDS * self.group
        return writer.finish(stretches * self.across, nanoseconds(work))

    def _own(self, emit: Builder, part: Value) -> Value:
        """The first of the elements behind each place that are the thread's; without any, its number."""
        if not self.rest:
            return self.writer.thread.value
        first = emit(scalar.Multiply(part, index(emit, THREADS)))
        place = emit(scalar.Add(first, self.writer.thread.value))
        return emit(scalar.Multiply(place, index(emit, self.group)))

    # Elements of the target.

    def _place(
        self, emit: Builder, at: Value, own: Value, before: Sequence[Value] = ()
    ) -> tuple[list[Lane], list[Lane]]:
        """The indices of a group: those of the target, and those of its update behind `before`."""
        axes = self.op.axes
        extents = [self._extent(axis) for axis in axes]
        known = dict(zip(axes, self.writer.unravel_values(emit, at, extents, self.indexed), strict=True))
        rest: list[Value] = []
        if self.rest:
            extents = [self._extent(axis) for axis in self.rest]
            rest = self.writer.unravel_values(emit, own, extents, self.behind)
        known |= dict(zip(self.rest, rest, strict=True))
        there = [known[axis] for axis in range(len(self.shape))]
        return lanes_at(there, self.group), lanes_at([*before, *rest], self.group)

    def _extent(self, axis: int) -> Value:
        return self.writer.size(self.shape[axis], "extent", axis).value

    def _store(self, point: Point, lane: Lane, places: Sequence[Lane]) -> None:
        strides = self.body.strides(self.target)
        self.body.store(point, lane, self.writer.pointers[self.target], places, strides)

    def _mine(self, emit: Builder, at: Value, low: Value, own: Value) -> Value:
        """Whether the elements behind a place, or the place itself, are the thread's."""
        if self.rest:
            return emit(scalar.Compare(own, self.writer.size(self.behind, "behind").value, "lt"))
        away = emit(scalar.Subtract(at, low))
        turn = emit(scalar.And(away, index(emit, THREADS - 1)))
        return emit(scalar.Compare(turn, own, "eq"))

    def _copy(self, emit: Builder, low: Value, high: Value, own: Value) -> None:
        """What the thread has of the stretch, as the target has it."""

        def one(deep: Builder, at: Value, _: list[Value]) -> Sequence[Value]:
            places = self._place(deep, at, own)[0]
            point = Point(deep, self.group, {})
            self._store(point, self.body.load(point, 0, places, self.dtype), places)
            return ()

        if self.rest:
            there = self._mine(emit, low, low, own)

            def all_of_it(inside: Builder) -> None:
                for_each(inside, low, high, 1, (), one)

            either(emit, there, all_of_it)
        else:
            for_each(emit, emit(scalar.Add(low, own)), high, THREADS, (), one)

    # Updates.

    def _update(self, emit: Builder, low: Value, high: Value, own: Value) -> None:
        """All updates of the stretch, in the order of the index tensors."""
        rooms = [emit(simt.Shared(THREADS * EACH, INDEX)) for _ in range(2)]
        first = emit(scalar.Multiply(self.writer.thread.value, index(emit, EACH)))
        end = self.writer.size(self.indices.size, "updates").value

        def some(deep: Builder, start: Value, _: list[Value]) -> Sequence[Value]:
            begin = deep(scalar.Add(start, first))
            count = self._note(deep, begin, end, (low, high), rooms)
            deep.place(simt.Barrier())
            for_each(deep, index(deep, 0), count, 1, (), one)
            deep.place(simt.Barrier())
            return ()

        def one(deep: Builder, k: Value, _: list[Value]) -> Sequence[Value]:
            at, which = (deep(loop.Load(room, k, INDEX)) for room in rooms)
            mine = self._mine(deep, at, low, own)
            either(deep, mine, lambda inside: self._put(inside, at, which, own))
            return ()

        for_each(emit, index(emit, 0), end, THREADS * EACH, (), some)

    def _note(
        self,
        emit: Builder,
        begin: Value,
        end: Value,
        stretch: tuple[Value, Value],
        rooms: Sequence[Value],
    ) -> Value:
        """Note the places, and the numbers, of updates of the stretch; how many there are."""
        zero, one = index(emit, 0), index(emit, 1)
        last = emit(scalar.Subtract(end, one))
        looked_at: list[tuple[Value, Value, Value]] = []
        count = zero
        for k in range(EACH):
            which = emit(scalar.Add(begin, index(emit, k)))
            there = emit(scalar.Compare(which, end, "lt"))
            at = self._indexed(emit, minimum(emit, which, last), there)
            above = emit(scalar.Compare(at, stretch[0], "ge"))
            below = emit(scalar.Compare(at, stretch[1], "lt"))
            met = emit(scalar.And(there, emit(scalar.And(above, below))))
            count = emit(scalar.Add(count, emit(scalar.Select(met, one, zero))))
            looked_at.append((met, at, which))
        row, total = scan(self.writer, emit, "add", count, zero)
        for met, at, which in looked_at:
            stores = [
                loop.Store(value, room, row) for value, room in zip((at, which), rooms, strict=True)
            ]
            when(emit, met, *stores)
            row = emit(scalar.Add(row, emit(scalar.Select(met, one, zero))))
        return total

    def _indexed(self, emit: Builder, which: Value, there: Value) -> Value:
        """The number of the place that an update names; -1, and the call fails, where there is none."""
        extents = [
            self.writer.size(size, "updates", k).value for k, size in enumerate(self.indices.shape)
        ]
        where = self.writer.unravel_values(emit, which, extents, self.indices.size)
        lanes: list[Lane] = [Uniform(value) for value in where]
        number: Value | None = None
        good: Value | None = None
        for k, axis in enumerate(self.op.axes):
            found = self.body.load(Point(emit, 1, {}), 2 + k, lanes, self.indices.dtype)
            value = emit(scalar.Cast(in_lanes(emit, found, 1), INDEX))
            extent = self._extent(axis)
            low = emit(scalar.Compare(value, index(emit, 0), "ge"))
            inside = emit(scalar.And(low, emit(scalar.Compare(value, extent, "lt"))))
            self._refuse(emit, emit(scalar.And(there, emit(scalar.Not(inside)))), value, extent)
            good = inside if good is None else emit(scalar.And(good, inside))
            scaled = None if number is None else emit(scalar.Multiply(number, extent))
            number = add(emit, scaled, value)
        assert number is not None
        assert good is not None
        return emit(scalar.Select(good, number, index(emit, -1)))

    def _refuse(self, emit: Builder, wrong: Value, value: Value, extent: Value) -> None:
        """The call fails; all blocks see it, one says so."""
        first = emit(scalar.Compare(self.writer.tile.value, index(emit, 0), "eq"))
        failure = loop.Fail(self.writer.tile.value, value, extent, int(Status.INDEX))
        when(emit, emit(scalar.And(first, wrong)), failure)

    def _put(self, emit: Builder, at: Value, which: Value, own: Value) -> None:
        """One update, as far as it is the thread's."""
        extents = [
            self.writer.size(size, "updates", k).value for k, size in enumerate(self.indices.shape)
        ]
        before = self.writer.unravel_values(emit, which, extents, self.indices.size)
        places, source = self._place(emit, at, own, before)
        point = Point(emit, self.group, {})
        new = self.body.load(point, 1, source, self.dtype)
        if self.op.mode != "set":
            old = self.body.load(point, self.target, places, self.dtype)
            one, other = (in_lanes(emit, lane, point.lanes) for lane in (old, new))
            total = combine(emit, COMBINERS[self.op.mode], one, other)
            new = Uniform(total) if point.lanes == 1 else Varying(total)
        self._store(point, new, places)
