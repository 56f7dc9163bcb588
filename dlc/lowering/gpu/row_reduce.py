"""Row reductions on a GPU in registers: the threads of a row keep it in registers.

A row is read once, 16 bytes at a time: each thread keeps *pieces* of 16 bytes in registers from one
reduction or stage to the next. Reductions end in a fixed tree of shuffles, so the bits are the same in
every run. A short row has one thread for each piece, up to a warp, and a block computes several rows; a
long row has up to all threads of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Condition,
    Expr,
    broadcast,
    combine,
    constant,
    minimum,
    reduce_lanes,
    select,
)
from dlc.dialects.scalar import element
from dlc.dialects.simt import WARP
from dlc.ir.core import Value
from dlc.ir.dims import ceil_divide, product
from dlc.lowering.gpu.elements import in_groups, store_elements
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.body import Body, Point, Row
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes, neighbours
from dlc.lowering.kernel_code.row_access import (
    before_results,
    checks_depend_on,
    read_where_it_writes,
)
from dlc.lowering.kernel_code.words import unravel, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS
from dlc.target.gpu_costs import GpuCosts
from dlc.target.work import element_work, nanoseconds

THREADS = 128
"""Threads of a block that computes several rows."""
MOST_THREADS = 512
"""The most threads of a row: each can then use 128 registers."""
PIECES = 8
"""The most pieces of a row in a thread."""
REGISTERS = 96
"""Registers of a thread for its pieces of all rows that the kernel reads and stages."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """The division of a row among `threads` threads, each with `pieces` pieces of `group` elements."""

    length: int
    group: int
    threads: int
    pieces: int

    @property
    def rows(self) -> int:
        """The number of rows of a block: several if a warp or less computes a row."""
        return THREADS // self.threads if self.threads <= WARP else 1

    @property
    def block(self) -> int:
        """The threads of a block."""
        return self.threads * self.rows


def row_shape(op: kernel.Generic) -> RowShape | None:
    """The division of the rows of a kernel; None if its rows differ in length, or are too long."""
    inners = [inner for inner in op.walk() if isinstance(inner, kernel.Inner)]
    lengths = {inner.extents for inner in inners}
    if len(lengths) != 1 or any(inner.parent is not op.body for inner in inners):
        return None
    (extents,) = lengths
    length = extents[0] if len(extents) == 1 else 0
    if not isinstance(length, int) or length < 1 or not _reads_own_elements(op):
        return None
    loads = [load.array for one in inners for load in one.body if isinstance(load, kernel.Load)]
    staged = [inner.result for inner in inners if isinstance(inner, kernel.Stage)]
    dtypes = [kernel.array_type(array).dtype.bytes for array in {*loads, *staged}]
    checks = any(checks_depend_on(op, inner.body.arguments) for inner in inners)
    group = 1 if checks or not dtypes else in_groups(length, ACCESS // max(dtypes))
    return _divide(length, group, max(1, len(dtypes)))


def _divide(length: int, group: int, arrays: int) -> RowShape | None:
    """The division with the fewest threads whose registers hold the arrays; one piece each up to a warp.

    None if a row does not fit the registers of `MOST_THREADS` threads.
    """
    parts, threads = length // group, 1
    most = max(1, min(PIECES, REGISTERS // (arrays * group)))
    while threads < parts and (threads < WARP or threads * most < parts):
        threads *= 2
    return (
        RowShape(length, group, threads, -(-parts // threads)) if threads <= MOST_THREADS else None
    )


def _reads_own_elements(op: kernel.Generic) -> bool:
    """Whether staged rows are read only at the index that is being computed."""
    for load in op.walk():
        if isinstance(load, kernel.Load) and isinstance(load.array.op, kernel.Stage):
            around = load.parent
            assert around is not None
            if (
                not isinstance(around.parent, kernel.Inner)
                or list(load.indices) != around.arguments
            ):
                return False
    return True


def lower_rows(op: kernel.Generic, shape: RowShape, costs: GpuCosts) -> Lowered:
    """The function for a kernel with this division of its rows."""
    return _Rows(op, shape, costs).lower()


class _Rows(Body):
    """The code of a thread for its pieces of a row."""

    def __init__(self, op: kernel.Generic, shape: RowShape, costs: GpuCosts) -> None:
        self.costs = costs
        self.grid = GridWriter(op, shape.block)
        arrays = {argument: view for view, argument in enumerate(op.arrays)}
        super().__init__(self.grid, arrays, shape.group)
        self.op = op
        self.shape = shape
        self.positions: list[Lane] = []
        """The positions of the thread's pieces in the row."""
        self.has_last: Condition = True
        """Whether the thread has a last piece."""
        self._staged: dict[Value, list[Lane]] = {}
        self._loaded: dict[tuple[Value, tuple[Lane, ...]], Lane] = {}
        self._piece = 0

    def lower(self) -> Lowered:
        op, writer, shape = self.op, self.grid, self.shape
        count = product(op.domain)
        rows = writer.size(count, "count")
        number, lane = unravel(writer.thread, [shape.threads] * 2)
        row = writer.tile * shape.rows + number
        # Threads beyond the last row compute the last row again, and write nothing.
        own = minimum(row, rows - 1)
        extents = [writer.size(size, "extent", axis) for axis, size in enumerate(op.domain)]
        where: list[Lane] = [*map(Uniform, writer.unravel(own, extents, count))]
        self._set_positions(lane)
        needed, rest = before_results(op)
        known: dict[Value, Lane | Row] = dict(zip(op.indices, where, strict=True))
        point = self.ops(needed, Point(1, known))
        if read_where_it_writes(op, needed):
            writer.barrier()
        exists = row < rows
        self._store_rows(where, exists)
        with when(exists & lane.equals(0)):
            store_elements(op, self, self.ops(rest, point), where)
        cost = nanoseconds(shape.rows * element_work(op.body, shape.group, self.costs))
        return writer.finish(ceil_divide(count, shape.rows), cost)

    def _set_positions(self, lane: Expr) -> None:
        """Set the positions of the thread's pieces, clamping a missing last piece to the end of the row."""
        shape = self.shape
        length = self.writer.size(shape.length, "length")
        first = lane * shape.group
        is_even = shape.pieces * shape.threads * shape.group <= shape.length
        for piece in range(shape.pieces):
            step = piece * shape.threads * shape.group
            place = first + step if step else first
            if piece == shape.pieces - 1 and not is_even:
                self.has_last = place < length
                place = minimum(place, length - shape.group)
            self.positions.append(neighbours(place, shape.group))

    # Reductions and stages, piece by piece.

    def _load(self, op: kernel.Load, point: Point) -> Lane:
        staged = self._staged.get(op.array)
        if staged is not None:
            return staged[self._piece]
        key = op.array, tuple([point.lane(value) for value in op.indices])
        if key not in self._loaded:
            self._loaded[key] = super()._load(op, point)
        return self._loaded[key]

    def _pieces(self, op: kernel.Inner, point: Point) -> list[Lane]:
        """The values of a reduction or a stage for each piece of the thread."""
        point, inside = self._before(op.body, point)
        pieces: list[Lane] = []
        for piece, place in enumerate(self.positions):
            self._piece = piece
            pieces.append(self._inner_value(op, inside, point.at(self.shape.group), [place]))
        return pieces

    def _reduce(self, op: kernel.Reduce, point: Point) -> Lane:
        name, group, dtype = op.combine, self.shape.group, element(op.result.type)
        *pieces, last = [in_lanes(lane, group) for lane in self._pieces(op, point)]
        start = constant(self.emit, kernel.identity(name, dtype), dtype)
        total = reduce(partial(combine, name), pieces) if pieces else None
        if isinstance(self.has_last, Expr):
            nothing = broadcast(start, group)
            last = select(broadcast(self.has_last, group), last, nothing)
        total = last if total is None else combine(name, total, last)
        if group > 1:
            total = reduce_lanes(name, total)
        if self.shape.threads <= WARP:
            return Uniform(self.grid.warp_reduce(name, total, self.shape.threads))
        return Uniform(self.grid.block_reduce(name, total))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        self._staged[op.result] = self._pieces(op, point)
        # The row is not in memory: its readers have it in registers.
        return Row(self.writer.pointer(0), ())

    def _store_rows(self, where: Sequence[Lane], exists: Expr) -> None:
        """Write the staged rows that are results."""
        views = {
            view: self._staged[value]
            for view, value in enumerate(self.op.body.terminator.operands, len(self.op.inputs))
            if isinstance(value.op, kernel.Stage)
        }
        if not views:
            return
        point = Point(self.shape.group, {})

        def write(pieces: Sequence[int]) -> None:
            for view, lanes in views.items():
                for piece in pieces:
                    self.store_in(point, lanes[piece], view, [*where, self.positions[piece]])

        last = self.shape.pieces - 1
        with when(exists):
            if self.has_last is True:
                write(range(last + 1))
            else:
                write(range(last))
                with when(self.has_last):
                    write([last])
