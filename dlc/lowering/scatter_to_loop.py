"""`kernel.scatter` as loops: a tile copies its part of the target, then goes through all updates of it.
Where the result is written over the target, there is nothing to copy.

Tiles share the axes that are not indexed, so no place belongs to two of them and the order of the updates
is the one stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, kernels_in_order, loop, mem, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.body import Body, Point, Step
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying, combine, in_lanes
from dlc.lowering.loop_words import for_each, index, minimum, nest, unravel
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, nanoseconds
from dlc.runtime.abi import Status

BLOCK = 64
"""Neighbouring elements along the last axis that belong to one tile."""
ELEMENT = 1000
"""Picoseconds for an element that is copied or updated."""
COMBINERS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


def lower_scatter(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for scattered updates in destination form."""
    assert isinstance(op, kernels_in_order.Scatter)
    return _Scatter(op, context.options.vector_bytes).lower()


class _Scatter:
    def __init__(self, op: kernels_in_order.Scatter, vector_bytes: int) -> None:
        self.op = op
        self.writer = Writer(op)
        target, _, *indices = [kernel.array_type(value) for value in op.inputs]
        self.dtype, self.shape, self.index = target.dtype, target.shape, indices[0]
        self.rest = [axis for axis in range(target.rank) if axis not in op.axes]
        self.body = Body(self.writer, {}, max(1, vector_bytes // self.dtype.bytes))
        self.extents = [
            self.writer.size(size, "extent", axis).value for axis, size in enumerate(self.shape)
        ]
        self.target = len(op.inputs)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])

    def lower(self) -> Lowered:
        writer = self.writer
        outer = [self.shape[axis] for axis in self.rest[:-1]]
        across = ceil_divide(self.shape[self.rest[-1]], BLOCK) if self.rest else 1
        counts = [writer.size(size, "tiles", k).value for k, size in enumerate((*outer, across))]

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *places, block = unravel(emit, number, counts)
            lower = emit(scalar.Multiply(block, index(emit, BLOCK)))
            above = emit(scalar.Add(lower, index(emit, BLOCK)))
            upper = minimum(emit, above, self.extents[self.rest[-1]]) if self.rest else above
            if not self.in_place:
                self._copy(emit, places, lower, upper)
            self._update(emit, places, lower, upper)
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        axes = () if self.in_place else self.op.axes
        indexed = product([self.shape[axis] for axis in axes])
        work = (indexed + self.index.size) * ELEMENT * (BLOCK if self.rest else 1)
        return writer.finish(product(outer) * across, nanoseconds(work))

    def _stretch(
        self, axes: Sequence[int], at: Sequence[Value], outer: Sequence[Value], position: Lane
    ) -> list[Lane]:
        """The index of an element: `at` along the axes, then the tile's place, the last as given."""
        known: dict[int, Lane] = {a: Uniform(v) for a, v in zip(axes, at, strict=True)}
        known |= {a: Uniform(v) for a, v in zip(self.rest[:-1], outer, strict=True)}
        if self.rest:
            known[self.rest[-1]] = position
        return [known[axis] for axis in range(len(self.shape))]

    def _copy(self, emit: Builder, outer: list[Value], lower: Value, upper: Value) -> None:
        """The tile's part of the target."""

        def part(inner: Builder, at: list[Value], _: list[Value]) -> list[Value]:
            def one(point: Point, position: Lane) -> None:
                places = self._stretch(self.op.axes, at, outer, position)
                old = self.body.load(point, 0, places, self.dtype)
                self._store(point, old, places)

            self._elements(inner, lower, upper, one)
            return []

        nest(emit, [self.extents[axis] for axis in self.op.axes], [], part)

    def _elements(self, emit: Builder, lower: Value, upper: Value, write: _Write) -> None:
        """The elements along the last axis that is not indexed; a single one if all are."""
        if not self.rest:
            write(Point(emit, 1, {}), Uniform(lower))
            return

        def at(lanes: int) -> Step:
            def some(inner: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                here = Uniform(position) if lanes == 1 else Linear(position)
                write(Point(inner, lanes, {}), here)
                return ()

            return some

        self.body.stretch_loops(emit, lower, upper, at)

    def _update(self, emit: Builder, outer: list[Value], lower: Value, upper: Value) -> None:
        """All updates of the tile's part, in the order of the index tensors."""
        extents = [self.writer.size(size, "updates", k).value for k, size in enumerate(self.index.shape)]

        def visit(inner: Builder, which: list[Value], _: list[Value]) -> list[Value]:
            found = [self._index(inner, which, k) for k in range(len(self.op.axes))]
            self._inside(inner, found, 0, lambda e: self._put(e, which, found, outer, lower, upper))
            return []

        nest(emit, extents, [], visit)

    def _index(self, emit: Builder, which: list[Value], k: int) -> Value:
        places: list[Lane] = [Uniform(value) for value in which]
        lane = self.body.load(Point(emit, 1, {}), 2 + k, places, self.index.dtype)
        value = in_lanes(emit, lane, 1)
        return emit(scalar.Cast(value, INDEX))

    def _inside(
        self, emit: Builder, found: list[Value], k: int, then: Callable[[Builder], None]
    ) -> None:
        """Do something if the indices from the k-th on are inside their axes; else the call fails."""
        if k == len(found):
            then(emit)
            return
        value, extent = found[k], self.extents[self.op.axes[k]]
        low = emit(scalar.Compare(value, index(emit, 0), "ge"))
        test = emit(scalar.And(low, emit(scalar.Compare(value, extent, "lt"))))
        good, bad = Block(), Block()
        inner = Builder(good, emit.location)
        self._inside(inner, found, k + 1, then)
        inner.place(loop.Yield([]))
        failing = Builder(bad, emit.location)
        failing.place(loop.Fail(self.writer.tile.value, value, extent, int(Status.INDEX)))
        failing.place(loop.Yield([]))
        emit.place(loop.If(test, good, bad))

    def _put(
        self,
        emit: Builder,
        which: list[Value],
        found: list[Value],
        outer: list[Value],
        lower: Value,
        upper: Value,
    ) -> None:
        """One update, as far as it concerns the tile."""

        def one(point: Point, position: Lane) -> None:
            places = self._stretch(self.op.axes, found, outer, position)
            behind: list[Lane] = [Uniform(value) for value in outer]
            last = [position] if self.rest else []
            where: list[Lane] = [*[Uniform(value) for value in which], *behind, *last]
            new = self.body.load(point, 1, where, self.dtype)
            if self.op.mode != "set":
                old = self.body.load(point, self.target, places, self.dtype)
                lanes = point.lanes
                one, other = (in_lanes(point.emit, lane, lanes) for lane in (old, new))
                total = combine(point.emit, COMBINERS[self.op.mode], one, other)
                new = Uniform(total) if lanes == 1 else Varying(total)
            self._store(point, new, places)

        self._elements(emit, lower, upper, one)

    def _store(self, point: Point, lane: Lane, places: list[Lane]) -> None:
        pointer = self.writer.pointers[self.target]
        self.body.store(point, lane, pointer, places, self.body.strides(self.target))


_Write = Callable[[Point, Lane], None]
"""Writes the element or elements at a position."""
