"""`kernel.scatter` for a GPU without atomics: each block owns a range of the indexed elements.

A block goes through all indices, some at a time, and notes in order those that fall into its stretch: the
updates of one place are then done by one thread, one after the other, in row-major order of the index
tensors. So no two threads meet, and the bits are the same in every run.

Where the target has more axes than are indexed, the threads share the elements behind a place; where it has
none, they share the places.
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
    combine,
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
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, varying
from dlc.lowering.kernel_code.words import for_each
from dlc.lowering.kernel_code.writer import Lowered
from dlc.runtime.abi import Status
from dlc.target import gpu_of
from dlc.target.gpu import ACCESS, GpuTarget
from dlc.target.work import nanoseconds

THREADS = 256
EACH = 4
"""Indices that a thread looks at, at a time."""
LEAST = 64
"""Places of a stretch, at least."""
COMBINERS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


def lower_scatter(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for scattered updates in destination form."""
    assert isinstance(op, kernel.Scatter)
    return _Scatter(op, gpu_of(context.options)).lower()


class _Scatter:
    def __init__(self, op: kernel.Scatter, gpu: GpuTarget) -> None:
        self.op = op
        self.gpu = gpu
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
        self.stretch = maximum(LEAST, ceil_divide(self.indexed, gpu.occupancy.scatter_blocks))
        self.body = Body(self.writer, {}, self.group)

    def lower(self) -> Lowered:
        writer = self.writer
        stretches = ceil_divide(self.indexed, self.stretch)
        counts = [writer.size(stretches, "stretches"), writer.size(self.across, "across")]
        number, part = writer.unravel(writer.tile, counts, stretches * self.across)
        length = writer.size(self.stretch, "stretch")
        low = number * length
        high = minimum(low + length, writer.size(self.indexed, "indexed"))
        own = self._own(part)
        if not mem.same_place(self.op.inputs[0], self.op.outs[0]):
            self._copy(low, high, own)
        self._update(low, high, own)
        work = (self.stretch + self.indices.size) * self.gpu.costs.scattered_element * self.group
        return writer.finish(stretches * self.across, nanoseconds(work))

    def _own(self, part: Expr) -> Expr:
        """The first of the elements behind each place that are the thread's; without any, its number."""
        thread = self.writer.thread
        return (part * THREADS + thread) * self.group if self.rest else thread

    # Elements of the target.

    def _place(
        self, at: Expr, own: Expr, before: Sequence[Expr] = ()
    ) -> tuple[list[Lane], list[Lane]]:
        """The indices of a group: those of the target, and those of its update behind `before`."""
        axes = self.op.axes
        extents = [self._extent(axis) for axis in axes]
        along = dict(zip(axes, self.writer.unravel(at, extents, self.indexed), strict=True))
        rest: list[Expr] = []
        if self.rest:
            extents = [self._extent(axis) for axis in self.rest]
            rest = self.writer.unravel(own, extents, self.behind)
        along |= dict(zip(self.rest, rest, strict=True))
        place = [along[axis] for axis in range(len(self.shape))]
        return lanes_at(place, self.group), lanes_at([*before, *rest], self.group)

    def _extent(self, axis: int) -> Expr:
        return self.writer.size(self.shape[axis], "extent", axis)

    def _is_own(self, at: Expr, low: Expr, own: Expr) -> Expr:
        """Whether the elements behind a place, or the place itself, are the thread's."""
        if self.rest:
            return own < self.writer.size(self.behind, "behind")
        return ((at - low) % THREADS).equals(own)

    def _copy(self, low: Expr, high: Expr, own: Expr) -> None:
        """What the thread has of the stretch, as the target has it."""
        emit = self.writer.emit
        if not self.rest:
            with for_each(emit, low + own, high, THREADS) as at:
                self._copy_group(at, own)
            return
        with when(self._is_own(low, low, own)), for_each(emit, low, high) as at:
            self._copy_group(at, own)

    def _copy_group(self, at: Expr, own: Expr) -> None:
        places, _ = self._place(at, own)
        point = Point(self.group, {})
        self.body.store_in(point, self.body.load(point, 0, places), self.target, places)

    # Updates.

    def _update(self, low: Expr, high: Expr, own: Expr) -> None:
        """All updates of the stretch, in the order of the index tensors."""
        writer = self.writer
        noted = [writer.shared(THREADS * EACH, INDEX) for _ in range(2)]
        first = writer.thread * EACH
        end = writer.size(self.indices.size, "updates")
        with for_each(writer.emit, 0, end, THREADS * EACH) as start:
            count = self._note(start + first, end, (low, high), noted)
            writer.barrier()
            with for_each(writer.emit, 0, count) as k:
                at, which = (numbers[k] for numbers in noted)
                with when(self._is_own(at, low, own)):
                    self._put(at, which, own)
            writer.barrier()

    def _note(
        self, begin: Expr, end: Expr, stretch: tuple[Expr, Expr], noted: Sequence[Pointer]
    ) -> Expr:
        """Note the places, and the numbers, of updates of the stretch; how many there are."""
        last = end - 1
        looked_at: list[tuple[Expr, Expr, Expr]] = []
        zero = index(self.writer.emit, 0)
        count = zero
        for k in range(EACH):
            which = begin + k
            exists = which < end
            at = self._indexed(minimum(which, last), exists)
            met = exists & ((at >= stretch[0]) & (at < stretch[1]))
            count = count + select(met, 1, 0)
            looked_at.append((met, at, which))
        row, total = scan(self.writer, "add", count, zero)
        for met, at, which in looked_at:
            with when(met):
                for numbers, number in zip(noted, (at, which), strict=True):
                    numbers[row] = number
            row = row + select(met, 1, 0)
        return total

    def _indexed(self, which: Expr, exists: Expr) -> Expr:
        """The number of the place that an update names; -1, and the call fails, where there is none."""
        lanes: list[Lane] = [Uniform(value) for value in self._of_update(which)]
        number: Index = 0
        valid: Condition = True
        for k, axis in enumerate(self.op.axes):
            value = in_lanes(self.body.load(Point(1, {}), 2 + k, lanes), 1).cast(INDEX)
            extent = self._extent(axis)
            inside = (value >= 0) & (value < extent)
            self._refuse(exists & ~inside, value, extent)
            valid = all_of([valid, inside])
            number = value if k == 0 else number * extent + value
        return select(valid, number, -1)

    def _of_update(self, which: Expr) -> list[Expr]:
        """The index of an update along each axis of the index tensors."""
        extents = [
            self.writer.size(size, "updates", k) for k, size in enumerate(self.indices.shape)
        ]
        return self.writer.unravel(which, extents, self.indices.size)

    def _refuse(self, wrong: Expr, value: Expr, extent: Expr) -> None:
        """The call fails; all blocks see it, one says so."""
        tile = self.writer.tile
        with when(tile.equals(0) & wrong):
            failure = loop.Fail(tile.value, value.value, extent.value, int(Status.INDEX))
            self.writer.emit.place(failure)

    def _put(self, at: Expr, which: Expr, own: Expr) -> None:
        """One update, as far as it is the thread's."""
        places, source = self._place(at, own, self._of_update(which))
        point = Point(self.group, {})
        new = self.body.load(point, 1, source)
        if self.op.mode != "set":
            old = self.body.load(point, self.target, places)
            one, other = in_lanes(old, point.lanes), in_lanes(new, point.lanes)
            new = varying(combine(COMBINERS[self.op.mode], one, other), point.lanes)
        self.body.store_in(point, new, self.target, places)
