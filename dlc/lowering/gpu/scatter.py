"""`kernel.scatter` for a GPU without atomics: each block owns a range of the indexed elements.

Flattened over the indexed axes, the target has *positions*. A block reads the indices of all updates, a
batch at a time, and compacts those in its range of positions into shared memory, in order. One thread then
applies the updates of an element, in row-major order of the index tensors: no two threads write an
element, and the bits are the same in every run.

If the target has axes that are not indexed, the threads of a block divide the elements of a position (its
*row*); if all axes are indexed, they divide the positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, mem
from dlc.dialects.expr import (
    Condition,
    Expr,
    Index,
    Pointer,
    all_of,
    as_index,
    index,
    minimum,
    select,
)
from dlc.ir.dims import ceil_divide, maximum, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.gpu.block_scan import scan
from dlc.lowering.gpu.elements import in_groups, lanes_at
from dlc.lowering.gpu.writer import GridWriter, when
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.scatter_update import apply_update
from dlc.lowering.kernel_code.words import for_each
from dlc.lowering.kernel_code.writer import Lowered
from dlc.runtime.abi import Status
from dlc.target import gpu_of
from dlc.target.gpu import ACCESS, GpuTarget
from dlc.target.work import nanoseconds

THREADS = 256
UPDATES_PER_THREAD = 4
"""Updates of a batch whose indices one thread reads."""
MIN_RANGE = 64
"""The fewest positions of a block."""


def lower_scatter(op: kernel.Scatter, context: Context) -> Lowered:
    """The function for a scatter in destination form."""
    return _Scatter(op, gpu_of(context.options)).lower()


class _Scatter:
    """The lowering of one scatter: `op.axes` are the indexed axes, `rest` the others, those of a row."""

    def __init__(self, op: kernel.Scatter, gpu: GpuTarget) -> None:
        self.op = op
        self.gpu = gpu
        self.writer = GridWriter(op, THREADS)
        target, _, *indices = [kernel.array_type(value) for value in op.inputs]
        self.dtype, self.shape, self.indices = target.dtype, target.shape, indices[0]
        self.result = len(op.inputs)
        """Number of the result among the arrays of the kernel."""
        self.rest = [axis for axis in range(target.rank) if axis not in op.axes]
        self.positions = product([self.shape[axis] for axis in op.axes])
        self.row_size = product([self.shape[axis] for axis in self.rest])
        is_last = self.rest[-1:] == [target.rank - 1]
        most_lanes = ACCESS // self.dtype.bytes
        self.lanes = in_groups(self.shape[-1], most_lanes) if is_last else 1
        self.row_blocks = ceil_divide(self.row_size, THREADS * self.lanes)
        """Blocks of a range of positions, which divide the rows."""
        self.range_size = maximum(
            MIN_RANGE, ceil_divide(self.positions, gpu.occupancy.scatter_blocks)
        )
        self.body = Body(self.writer, {}, self.lanes)

    def lower(self) -> Lowered:
        writer = self.writer
        ranges = ceil_divide(self.positions, self.range_size)
        counts = [writer.size(ranges, "ranges"), writer.size(self.row_blocks, "row_blocks")]
        number, row_block = writer.unravel_tile(counts)
        length = writer.size(self.range_size, "range")
        low = number * length
        high = minimum(low + length, writer.size(self.positions, "positions"))
        column = self._column(row_block)
        if not mem.same_place(self.op.inputs[0], self.op.outs[0]):
            self._copy(low, high, column)
        self._update(low, high, column)
        work = (self.range_size + self.indices.size) * self.gpu.costs.scattered_element * self.lanes
        return writer.finish(ranges * self.row_blocks, nanoseconds(work))

    def _column(self, row_block: Expr) -> Expr:
        """The first element of each row that the thread computes; without rows, the thread's number."""
        thread = self.writer.thread
        return (row_block * THREADS + thread) * self.lanes if self.rest else thread

    # Elements of the target.

    def _element(
        self, position: Expr, column: Expr, update: Sequence[Expr] = ()
    ) -> tuple[list[Lane], list[Lane]]:
        """The index of the thread's elements of a position in the result, and in the tensor of updates.

        `update` is the index of the update along the axes of the index tensors.
        """
        axes = self.op.axes
        extents = [self._extent(axis) for axis in axes]
        indices = self.writer.unravel(position, extents, self.positions)
        by_axis = dict(zip(axes, indices, strict=True))
        row: list[Expr] = []
        if self.rest:
            extents = [self._extent(axis) for axis in self.rest]
            row = self.writer.unravel(column, extents, self.row_size)
        by_axis |= dict(zip(self.rest, row, strict=True))
        element = [by_axis[axis] for axis in range(len(self.shape))]
        return lanes_at(element, self.lanes), lanes_at([*update, *row], self.lanes)

    def _extent(self, axis: int) -> Expr:
        return self.writer.size(self.shape[axis], "extent", axis)

    def _is_own(self, position: Expr, low: Expr, column: Expr) -> Expr:
        """Whether the thread computes elements of a position."""
        if self.rest:
            return column < self.writer.size(self.row_size, "row")
        return ((position - low) % THREADS).equals(column)

    def _copy(self, low: Expr, high: Expr, column: Expr) -> None:
        """Copy the thread's elements of the target to the result."""
        emit = self.writer.emit
        if not self.rest:
            with for_each(emit, low + column, high, THREADS) as position:
                self._copy_element(position, column)
            return
        with (
            when(self._is_own(low, low, column)),
            for_each(emit, low, high) as position,
        ):
            self._copy_element(position, column)

    def _copy_element(self, position: Expr, column: Expr) -> None:
        element, _ = self._element(position, column)
        point = Point(self.lanes, {})
        self.body.store_in(point, self.body.load(point, 0, element), self.result, element)

    # Updates.

    def _update(self, low: Expr, high: Expr, column: Expr) -> None:
        """Apply all updates of the range, in the order of the index tensors."""
        writer = self.writer
        batch = THREADS * UPDATES_PER_THREAD
        compacted = [writer.shared(batch, INDEX) for _ in range(2)]
        first = writer.thread * UPDATES_PER_THREAD
        end = writer.size(self.indices.size, "updates")
        with for_each(writer.emit, 0, end, batch) as start:
            count = self._compact(start + first, end, (low, high), compacted)
            writer.barrier()
            with for_each(writer.emit, 0, count) as k:
                position, number = (array[k] for array in compacted)
                with when(self._is_own(position, low, column)):
                    self._put(position, number, column)
            writer.barrier()

    def _compact(
        self, begin: Expr, end: Expr, limits: tuple[Expr, Expr], compacted: Sequence[Pointer]
    ) -> Expr:
        """Write the positions and the numbers of the updates in range to shared memory, and count them."""
        last = end - 1
        updates: list[tuple[Expr, Expr, Expr]] = []
        zero = index(self.writer.emit, 0)
        count = zero
        for k in range(UPDATES_PER_THREAD):
            number = begin + k
            exists = number < end
            position = self._position(minimum(number, last), exists)
            in_range = exists & ((position >= limits[0]) & (position < limits[1]))
            count = count + select(in_range, 1, 0)
            updates.append((in_range, position, number))
        slot, total = scan(self.writer, "add", count, zero)
        for in_range, position, number in updates:
            with when(in_range):
                for array, value in zip(compacted, (position, number), strict=True):
                    array[slot] = value
            slot = slot + select(in_range, 1, 0)
        return total

    def _position(self, number: Expr, exists: Expr) -> Expr:
        """The position that an update names; -1, and the call fails, if an index is out of range."""
        lanes: list[Lane] = [Uniform(value) for value in self._update_index(number)]
        position: Index = 0
        valid: Condition = True
        for k, axis in enumerate(self.op.axes):
            value = as_index(in_lanes(self.body.load(Point(1, {}), 2 + k, lanes), 1))
            extent = self._extent(axis)
            in_range = (value >= 0) & (value < extent)
            self._fail(exists & ~in_range, value, extent)
            valid = all_of([valid, in_range])
            position = value if k == 0 else position * extent + value
        return select(valid, position, -1)

    def _update_index(self, number: Expr) -> list[Expr]:
        """The index of an update along each axis of the index tensors."""
        extents = [
            self.writer.size(size, "updates", k) for k, size in enumerate(self.indices.shape)
        ]
        return self.writer.unravel(number, extents, self.indices.size)

    def _fail(self, out_of_range: Expr, value: Expr, extent: Expr) -> None:
        """Let the call fail; all blocks read the same indices, and the first one reports."""
        tile = self.writer.tile
        with when(tile.equals(0) & out_of_range):
            failure = loop.Fail(tile.value, value.value, extent.value, int(Status.INDEX))
            self.writer.emit.place(failure)

    def _put(self, position: Expr, number: Expr, column: Expr) -> None:
        """Apply one update to the thread's elements."""
        element, update = self._element(position, column, self._update_index(number))
        apply_update(self.op, self.body, self.lanes, self.result, element, update)
