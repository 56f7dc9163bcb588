"""`kernel.sort` on a CPU: a bottom-up merge sort of each row's keys and indices in the thread's scratch.

A merge sort is stable and takes the same steps for any keys. The results are then gathered by the sorted
indices, so they keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, minimum, select
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX, POINTER, DType, wide
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Uniform, in_lanes
from dlc.lowering.kernel_code.words import for_each, iterate, repeat_while, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.work import tile_rows, tiles

ROUNDS = 12
"""The assumed number of merge rounds of a row of unknown length, for the cost."""


def lower_sort(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for a sort in destination form."""
    assert isinstance(op, kernel.Sort)
    return _Sort(op, cpu_of(context.options).costs).lower()


@dataclass(frozen=True, slots=True)
class _Run:
    """Two arrays of the scratch: the keys of a row, and their original indices."""

    keys: Pointer
    indices: Pointer


class _Sort:
    def __init__(self, op: kernel.Sort, costs: CpuCosts) -> None:
        self.op = op
        self.costs = costs
        self.writer = Writer(op)
        type = kernel.array_type(op.inputs[0])
        self.shape, self.dtype, self.key = type.shape, type.dtype, wide(type.dtype)
        self.length = self.writer.size(self.shape[op.axis], "length")
        self.body = Body(self.writer, {}, 1)
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.scratch = Pointer(self.writer.emit, argument, INDEX)
        self.bytes: Size = 0

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        size = self.shape[op.axis]
        outer = [extent for axis, extent in enumerate(self.shape) if axis != op.axis]
        rounds = size.bit_length() + 2 if isinstance(size, int) else ROUNDS
        work = size * self.costs.sorted_element * rounds
        per_tile = tile_rows(work, self.costs)
        runs = [_Run(self._allocate(k, self.key), self._allocate(2 + k, INDEX)) for k in range(2)]
        height = writer.size(per_tile, "rows_per_tile")
        rows = writer.size(product(outer), "rows")
        lower = writer.first * height
        upper = minimum(writer.last * height, rows)
        extents = [writer.size(extent, "extent", k) for k, extent in enumerate(outer)]
        with for_each(writer.emit, lower, upper) as number:
            row_index = unravel(number, extents) if extents else []
            self._read(row_index, runs[0])
            self._write(row_index, self._merge_all(runs[0], runs[1]))
        count, cost = tiles(product(outer), per_tile, work)
        return writer.finish(count, cost, self.bytes, (self.scratch.value,))

    def _allocate(self, number: int, dtype: DType) -> Pointer:
        """An array in the scratch for a row and one more element, which a merge may load."""
        start = self.writer.size(self.bytes, "scratch", number)
        needed_bytes = (self.shape[self.op.axis] + 1) * dtype.bytes
        self.bytes = self.bytes + ceil_divide(needed_bytes, 64) * 64
        return self.scratch.skip(start).of(dtype)

    def _element(self, row_index: list[Expr], along: Expr) -> list[Lane]:
        axis = self.op.axis
        return [Uniform(place) for place in (*row_index[:axis], along, *row_index[axis:])]

    def _read(self, row_index: list[Expr], run: _Run) -> None:
        """Read the keys of a row with their indices."""
        with for_each(self.writer.emit, 0, self.length) as k:
            key = in_lanes(self.body.load(Point(1, {}), 0, self._element(row_index, k)), 1)
            run.keys[k] = key.cast(self.key)
            run.indices[k] = k

    def _write(self, row_index: list[Expr], run: _Run) -> None:
        """Write all inputs in the sorted order."""
        reads = len(self.op.inputs)
        count = self.writer.size(self.op.count, "count")
        with for_each(self.writer.emit, 0, count) as k:
            source, point = run.indices[k], Point(1, {})
            for view in range(reads):
                lane = self.body.load(point, view, self._element(row_index, source))
                self.body.store_in(point, lane, reads + view, self._element(row_index, k))

    def _merge_all(self, source: _Run, target: _Run) -> _Run:
        """Merge sorted runs of 1, 2, 4, ... elements until one is left, and return its arrays."""
        emit = self.writer.emit
        arrays = (source.keys, source.indices, target.keys, target.indices)

        def run(keys: Expr, indices: Expr) -> _Run:
            return _Run(Pointer(emit, keys.value, self.key), Pointer(emit, indices.value, INDEX))

        def merge(carried: list[Expr]) -> list[Expr]:
            width, *runs = carried
            self._merge(width, run(*runs[:2]), run(*runs[2:]))
            return [width + width, *runs[2:], *runs[:2]]

        initial = [1, *(Expr(emit, array.value) for array in arrays)]
        _, *runs = repeat_while(emit, initial, lambda carried: carried[0] < self.length, merge)
        return run(*runs[:2])

    def _merge(self, width: Expr, source: _Run, target: _Run) -> None:
        """A round: merge each pair of neighbouring runs of `width` elements into one."""
        emit = self.writer.emit
        double = width + width
        pairs = (self.length + double - 1) // double
        with for_each(emit, 0, pairs) as number:
            low = number * double
            middle = minimum(low + width, self.length)
            high = minimum(low + double, self.length)

            def take(k: Expr, carried: list[Expr]) -> list[Expr]:
                return self._take(k, carried, (middle, high), source, target)

            iterate(emit, low, high, [low, middle], take)

    def _take(
        self,
        k: Expr,
        carried: list[Expr],
        ends: tuple[Expr, Expr],
        source: _Run,
        target: _Run,
    ) -> list[Expr]:
        """Move the smaller first element of two runs to the target; of equal ones, the left one."""
        i, j = carried
        left, right = source.keys[i], source.keys[j]
        has_left, has_right = i < ends[0], j < ends[1]
        better = has_right & self._is_before(right, left)
        is_right = better | ~has_left
        key = select(is_right, right, left)
        place = select(is_right, j, i)
        target.keys[k] = key
        target.indices[k] = source.indices[place]
        step = is_right.cast(INDEX)
        next_j = j + step
        return [i + (1 - step), next_j]

    def _is_before(self, one: Expr, other: Expr) -> Expr:
        """Whether a key is strictly before another; NaN is above all numbers."""
        descending = self.op.descending
        test = one > other if descending else one < other
        if not self.key.is_float:
            return test
        low, high = (other, one) if descending else (one, other)
        return test | (high.differs(high) & low.equals(low))
