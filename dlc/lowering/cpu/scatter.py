"""`kernel.scatter` as loops: a tile copies its part of the target, then goes through all updates of it.
Where the result is written over the target, there is nothing to copy.

Tiles share the axes that are not indexed, so no place belongs to two of them and the order of the updates
is the one stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc.dialects import kernel, mem
from dlc.dialects.expr import Expr, combine, minimum
from dlc.ir.dims import ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours, varying
from dlc.lowering.kernel_code.words import for_each, nest, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import nanoseconds

BLOCK = 64
"""Neighbouring elements along the last axis that belong to one tile."""
COMBINERS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


def lower_scatter(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for scattered updates in destination form."""
    assert isinstance(op, kernel.Scatter)
    return _Scatter(op, cpu_of(context.options)).lower()


class _Scatter:
    def __init__(self, op: kernel.Scatter, cpu: CpuTarget) -> None:
        self.op = op
        self.costs = cpu.costs
        self.writer = Writer(op)
        target, _, *indices = [kernel.array_type(value) for value in op.inputs]
        self.dtype, self.shape, self.index = target.dtype, target.shape, indices[0]
        self.rest = [axis for axis in range(target.rank) if axis not in op.axes]
        self.body = Body(self.writer, {}, cpu.lanes(self.dtype))
        self.extents = [
            self.writer.size(size, "extent", axis) for axis, size in enumerate(self.shape)
        ]
        self.target = len(op.inputs)
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])

    def lower(self) -> Lowered:
        writer = self.writer
        outer = [self.shape[axis] for axis in self.rest[:-1]]
        across = ceil_divide(self.shape[self.rest[-1]], BLOCK) if self.rest else 1
        counts = [writer.size(size, "tiles", k) for k, size in enumerate((*outer, across))]
        with for_each(writer.emit, writer.first, writer.last) as number:
            *places, block = unravel(number, counts)
            lower = block * BLOCK
            above = lower + BLOCK
            upper = minimum(above, self.extents[self.rest[-1]]) if self.rest else above
            if not self.in_place:
                self._copy(places, lower, upper)
            self._update(places, lower, upper)
        axes = () if self.in_place else self.op.axes
        indexed = product([self.shape[axis] for axis in axes])
        work = (
            (indexed + self.index.size) * self.costs.scattered_element * (BLOCK if self.rest else 1)
        )
        return writer.finish(product(outer) * across, nanoseconds(work))

    def _stretch(
        self, axes: Sequence[int], at: Sequence[Expr], outer: Sequence[Expr], position: Lane
    ) -> list[Lane]:
        """The index of an element: `at` along the axes, then the tile's place, the last as given."""
        known: dict[int, Lane] = {a: Uniform(v) for a, v in zip(axes, at, strict=True)}
        known |= {a: Uniform(v) for a, v in zip(self.rest[:-1], outer, strict=True)}
        if self.rest:
            known[self.rest[-1]] = position
        return [known[axis] for axis in range(len(self.shape))]

    def _elements(self, lower: Expr, upper: Expr) -> Iterator[tuple[int, Lane]]:
        """Loops over the elements along the last axis that is not indexed; a single one if all are."""
        if not self.rest:
            yield 1, Uniform(lower)
            return
        for lanes, position in self.body.register_loops(lower, upper):
            yield lanes, neighbours(position, lanes)

    def _copy(self, outer: list[Expr], lower: Expr, upper: Expr) -> None:
        """The tile's part of the target."""

        def part(at: list[Expr], _: list[Expr]) -> list[Expr]:
            for lanes, position in self._elements(lower, upper):
                point = Point(lanes, {})
                places = self._stretch(self.op.axes, at, outer, position)
                self.body.store_in(point, self.body.load(point, 0, places), self.target, places)
            return []

        nest(self.writer.emit, [self.extents[axis] for axis in self.op.axes], [], part)

    def _update(self, outer: list[Expr], lower: Expr, upper: Expr) -> None:
        """All updates of the tile's part, in the order of the index tensors."""
        writer = self.writer
        extents = [writer.size(size, "updates", k) for k, size in enumerate(self.index.shape)]

        def visit(which: list[Expr], _: list[Expr]) -> list[Expr]:
            indices = [self._index(which, k) for k in range(len(self.op.axes))]
            self._inside(indices, 0, lambda: self._put(which, indices, outer, lower, upper))
            return []

        nest(writer.emit, extents, [], visit)

    def _index(self, which: list[Expr], k: int) -> Expr:
        lane = self.body.load(Point(1, {}), 2 + k, [Uniform(value) for value in which])
        return in_lanes(lane, 1).cast(INDEX)

    def _inside(self, indices: list[Expr], k: int, then: Callable[[], None]) -> None:
        """Do something if the indices from the k-th on are inside their axes; else the call fails."""
        if k == len(indices):
            then()
            return
        place, extent = indices[k], self.extents[self.op.axes[k]]
        inside = (place >= 0) & (place < extent)
        self.writer.if_valid(inside, (place, extent), lambda: self._inside(indices, k + 1, then))

    def _put(
        self,
        which: list[Expr],
        indices: list[Expr],
        outer: list[Expr],
        lower: Expr,
        upper: Expr,
    ) -> None:
        """One update, as far as it concerns the tile."""
        for lanes, position in self._elements(lower, upper):
            point = Point(lanes, {})
            places = self._stretch(self.op.axes, indices, outer, position)
            last = [position] if self.rest else []
            source: list[Lane] = [*map(Uniform, which), *map(Uniform, outer), *last]
            new = self.body.load(point, 1, source)
            if self.op.mode != "set":
                old = self.body.load(point, self.target, places)
                one, other = in_lanes(old, lanes), in_lanes(new, lanes)
                new = varying(combine(COMBINERS[self.op.mode], one, other), lanes)
            self.body.store_in(point, new, self.target, places)
