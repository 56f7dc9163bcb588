"""`kernel.attention` on a CPU: online softmax over blocks of keys, as in FlashAttention (Dao et al. 2022).

A tile is some queries of one batch. For each block of keys the scores of a few queries are computed, a
micro-tile of sums; their exponentials, relative to the running maximum, replace them, and the products of
these with the values are added to the results. Where a block raises the maximum, what was summed before is
rescaled (Milakov & Gimelshein 2018). At the end each row is divided by its sum of exponentials.

While all scores of a row are -inf, exponentials are relative to 0: they and the sums are 0, and at the end
0 / 0 is NaN, which is the softmax of a row that is masked throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    broadcast,
    constant,
    maximum,
    ramp,
    select,
)
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.attention import Attention
from dlc.dialects.kernel.products import panel_count
from dlc.ir.dims import ceil_divide, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32
from dlc.lowering.cpu.micro_kernel import Shape, multiply, shape_for, store, zeros
from dlc.lowering.kernel_code.register_rows import reduce_row, register_ranges
from dlc.lowering.kernel_code.words import for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import nanoseconds

MINUS_INFINITY = float("-inf")


def lower_attention(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one attention whose keys and values are packed into panels."""
    assert isinstance(op, Attention)
    return _Attention(op, context).lower()


@dataclass(frozen=True, slots=True)
class _SoftmaxState:
    """The softmax state of a tile in memory: scores of a micro-tile; for each query the running maximum,
    the sum of exponentials, and the sums of weighted values."""

    scores: Pointer
    largest: Pointer
    total: Pointer
    sums: Pointer


@dataclass(frozen=True, slots=True)
class _Tile:
    """The queries of a batch from `top` up to `bottom`, the addresses of their operands, their state."""

    batch: list[Expr]
    top: Expr
    bottom: Expr
    query: Pointer
    keys: Pointer
    values: Pointer
    state: _SoftmaxState


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
        rounded_rows = ceil_divide(self.m, self.shape.rows) * self.shape.rows
        self.height = min(tall, rounded_rows) if isinstance(rounded_rows, int) else tall

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
                self._update_softmax(tile, row, start, count)
                self._add_values(tile, row, start, count)
        self._write_results(tile)

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

    def _state(self) -> _SoftmaxState:
        sizes = self.shape.rows * self.block, self.height, self.height, self.height * self._width
        return _SoftmaxState(*(self.writer.buffer(size, F32) for size in sizes))

    def _clear(self, state: _SoftmaxState) -> None:
        """Set the state to that before any key."""
        emit = self.writer.emit
        zero, lowest = constant(emit, 0, F32), constant(emit, MINUS_INFINITY, F32)
        zeros = constant(emit, 0, self.shape.register)
        with for_each(emit, 0, self.height) as row:
            state.largest[row] = lowest
            state.total[row] = zero
        with for_each(emit, 0, self.height * self._width, self.lanes) as offset:
            state.sums.store(offset, zeros)

    # One step: a few queries and one block of keys.

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

    def _update_softmax(self, tile: _Tile, row: Expr, start: Expr, count: Expr) -> None:
        """Online softmax: exponentials replace the scores; the state is rescaled to the new maxima."""
        state = tile.state
        rows = smaller(tile.bottom - row, self.shape.rows)
        with for_each(self.writer.emit, 0, rows) as r:
            tile_row = row - tile.top + r
            scores = state.scores + r * self.block
            most = self._masked(tile, scores, row + r, start, count)
            before = state.largest[tile_row]
            largest = maximum(before, most)
            state.largest[tile_row] = largest
            base = softmax_base(largest)
            factor = (before - base).exp()
            sum = self._exponentials(scores, base, count)
            state.total[tile_row] = state.total[tile_row] * factor + sum
            self._scale(state, tile_row, factor)

    def _masked(self, tile: _Tile, scores: Pointer, query: Expr, start: Expr, count: Expr) -> Expr:
        """Scale and mask the scores of a query, in place; the largest of them."""
        mask = self._mask_row(tile, query, start)

        def score(j: Expr, lanes: int) -> Expr:
            value = scores.load(j, lanes) * self.op.scale
            if mask is not None:
                hidden = mask.load(j, lanes)
                value = (
                    select(hidden, value, MINUS_INFINITY) if mask.dtype is BOOL else value + hidden
                )
            if self.op.causal is not None:
                last = query + self.writer.size(self.op.causal, "causal")
                key = ramp(start + j, lanes)
                value = select(key <= broadcast(last, lanes), value, MINUS_INFINITY)
            scores.store(j, value)
            return value

        return reduce_row("maximum", MINUS_INFINITY, count, self.lanes, F32, score)

    def _mask_row(self, tile: _Tile, query: Expr, start: Expr) -> Pointer | None:
        """The mask of a query for a block of keys."""
        if not self.op.mask:
            return None
        return self.writer.part(3, tile.batch) + (query * self._stride(3, -2) + start)

    def _exponentials(self, scores: Pointer, base: Expr, count: Expr) -> Expr:
        """Replace scores by their exponentials; returns the sum of these."""

        def exponential(j: Expr, lanes: int) -> Expr:
            below = broadcast(base, lanes)
            value = (scores.load(j, lanes) - below).exp()
            scores.store(j, value)
            return value

        return reduce_row("add", 0, count, self.lanes, F32, exponential)

    def _scale(self, state: _SoftmaxState, tile_row: Expr, factor: Expr) -> None:
        """Scale the sums of a query."""
        sums = state.sums + tile_row * self._width
        by = broadcast(factor, self.lanes)
        with for_each(self.writer.emit, 0, self._width, self.lanes) as j:
            sums.store(j, sums.load(j, self.lanes) * by)

    def _add_values(self, tile: _Tile, row: Expr, start: Expr, count: Expr) -> None:
        """Add the values of a block of keys, weighted by the exponentials."""
        shape, width = self.shape, self._width
        exponentials = [tile.state.scores + r * self.block for r in range(shape.rows)]
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
            sums = multiply(shape, exponentials, [values], count, before)
            store(shape, sums, own, width)

    def _write_results(self, tile: _Tile) -> None:
        """Divide each row of sums by its sum of exponentials, and write the logarithm of that."""
        writer, first = self.writer, len(self.op.operands) - len(self.op.outs)
        results, *logarithms = (
            writer.part(view, tile.batch) for view in range(first, len(self.op.operands))
        )
        width = writer.size(self.op.width, "width")
        with for_each(writer.emit, tile.top, tile.bottom) as m:
            tile_row = m - tile.top
            total = tile.state.total[tile_row]
            sums = tile.state.sums + tile_row * self._width
            result = results.of(F32) + m * self._stride(first, -2)
            for begin, end, lanes in register_ranges(width, self.lanes):
                with for_each(writer.emit, begin, end, lanes) as j:
                    by = broadcast(total, lanes)
                    result.store(j, sums.load(j, lanes) / by)
            for pointer in logarithms:
                base = softmax_base(tile.state.largest[tile_row])
                logarithm = total.log() + base
                pointer[m * self._stride(first + 1, -1)] = logarithm


def softmax_base(largest: Expr) -> Expr:
    """The number subtracted from scores whose maximum is `largest`: it, or 0 where it is -inf."""
    return select(largest.equals(MINUS_INFINITY), 0, largest)
