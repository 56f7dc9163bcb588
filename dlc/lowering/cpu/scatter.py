"""`kernel.scatter` as loops: a tile copies its elements of the target, then applies all updates to them.
If the result overwrites the target, nothing is copied.

Tiles divide the axes that are not indexed. So every element belongs to one tile, which applies the
updates in the specified order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc.dialects import kernel, mem
from dlc.dialects.expr import Expr, as_index, minimum
from dlc.ir.dims import ceil_divide, product
from dlc.ir.passes import Context
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours
from dlc.lowering.kernel_code.scatter_update import apply_update
from dlc.lowering.kernel_code.words import for_each, nest, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import nanoseconds

BLOCK = 64
"""Neighbouring elements along the last axis that belong to one tile."""


def lower_scatter(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a scatter in destination form."""
    assert isinstance(op, kernel.Scatter)
    return _Scatter(op, cpu_of(context.options)).lower()


class _Scatter:
    """The lowering of one scatter.

    `op.axes` are the indexed axes, `rest` the others; a tile has one index along the outer of these, and
    the range from `lower` to `upper` along the last one.
    """

    def __init__(self, op: kernel.Scatter, cpu: CpuTarget) -> None:
        self.op = op
        self.costs = cpu.costs
        self.writer = Writer(op)
        target, _, *indices = [kernel.array_type(value) for value in op.inputs]
        self.dtype, self.shape, self.indices = target.dtype, target.shape, indices[0]
        self.rest = [axis for axis in range(target.rank) if axis not in op.axes]
        self.body = Body(self.writer, {}, cpu.lanes(self.dtype))
        self.extents = [
            self.writer.size(size, "extent", axis) for axis, size in enumerate(self.shape)
        ]
        self.result = len(op.inputs)
        """Number of the result among the arrays of the kernel."""
        self.in_place = mem.same_place(op.inputs[0], op.outs[0])

    def lower(self) -> Lowered:
        writer = self.writer
        outer_sizes = [self.shape[axis] for axis in self.rest[:-1]]
        blocks = ceil_divide(self.shape[self.rest[-1]], BLOCK) if self.rest else 1
        counts = [writer.size(size, "tiles", k) for k, size in enumerate((*outer_sizes, blocks))]
        with for_each(writer.emit, writer.first, writer.last) as number:
            *outer, block = unravel(number, counts)
            lower = block * BLOCK
            end = lower + BLOCK
            upper = minimum(end, self.extents[self.rest[-1]]) if self.rest else end
            if not self.in_place:
                self._copy(outer, lower, upper)
            self._update(outer, lower, upper)
        axes = () if self.in_place else self.op.axes
        indexed = product([self.shape[axis] for axis in axes])
        work = (
            (indexed + self.indices.size)
            * self.costs.scattered_element
            * (BLOCK if self.rest else 1)
        )
        return writer.finish(product(outer_sizes) * blocks, nanoseconds(work))

    def _element(
        self, indices: Sequence[Expr], outer: Sequence[Expr], position: Lane
    ) -> list[Lane]:
        """An index of the result: `indices` along `op.axes`, `outer` and `position` along `rest`."""
        by_axis: dict[int, Lane] = {
            axis: Uniform(value) for axis, value in zip(self.op.axes, indices, strict=True)
        }
        by_axis |= {axis: Uniform(value) for axis, value in zip(self.rest[:-1], outer, strict=True)}
        if self.rest:
            by_axis[self.rest[-1]] = position
        return [by_axis[axis] for axis in range(len(self.shape))]

    def _elements(self, lower: Expr, upper: Expr) -> Iterator[tuple[int, Lane]]:
        """Loops over the elements along the last axis that is not indexed; a single one if all are."""
        if not self.rest:
            yield 1, Uniform(lower)
            return
        for lanes, position in self.body.register_loops(lower, upper):
            yield lanes, neighbours(position, lanes)

    def _copy(self, outer: list[Expr], lower: Expr, upper: Expr) -> None:
        """Copy the tile's elements of the target to the result."""

        def copy(indices: list[Expr], _: list[Expr]) -> list[Expr]:
            for lanes, position in self._elements(lower, upper):
                point = Point(lanes, {})
                element = self._element(indices, outer, position)
                self.body.store_in(point, self.body.load(point, 0, element), self.result, element)
            return []

        nest(self.writer.emit, [self.extents[axis] for axis in self.op.axes], [], copy)

    def _update(self, outer: list[Expr], lower: Expr, upper: Expr) -> None:
        """Apply all updates to the tile's elements, in the order of the index tensors."""
        writer = self.writer
        extents = [writer.size(size, "updates", k) for k, size in enumerate(self.indices.shape)]

        def visit(which: list[Expr], _: list[Expr]) -> list[Expr]:
            indices = [self._index(which, k) for k in range(len(self.op.axes))]
            self._if_in_range(indices, 0, lambda: self._put(which, indices, outer, lower, upper))
            return []

        nest(writer.emit, extents, [], visit)

    def _index(self, which: list[Expr], k: int) -> Expr:
        lane = self.body.load(Point(1, {}), 2 + k, [Uniform(value) for value in which])
        return as_index(in_lanes(lane, 1))

    def _if_in_range(self, indices: list[Expr], k: int, then: Callable[[], None]) -> None:
        """Emit `then` under checks of the indices from the k-th on; out of range, the call fails."""
        if k == len(indices):
            then()
            return
        index, extent = indices[k], self.extents[self.op.axes[k]]
        in_range = (index >= 0) & (index < extent)
        self.writer.if_valid(
            in_range, (index, extent), lambda: self._if_in_range(indices, k + 1, then)
        )

    def _put(
        self,
        which: list[Expr],
        indices: list[Expr],
        outer: list[Expr],
        lower: Expr,
        upper: Expr,
    ) -> None:
        """Apply one update to the tile's elements; `which` is its index in the tensor of updates."""
        for lanes, position in self._elements(lower, upper):
            element = self._element(indices, outer, position)
            last = [position] if self.rest else []
            update: list[Lane] = [*map(Uniform, which), *map(Uniform, outer), *last]
            apply_update(self.op, self.body, lanes, self.result, element, update)
