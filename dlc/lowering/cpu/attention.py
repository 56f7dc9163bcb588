"""`kernel.attention` as loops: a block of keys at a time, with the softmax corrected as larger scores come.

A tile is some queries of one batch. For each block of keys the scores of a few queries are computed, a
micro-tile of sums; they become powers relative to the largest score so far, and the products of these
with the values are added to the results. Where a block has a larger score than those before, what was
added up before is scaled down. At the end each row of results is divided by the sum of its powers.

A row whose scores are all -inf so far has powers relative to 0: they are 0, as are its sums, and at the
end 0 / 0 is NaN, which is what the softmax of nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    broadcast,
    combine,
    constant,
    index,
    maximum,
    ramp,
    reduce_lanes,
    select,
)
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.attention import Attention
from dlc.dialects.kernel.products import panel_count
from dlc.ir.dims import ceil_divide, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32, VectorType
from dlc.lowering.cpu.micro_kernel import Shape, multiply, shape_for, store, zeros
from dlc.lowering.kernel_code.words import for_each, iterate, unravel, whole_registers
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import nanoseconds

LOWEST = float("-inf")


def lower_attention(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one attention whose keys and values are in panels."""
    assert isinstance(op, Attention)
    return _Attention(op, context).lower()


@dataclass(frozen=True, slots=True)
class _State:
    """Memory of a tile: scores of a micro-tile; for each query the largest score, the sum of powers,
    and the sums of weighted values."""

    scores: Pointer
    largest: Pointer
    total: Pointer
    sums: Pointer


@dataclass(frozen=True, slots=True)
class _Tile:
    """Queries from `top` to before `bottom` of a batch, and where their operands are."""

    batch: list[Expr]
    top: Expr
    bottom: Expr
    query: Pointer
    keys: Pointer
    values: Pointer
    state: _State


class _Attention:
    def __init__(self, op: Attention, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        *self.batch, self.m, self.depth = kernel.array_type(op.query).shape
        self.cpu = cpu_of(context.options)
        self.shape: Shape = shape_for(F32, self.m, op.panel, 1, self.cpu)
        width = panel_count(op.width, op.panel)
        assert isinstance(width, int)
        self.out_panels = width
        self.lanes = self.shape.register.lanes
        self.block = self.cpu.products.attention_panels * op.panel
        tall = self.shape.rows * self.cpu.products.attention_blocks
        several = ceil_divide(self.m, self.shape.rows) * self.shape.rows
        self.height = min(tall, several) if isinstance(several, int) else tall

    def lower(self) -> Lowered:
        writer = self.writer
        down = ceil_divide(self.m, self.height)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.batch)]
        counts.append(writer.size(down, "down"))
        with for_each(writer.emit, writer.first, writer.last) as number:
            *batch, i = unravel(number, counts)
            self._tile(batch, i)
        costs = self.cpu.costs
        each = (self.depth + self.op.width) * costs.attention_product
        each = each + costs.attention_exp // self.lanes
        work = minimum(self.m, self.height) * self.op.count * each
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def _tile(self, batch: list[Expr], i: Expr) -> None:
        writer, op = self.writer, self.op
        emit = writer.emit
        top = i * self.height
        bottom = smaller(top + self.height, writer.size(self.m, "m"))
        query, keys, values = (writer.part(view, batch).of(F32) for view in range(3))
        tile = _Tile(batch, top, bottom, query, keys, values, self._state())
        self._clear(tile.state)
        panels = self._panels(bottom)
        with for_each(emit, 0, panels, self.cpu.products.attention_panels) as first:
            last = smaller(first + self.cpu.products.attention_panels, panels)
            start = first * op.panel
            count = smaller(writer.size(op.count, "n") - start, self.block)
            with for_each(emit, top, bottom, self.shape.rows) as row:
                self._scores(tile, row, first, last)
                self._powers(tile, row, start, count)
                self._weighted(tile, row, start, count)
        self._finish(tile)

    def _panels(self, bottom: Expr) -> Expr:
        """The panels up to the last key that a query before `bottom` sees."""
        op, writer = self.op, self.writer
        panels = writer.size(panel_count(op.count, op.panel), "panels")
        if op.causal is None:
            return panels
        keys = bottom + writer.size(op.causal, "causal")
        return smaller(panels, (keys + (op.panel - 1)) // op.panel)

    # Memory.

    def _stride(self, view: int, axis: int) -> Index:
        """The stride of a view along one of its last axes, counted from the end."""
        return self.writer.stride(view, len(self.writer.views[view].shape) + axis)

    @property
    def _width(self) -> int:
        """Elements of a row of sums, whole panels."""
        return self.out_panels * self.op.panel

    def _state(self) -> _State:
        sizes = self.shape.rows * self.block, self.height, self.height, self.height * self._width
        return _State(*(self.writer.buffer(size, F32) for size in sizes))

    def _clear(self, state: _State) -> None:
        """No scores yet, and sums of nothing."""
        emit = self.writer.emit
        zero, lowest = constant(emit, 0, F32), constant(emit, LOWEST, F32)
        zeros = constant(emit, 0, self.shape.register)
        with for_each(emit, 0, self.height) as row:
            state.largest[row] = lowest
            state.total[row] = zero
        with for_each(emit, 0, self.height * self._width, self.lanes) as place:
            state.sums.store(place, zeros)

    # The steps for a few queries and one block of keys.

    def _scores(self, tile: _Tile, row: Expr, first: Expr, last: Expr) -> None:
        """The products of the queries from `row` on with the keys of some panels."""
        shape, writer = self.shape, self.writer
        beyond = tile.bottom - 1
        queries = [
            tile.query + smaller(row + r, beyond) * self._stride(0, -2) for r in range(shape.rows)
        ]
        depth = writer.size(self.depth, "depth")
        with for_each(writer.emit, first, last) as p:
            keys = tile.keys + p * self._stride(1, -3)
            sums = multiply(shape, queries, [keys], depth, zeros(writer.emit, shape))
            scores = tile.state.scores + (p - first) * shape.panel
            store(shape, sums, scores, self.block)

    def _powers(self, tile: _Tile, row: Expr, start: Expr, count: Expr) -> None:
        """Scores become powers relative to the largest so far; what was summed before is corrected."""
        state = tile.state
        rows = smaller(tile.bottom - row, self.shape.rows)
        with for_each(self.writer.emit, 0, rows) as r:
            at = row - tile.top + r
            scores = state.scores + r * self.block
            most = self._masked(tile, scores, row + r, start, count)
            before = state.largest[at]
            largest = maximum(before, most)
            state.largest[at] = largest
            base = _base(largest)
            factor = (before - base).exp()
            sum = self._exponentials(scores, base, count)
            state.total[at] = state.total[at] * factor + sum
            self._scale(state, at, factor)

    def _masked(self, tile: _Tile, scores: Pointer, query: Expr, start: Expr, count: Expr) -> Expr:
        """Scale and mask the scores of a query, in place; the largest of them."""
        mask = self._mask_row(tile, query, start)

        def score(j: Expr, lanes: int) -> Expr:
            value = scores.load(j, lanes) * self.op.scale
            if mask is not None:
                hidden = mask.load(j, lanes)
                value = select(hidden, value, LOWEST) if mask.dtype is BOOL else value + hidden
            if self.op.causal is not None:
                last = query + self.writer.size(self.op.causal, "causal")
                key = ramp(start + j, lanes)
                value = select(key <= broadcast(last, lanes), value, LOWEST)
            scores.store(j, value)
            return value

        return self._reduce("maximum", LOWEST, count, score)

    def _mask_row(self, tile: _Tile, query: Expr, start: Expr) -> Pointer | None:
        """Where the mask of a query begins for a block of keys."""
        if not self.op.mask:
            return None
        return self.writer.part(3, tile.batch) + (query * self._stride(3, -2) + start)

    def _exponentials(self, scores: Pointer, base: Expr, count: Expr) -> Expr:
        """Replace scores by their powers; the sum of these."""

        def power(j: Expr, lanes: int) -> Expr:
            below = broadcast(base, lanes)
            value = (scores.load(j, lanes) - below).exp()
            scores.store(j, value)
            return value

        return self._reduce("add", 0, count, power)

    def _scale(self, state: _State, at: Expr, factor: Expr) -> None:
        """Scale the sums of a query."""
        sums = state.sums + at * self._width
        by = broadcast(factor, self.lanes)
        with for_each(self.writer.emit, 0, self._width, self.lanes) as j:
            sums.store(j, sums.load(j, self.lanes) * by)

    def _weighted(self, tile: _Tile, row: Expr, start: Expr, count: Expr) -> None:
        """Add the values of a block of keys, weighted by the powers."""
        shape, width = self.shape, self._width
        powers = [tile.state.scores + r * self.block for r in range(shape.rows)]
        begin = (row - tile.top) * width
        down = start * shape.panel
        with for_each(self.writer.emit, 0, self.out_panels) as p:
            values = tile.values + (p * self._stride(2, -3) + down)
            own = tile.state.sums + (begin + p * shape.panel)
            before = [
                own.load(r * width + v * self.lanes, self.lanes)
                for r in range(shape.rows)
                for v in range(shape.across)
            ]
            sums = multiply(shape, powers, [values], count, before)
            store(shape, sums, own, width)

    def _finish(self, tile: _Tile) -> None:
        """Divide each row of sums by the sum of its powers, and write the logarithm of that."""
        writer, first = self.writer, len(self.op.operands) - len(self.op.outs)
        results, *logarithms = (
            writer.part(view, tile.batch) for view in range(first, len(self.op.operands))
        )
        width = writer.size(self.op.width, "width")
        with for_each(writer.emit, tile.top, tile.bottom) as m:
            at = m - tile.top
            total = tile.state.total[at]
            sums = tile.state.sums + at * self._width
            result = results.of(F32) + m * self._stride(first, -2)
            for begin, end, lanes in self._stretches(width):
                with for_each(writer.emit, begin, end, lanes) as j:
                    by = broadcast(total, lanes)
                    result.store(j, sums.load(j, lanes) / by)
            for pointer in logarithms:
                base = _base(tile.state.largest[at])
                logarithm = total.log() + base
                pointer[m * self._stride(first + 1, -1)] = logarithm

    # Registers and what is left of a row.

    def _stretches(self, length: Expr) -> tuple[tuple[Index, Expr, int], tuple[Expr, Expr, int]]:
        """The whole registers of a row, and its single elements: from, to, and how many at a time."""
        whole = whole_registers(index(length.emit, 0), length, self.lanes)
        return (0, whole, self.lanes), (whole, length, 1)

    def _reduce(
        self, name: str, start: float, length: Expr, element: Callable[[Expr, int], Expr]
    ) -> Expr:
        """Elements along a row combined: registers first, then single ones."""
        emit = length.emit
        total = constant(emit, start, VectorType(F32, self.lanes))
        for begin, end, lanes in self._stretches(length):

            def step(j: Expr, totals: list[Expr], lanes: int = lanes) -> list[Expr]:
                return [combine(name, totals[0], element(j, lanes))]

            if lanes == 1:
                total = reduce_lanes(name, total)
            (total,) = iterate(emit, begin, end, [total], step, lanes)
        return total


def _base(largest: Expr) -> Expr:
    """What powers are relative to where this is the largest score."""
    return select(largest.equals(LOWEST), 0, largest)
