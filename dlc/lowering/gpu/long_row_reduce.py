"""Row reductions on a GPU by blocks: the threads of a block compute one element from rows of any length.

The threads divide the inner indices, neighbours to neighbours; reductions end in a fixed tree. A staged row
is in shared memory if it is short, else in the kernel's scratch.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    broadcast,
    combine,
    constant,
    index,
    reduce_lanes,
)
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, ceil_divide, product
from dlc.lowering.gpu.elements import in_groups, lanes_at, store_elements
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.body import Body, Point, Row, combine_all, path
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.row_access import (
    before_results,
    checks_depend_on,
    dense_strides,
    element_of,
    read_where_it_writes,
    row_in_result,
)
from dlc.lowering.kernel_code.words import for_each, iterate, when
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS, GpuTarget
from dlc.target.work import element_work, nanoseconds

ACCUMULATORS = 4
"""Groups of neighbours that a thread loads before it adds any of them up."""


def lower_long_rows(op: kernel.Generic, gpu: GpuTarget) -> Lowered:
    """The function for a kernel of which a block computes each element."""
    writer = GridWriter(op, _threads(op))
    body = _BlockBody(writer, op, gpu.occupancy.row_bytes)
    extents = [writer.size(size, "extent", axis) for axis, size in enumerate(op.domain)]
    tiles = product(op.domain)
    places: list[Lane] = [*map(Uniform, writer.unravel_tile(extents))]
    known: dict[Value, Lane | Row] = dict(zip(op.indices, places, strict=True))
    needed, rest = before_results(op)
    point = body.ops(needed, Point(1, known))
    if read_where_it_writes(op, needed):
        writer.barrier()
    # One thread reads what only the results need: they may lie over it.
    with when(writer.once()):
        store_elements(op, body, body.ops(rest, point), places)
    scratch = () if body.scratch is None else (body.scratch,)
    cost = nanoseconds(element_work(op.body, 1, gpu.costs))
    return writer.finish(tiles, cost, tiles * body.scratch_bytes, scratch)


def _threads(op: kernel.Generic) -> int:
    """Threads for one element: a warp for short rows, more for long ones."""
    length = longest(op)
    return 32 if length <= 64 else 128 if length <= 1024 else 256


def longest(op: kernel.Generic) -> int:
    """Inner indices of one element, where they are known; else a usual number."""
    lengths = [product(inner.extents) for inner in op.body if isinstance(inner, kernel.Inner)]
    return max((length for length in lengths if isinstance(length, int)), default=1024)


class _BlockBody(Body):
    """Writes bodies of which the threads of a block compute one element together."""

    def __init__(self, writer: GridWriter, op: kernel.Generic, most_shared: int) -> None:
        super().__init__(writer, {argument: view for view, argument in enumerate(op.arrays)}, 1)
        self.grid = writer
        self.op = op
        self.scratch: Value | None = None
        self.scratch_bytes: Size = 0
        self._shared = 0
        """Bytes of shared memory, up to `most_shared`, that rows take so far."""
        self._most_shared = most_shared
        self._alone = False
        """Whether the code is for one inner index, where every thread is on its own."""

    def _reduce(self, op: kernel.Reduce, point: Point) -> Lane:
        if self._alone or not op.extents:
            return super()._reduce(op, point)
        emit, group = self.emit, self._group(op)
        extents = self._extents(op)
        point, inside = self._before(op.body, point)
        dtype = scalar.element(op.result.type)
        start = constant(emit, kernel.identity(op.combine, dtype), dtype)
        step = self.grid.threads * group

        def added(position: Expr, sums: Sequence[Expr]) -> list[Expr]:
            """The sums with the next groups, one for each."""
            starts = [position + k * step for k in range(len(sums))]
            lanes = [self._at(op, inside, point, at, extents, group) for at in starts]
            groups = [in_lanes(lane, group) for lane in lanes]
            return [combine(op.combine, *pair) for pair in zip(sums, groups, strict=True)]

        def several(position: Expr, carried: list[Expr]) -> list[Expr]:
            _, *sums = carried
            sums = added(position, sums)
            return [position + len(sums) * step, *sums]

        total = self._length(extents)
        first = self.grid.thread * group
        initial = [first, *[broadcast(start, group)] * ACCUMULATORS]
        # Where the last of several groups begins inside, all of them are inside.
        limit = total - (ACCUMULATORS - 1) * step
        first, *sums = iterate(emit, first, limit, initial, several, ACCUMULATORS * step)
        sums[:1] = iterate(emit, first, total, sums[:1], added, step)
        own = combine_all(op.combine, sums)
        if group > 1:
            own = reduce_lanes(op.combine, own)
        return Uniform(self.grid.block_reduce(op.combine, own))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        assert not self._alone, "rows are staged for a whole element"
        group, extents = self._group(op), self._extents(op)
        row = self._room_for(op, point, extents)
        point, inside = self._before(op.body, point)
        total = self._length(extents)
        first = self.grid.thread * group
        with for_each(self.emit, first, total, self.grid.threads * group) as position:
            value = self._at(op, inside, point, position, extents, group)
            places = lanes_at(self.grid.unravel(position, extents, product(op.extents)), group)
            self.store(point.at(group), value, row.pointer, places, row.strides)
        self.grid.barrier()
        return row

    def _group(self, op: kernel.Inner) -> int:
        """How many neighbours a thread has at a time; they are of one row of the inner indices."""
        if not op.extents or checks_depend_on(self.op, op.body.arguments):
            return 1
        if any(isinstance(inner, kernel.Inner) for inner in op.body):
            return 1
        loads = [inner.array for inner in op.body if isinstance(inner, kernel.Load)]
        widest = max((kernel.array_type(array).dtype.bytes for array in loads), default=ACCESS)
        if isinstance(op, kernel.Stage):
            widest = max(widest, element_of(op).bytes)
        return in_groups(op.extents[-1], ACCESS // widest)

    def _at(
        self,
        op: kernel.Inner,
        inside: list[Op],
        point: Point,
        position: Expr,
        extents: Sequence[Expr],
        group: int,
    ) -> Lane:
        """What the body yields for the neighbours that begin at a position among all inner indices."""
        places = lanes_at(self.grid.unravel(position, extents, product(op.extents)), group)
        self._alone = True
        lane = self._inner_value(op, inside, point.at(group), places)
        self._alone = False
        return lane

    def _length(self, extents: Sequence[Expr]) -> Expr:
        """How many inner indices there are."""
        length: Index = 1
        for extent in extents:
            length = extent * length
        return index(self.emit, length)

    def _room_for(self, op: kernel.Stage, point: Point, extents: Sequence[Expr]) -> Row:
        """Where a staged row goes: into the result that it is, shared memory if it is short, or scratch."""
        row = row_in_result(self, self.op, op, point)
        if row is not None:
            return row
        writer, dtype, elements = self.grid, element_of(op), product(op.extents)
        strides = dense_strides(extents)
        if isinstance(elements, int) and self._shared + elements * dtype.bytes <= self._most_shared:
            self._shared += elements * dtype.bytes
            return Row(writer.shared(max(1, elements), dtype), strides)
        if self.scratch is None:
            self.scratch = writer.block.add_argument(writer.pointers[0].type, "scratch")
        # Scratch has the rows of all tiles, stage after stage.
        length = ceil_divide(elements * dtype.bytes, 64) * 64
        before = writer.size(product(self.op.domain) * self.scratch_bytes, "stage", path(op))
        own = writer.tile * writer.size(length, "row", path(op))
        self.scratch_bytes = self.scratch_bytes + length
        return Row(Pointer(self.emit, self.scratch, dtype).skip(before + own), strides)
