"""`kernel.prefix_scan` for a GPU: a block for each row, or a thread for each of many neighbouring rows.

A block scans a row in chunks, a few neighbouring elements per thread: each thread sums its own, a block
scan combines the threads' sums, and the total is carried to the next chunk (CUB: BlockScan).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, combine, constant, minimum, select
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context
from dlc.lowering.gpu.block_scan import scan
from dlc.lowering.gpu.elements import THREADS, ElementIndex, over_groups
from dlc.lowering.gpu.writer import GridWriter, threads_for
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.words import iterate, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget
from dlc.target.work import nanoseconds

EACH = 4
"""Neighbours that a thread has at a time."""


def lower_running(op: kernel.PrefixScan, context: Context) -> Lowered:
    """The function for running totals in destination form."""
    running = _Running(op, gpu_of(context.options))
    return running.columns() if running.by_columns else running.rows()


class _Running:
    def __init__(self, op: kernel.PrefixScan, gpu: GpuTarget) -> None:
        self.gpu = gpu
        self.op = op
        type = kernel.array_type(op.inputs[0])
        self.dtype, self.shape = type.dtype, type.shape
        self.others = [size for axis, size in enumerate(self.shape) if axis != op.axis]
        self.length: Size = self.shape[op.axis]
        self.by_columns = op.axis < len(self.shape) - 1 and not self._are_few
        threads = THREADS if self.by_columns else threads_for(self.length, EACH, THREADS)
        self.writer = GridWriter(op, threads)
        self.body = Body(self.writer, {}, 1)

    @property
    def _are_few(self) -> bool:
        """Whether there are too few rows for a thread each."""
        count = product(self.others)
        return isinstance(count, int) and count <= self.gpu.occupancy.idle_threads

    def columns(self) -> Lowered:
        """A thread goes along each row; neighbours are in neighbouring rows."""

        def write(places: list[ElementIndex], lanes: int) -> None:
            for place in places:
                self._along(place)

        tiles = over_groups(self.writer, tuple(self.others), 1, 1, write)
        return self.writer.finish(
            tiles, nanoseconds(self.length * THREADS * self.gpu.costs.scanned_element)
        )

    def _along(self, others: Sequence[Expr]) -> None:
        def step(k: Expr, carried: list[Expr]) -> list[Expr]:
            (before,) = carried
            after = combine(self.op.combine, before, self._load(others, k))
            self._store(before if self.op.exclusive else after, others, k)
            return [after]

        iterate(self.writer.emit, 0, self._size(), [self._nothing()], step)

    def rows(self) -> Lowered:
        """A block goes along each row."""
        writer = self.writer
        count = product(self.others)
        extents = [writer.size(size, "extent", k) for k, size in enumerate(self.others)]
        others = writer.unravel_tile(extents)
        own = writer.thread * EACH

        def step(start: Expr, carried: list[Expr]) -> list[Expr]:
            return [self._some(others, start + own, carried[0])]

        stride = writer.threads * EACH
        iterate(writer.emit, 0, self._size(), [self._nothing()], step, stride)
        return writer.finish(count, nanoseconds(self.length * self.gpu.costs.scanned_element))

    def _some(self, others: Sequence[Expr], first: Expr, before: Expr) -> Expr:
        """The totals of the thread's neighbours from `first` on; that of all that the block has now."""
        name, nothing, end = self.op.combine, self._nothing(), self._size()
        places = [first + k for k in range(EACH)]
        inside = [place < end for place in places]
        last = end - 1
        values = [
            select(within, self._load(others, minimum(place, last)), nothing)
            for place, within in zip(places, inside, strict=True)
        ]
        own = values[0]
        for value in values[1:]:
            own = combine(name, own, value)
        prefix, whole = scan(self.writer, name, own, nothing)
        total = combine(name, before, prefix)
        for place, within, value in zip(places, inside, values, strict=True):
            after = combine(name, total, value)
            with when(within):
                self._store(total if self.op.exclusive else after, others, place)
            total = after
        return combine(name, before, whole)

    # Elements, by their number along the axis in the order that they are taken in.

    def _size(self) -> Expr:
        return self.writer.size(self.length, "length")

    def _nothing(self) -> Expr:
        return constant(self.writer.emit, kernel.identity(self.op.combine, self.dtype), self.dtype)

    def _place(self, others: Sequence[Expr], k: Expr) -> list[Lane]:
        if self.op.reverse:
            k = self._size() - 1 - k
        axis = self.op.axis
        return [Uniform(value) for value in (*others[:axis], k, *others[axis:])]

    def _load(self, others: Sequence[Expr], k: Expr) -> Expr:
        return in_lanes(self.body.load(Point(1, {}), 0, self._place(others, k)), 1)

    def _store(self, value: Expr, others: Sequence[Expr], k: Expr) -> None:
        self.body.store_in(Point(1, {}), Uniform(value), 1, self._place(others, k))
