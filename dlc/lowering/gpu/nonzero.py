"""`kernel.nonzero` for a GPU: stream compaction by one block, which goes through the elements in order.

Each thread has a few neighbouring elements at a time; a block scan of the number of true ones gives the
rows of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop
from dlc.dialects.expr import Expr, index, minimum
from dlc.ir.passes import Context
from dlc.ir.types import I64, INDEX
from dlc.lowering.gpu.block_scan import scan
from dlc.lowering.gpu.writer import GridWriter, threads_for, when
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.words import iterate
from dlc.lowering.kernel_code.writer import Lowered
from dlc.runtime.abi import Status
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget
from dlc.target.work import nanoseconds

THREADS = 1024
EACH = 4
"""Neighbours that a thread looks at, at a time."""


def lower_nonzero(op: kernel.NonZero, context: Context) -> Lowered:
    """The function for the places of true elements in destination form."""
    return _NonZero(op, gpu_of(context.options)).lower()


class _NonZero:
    def __init__(self, op: kernel.NonZero, gpu: GpuTarget) -> None:
        self.source = kernel.array_type(op.inputs[0])
        self.gpu = gpu
        self.writer = GridWriter(op, threads_for(self.source.size, EACH, THREADS))
        self.body = Body(self.writer, {}, 1)
        self.limit = self.writer.size(op.bound, "limit")

    def lower(self) -> Lowered:
        writer = self.writer
        own = writer.thread * EACH
        end = writer.size(self.source.size, "elements")

        def some(start: Expr, carried: list[Expr]) -> list[Expr]:
            return [self._some(start + own, end, carried[0])]

        (count,) = iterate(writer.emit, 0, end, [0], some, writer.threads * EACH)
        with when(writer.once()):
            self._finish(count)
        return writer.finish(1, nanoseconds(self.source.size * self.gpu.costs.nonzero_element))

    def _some(self, first: Expr, end: Expr, before: Expr) -> Expr:
        """Note the thread's neighbours from `first` on; how many true ones there are up to now."""
        last = end - 1
        looked_at: list[tuple[Expr, list[Expr]]] = []
        zero = index(self.writer.emit, 0)
        count = zero
        for k in range(EACH):
            number = first + k
            exists = number < end
            places = self._places(minimum(number, last))
            lanes = [Uniform(place) for place in places]
            is_true = exists & in_lanes(self.body.load(Point(1, {}), 0, lanes), 1)
            count = count + is_true.cast(INDEX)
            looked_at.append((is_true, places))
        prefix, total = scan(self.writer, "add", count, zero)
        row = before + prefix
        for is_true, places in looked_at:
            room = row < self.limit
            with when(is_true & room):
                self._note(row, places)
            row = row + is_true.cast(INDEX)
        return before + total

    def _places(self, number: Expr) -> list[Expr]:
        """The index along each axis of an element."""
        shape = self.source.shape
        extents = [self.writer.size(size, "extent", axis) for axis, size in enumerate(shape)]
        return self.writer.unravel(number, extents, self.source.size)

    def _note(self, row: Expr, places: Sequence[Expr]) -> None:
        """Write the place of a true element into its row."""
        for axis, place in enumerate(places):
            where: list[Lane] = [Uniform(row), Uniform(index(row.emit, axis))]
            self.body.store_in(Point(1, {}), Uniform(place.cast(I64)), 1, where)

    def _finish(self, count: Expr) -> None:
        """Store how many there are; the call fails if there was no room for all of them."""
        writer = self.writer
        with when(count > self.limit):
            failure = loop.Fail(writer.tile.value, count.value, self.limit.value, int(Status.BOUND))
            writer.emit.place(failure)
        writer.pointer(2)[0] = minimum(count, self.limit).cast(I64)
