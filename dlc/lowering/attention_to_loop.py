"""`kernel.attention` as loops: a block of keys at a time, with the softmax corrected as larger scores come.

A tile is some queries of one batch. For each block of keys the scores of a few queries are computed, a
micro-tile of sums; they become powers relative to the largest score so far, and the products of these
with the values are added to the results. Where a block has a larger score than those before, what was
added up before is scaled down. At the end each row of results is divided by the sum of its powers.

A row whose scores are all -inf so far has powers relative to 0: they are 0, as are its sums, and at the
end 0 / 0 is NaN, which is what the softmax of nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, loop, scalar, vec
from dlc.dialects.kernel_attention import Attention
from dlc.dialects.kernel_products import panel_count
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import BOOL, F32, VectorType
from dlc.lowering.loop_words import add, for_each, index, times, unravel, whole_registers
from dlc.lowering.loop_words import minimum as smaller
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.micro_kernel import Shape, multiply, shape_for, store, zeros
from dlc.lowering.work import ceil_divide, nanoseconds

BLOCK_PANELS = 4
"""Panels of keys in a block: with as many values they stay in the first-level cache."""
TILE_BLOCKS = 8
"""Micro-tiles of queries in a tile, which read each block of keys."""
PICOSECONDS = 14
"""One product, roughly."""
POWER_PICOSECONDS = 2000
"""One score on its way to a power, roughly."""
LOWEST = float("-inf")


def lower_attention(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one attention whose keys and values are in panels."""
    assert isinstance(op, Attention)
    return _Attention(op, context).lower()


@dataclass(frozen=True, slots=True)
class _State:
    """Memory of a tile: scores of a micro-tile; for each query the largest score, the sum of powers,
    and the sums of weighted values."""

    scores: Value
    largest: Value
    total: Value
    sums: Value


@dataclass(frozen=True, slots=True)
class _Tile:
    """Queries from `top` to before `bottom` of a batch, and where their operands are."""

    batch: list[Value]
    top: Value
    bottom: Value
    query: Value
    keys: Value
    values: Value
    state: _State


class _Attention:
    def __init__(self, op: Attention, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        *self.batch, self.m, self.depth = kernel.array_type(op.query).shape
        self.shape: Shape = shape_for(F32, self.m, op.panel, 1, context.options)
        width = panel_count(op.width, op.panel)
        assert isinstance(width, int)
        self.out_panels = width
        self.lanes = self.shape.register.lanes
        self.block = BLOCK_PANELS * op.panel
        tall = self.shape.rows * TILE_BLOCKS
        several = ceil_divide(self.m, self.shape.rows) * self.shape.rows
        self.height = min(tall, several) if isinstance(several, int) else tall

    def lower(self) -> Lowered:
        writer = self.writer
        down = ceil_divide(self.m, self.height)
        counts = [writer.size(size, "batch", k).value for k, size in enumerate(self.batch)]
        counts.append(writer.size(down, "down").value)

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *batch, i = unravel(emit, number, counts)
            self._tile(emit, batch, i)
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        each = (self.depth + self.op.width) * PICOSECONDS + POWER_PICOSECONDS // self.lanes
        work = minimum(self.m, self.height) * self.op.count * each
        return writer.finish(product(self.batch) * down, nanoseconds(work))

    def _tile(self, emit: Builder, batch: list[Value], i: Value) -> None:
        writer, op = self.writer, self.op
        top = emit(scalar.Multiply(i, index(emit, self.height)))
        end = emit(scalar.Add(top, index(emit, self.height)))
        bottom = smaller(emit, end, writer.size(self.m, "m").value)
        query, keys, values = (self._part(emit, view, batch) for view in range(3))
        tile = _Tile(batch, top, bottom, query, keys, values, self._state(emit))
        self._clear(emit, tile.state)
        panels = self._panels(emit, bottom)

        def block(inside: Builder, first: Value, _: list[Value]) -> Sequence[Value]:
            last = smaller(inside, inside(scalar.Add(first, index(inside, BLOCK_PANELS))), panels)
            start = inside(scalar.Multiply(first, index(inside, op.panel)))
            left = inside(scalar.Subtract(writer.size(op.count, "n").value, start))
            keys = smaller(inside, left, index(inside, self.block))

            def rows(deep: Builder, row: Value, _: list[Value]) -> Sequence[Value]:
                self._scores(deep, tile, row, first, last)
                self._powers(deep, tile, row, start, keys)
                self._weighted(deep, tile, row, start, keys)
                return ()

            for_each(inside, top, bottom, self.shape.rows, (), rows)
            return ()

        for_each(emit, index(emit, 0), panels, BLOCK_PANELS, (), block)
        self._finish(emit, tile)

    def _panels(self, emit: Builder, bottom: Value) -> Value:
        """The panels up to the last key that a query before `bottom` sees."""
        op, writer = self.op, self.writer
        panels = writer.size(panel_count(op.count, op.panel), "panels").value
        if op.causal is None:
            return panels
        keys = emit(scalar.Add(bottom, writer.size(op.causal, "causal").value))
        above = emit(scalar.Add(keys, index(emit, op.panel - 1)))
        seen = emit(scalar.RawDivide(above, index(emit, op.panel)))
        return smaller(emit, panels, seen)

    # Memory.

    def _part(self, emit: Builder, view: int, indices: Sequence[Value]) -> Value:
        """The address of the part of a view with these leading indices."""
        offset: Value | None = None
        for axis, position in enumerate(indices):
            offset = add(emit, offset, times(emit, position, self.writer.stride(view, axis)))
        pointer = self.writer.pointers[view]
        if offset is None:
            return pointer
        return emit(loop.Offset(pointer, offset, self.writer.views[view].dtype))

    def _stride(self, view: int, axis: int) -> Value | None:
        """The stride of a view along one of its last axes, counted from the end."""
        return known_stride(self.writer.stride(view, len(self.writer.views[view].shape) + axis))

    def _state(self, emit: Builder) -> _State:
        def room(elements: int) -> Value:
            return emit(loop.Buffer(elements, F32))

        width = self.out_panels * self.op.panel
        scores = room(self.shape.rows * self.block)
        return _State(scores, room(self.height), room(self.height), room(self.height * width))

    def _clear(self, emit: Builder, state: _State) -> None:
        """No scores yet, and sums of nothing."""
        zero, lowest = (emit(scalar.Constant(value, F32)) for value in (0.0, LOWEST))
        nothing = emit(scalar.Constant(0.0, self.shape.register))

        def row(inside: Builder, r: Value, _: list[Value]) -> Sequence[Value]:
            inside.place(loop.Store(lowest, state.largest, r))
            inside.place(loop.Store(zero, state.total, r))
            return ()

        def register(inside: Builder, at: Value, _: list[Value]) -> Sequence[Value]:
            inside.place(vec.Store(nothing, state.sums, at))
            return ()

        elements = self.height * self.out_panels * self.op.panel
        for_each(emit, index(emit, 0), index(emit, self.height), 1, (), row)
        for_each(emit, index(emit, 0), index(emit, elements), self.lanes, (), register)

    # The steps for a few queries and one block of keys.

    def _scores(self, emit: Builder, tile: _Tile, row: Value, first: Value, last: Value) -> None:
        """The products of the queries from `row` on with the keys of some panels."""
        shape, writer = self.shape, self.writer
        beyond = emit(scalar.Subtract(tile.bottom, index(emit, 1)))
        queries: list[Value] = []
        for r in range(shape.rows):
            mine = smaller(emit, emit(scalar.Add(row, index(emit, r))), beyond)
            queries.append(
                emit(loop.Offset(tile.query, times(emit, mine, self._stride(0, -2)), F32))
            )
        depth = writer.size(self.depth, "depth").value

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            keys = inside(loop.Offset(tile.keys, times(inside, p, self._stride(1, -3)), F32))
            sums = multiply(inside, shape, queries, [keys], depth, zeros(inside, shape))
            column = inside(scalar.Subtract(p, first))
            column = inside(scalar.Multiply(column, index(inside, shape.panel)))
            room = inside(loop.Offset(tile.state.scores, column, F32))
            store(inside, shape, sums, room, self.block)
            return ()

        for_each(emit, first, last, 1, (), panel)

    def _powers(self, emit: Builder, tile: _Tile, row: Value, start: Value, keys: Value) -> None:
        """Scores become powers relative to the largest so far; what was summed before is corrected."""
        state = tile.state
        left = emit(scalar.Subtract(tile.bottom, row))
        rows = smaller(emit, left, index(emit, self.shape.rows))

        def one(inside: Builder, r: Value, _: list[Value]) -> Sequence[Value]:
            at = inside(scalar.Add(inside(scalar.Subtract(row, tile.top)), r))
            place = inside(scalar.Multiply(r, index(inside, self.block)))
            scores = inside(loop.Offset(state.scores, place, F32))
            query = inside(scalar.Add(row, r))
            found = self._masked(inside, tile, scores, query, start, keys)
            before = inside(loop.Load(state.largest, at, F32))
            largest = inside(scalar.Maximum(before, found))
            inside.place(loop.Store(largest, state.largest, at))
            base = self._base(inside, largest)
            factor = inside(scalar.Exp(inside(scalar.Subtract(before, base))))
            sum = self._exponentials(inside, scores, base, keys)
            total = inside(loop.Load(state.total, at, F32))
            total = inside(scalar.Add(inside(scalar.Multiply(total, factor)), sum))
            inside.place(loop.Store(total, state.total, at))
            self._scale(inside, state, at, factor)
            return ()

        for_each(emit, index(emit, 0), rows, 1, (), one)

    def _masked(
        self,
        emit: Builder,
        tile: _Tile,
        scores: Value,
        query: Value,
        start: Value,
        keys: Value,
    ) -> Value:
        """Scale and mask the scores of a query, in place; the largest of them."""
        mask = self._mask_row(emit, tile, query, start)

        def score(inside: Builder, j: Value, lanes: int) -> Value:
            value = self._load(inside, scores, j, lanes)
            value = inside(scalar.Multiply(value, self._number(inside, self.op.scale, lanes)))
            value = self._hidden(inside, value, mask, j, lanes)
            if self.op.causal is not None:
                value = self._seen(inside, value, query, start, j, lanes)
            self._store(inside, value, scores, j)
            return value

        return self._fold(emit, keys, LOWEST, "maximum", score)

    def _mask_row(self, emit: Builder, tile: _Tile, query: Value, start: Value) -> Value | None:
        """Where the mask of a query begins for a block of keys."""
        if not self.op.mask:
            return None
        whole = self._part(emit, 3, tile.batch)
        place = emit(scalar.Add(times(emit, query, self._stride(3, -2)), start))
        return emit(loop.Offset(whole, place, self.writer.views[3].dtype))

    def _hidden(
        self, emit: Builder, value: Value, mask: Value | None, j: Value, lanes: int
    ) -> Value:
        """A score with the mask applied."""
        if mask is None:
            return value
        dtype = self.writer.views[3].dtype
        if lanes > 1:
            found = emit(vec.Load(mask, j, VectorType(dtype, lanes)))
        else:
            found = emit(loop.Load(mask, j, dtype))
        if dtype is not BOOL:
            return emit(scalar.Add(value, found))
        return emit(scalar.Select(found, value, self._number(emit, LOWEST, lanes)))

    def _seen(
        self, emit: Builder, value: Value, query: Value, start: Value, j: Value, lanes: int
    ) -> Value:
        """A score that is hidden if its key comes too late for the query."""
        assert self.op.causal is not None
        last = emit(scalar.Add(query, self.writer.size(self.op.causal, "causal").value))
        key = emit(scalar.Add(start, j))
        if lanes > 1:
            key, last = emit(vec.Ramp(key, lanes)), emit(vec.Broadcast(last, lanes))
        seen = emit(scalar.Compare(key, last, "le"))
        return emit(scalar.Select(seen, value, self._number(emit, LOWEST, lanes)))

    def _exponentials(self, emit: Builder, scores: Value, base: Value, keys: Value) -> Value:
        """Replace scores by their powers; the sum of these."""

        def power(inside: Builder, j: Value, lanes: int) -> Value:
            below = inside(vec.Broadcast(base, lanes)) if lanes > 1 else base
            value = inside(scalar.Subtract(self._load(inside, scores, j, lanes), below))
            value = inside(scalar.Exp(value))
            self._store(inside, value, scores, j)
            return value

        return self._fold(emit, keys, 0.0, "add", power)

    def _scale(self, emit: Builder, state: _State, at: Value, factor: Value) -> None:
        """Scale the sums of a query."""
        width = self.out_panels * self.op.panel
        row = emit(scalar.Multiply(at, index(emit, width)))
        sums = emit(loop.Offset(state.sums, row, F32))
        by = emit(vec.Broadcast(factor, self.lanes))

        def register(inside: Builder, j: Value, _: list[Value]) -> Sequence[Value]:
            value = inside(scalar.Multiply(self._load(inside, sums, j, self.lanes), by))
            self._store(inside, value, sums, j)
            return ()

        for_each(emit, index(emit, 0), index(emit, width), self.lanes, (), register)

    def _weighted(self, emit: Builder, tile: _Tile, row: Value, start: Value, keys: Value) -> None:
        """Add the values of a block of keys, weighted by the powers."""
        shape, width = self.shape, self.out_panels * self.op.panel
        powers = [
            emit(loop.Offset(tile.state.scores, index(emit, r * self.block), F32))
            for r in range(shape.rows)
        ]
        local = emit(scalar.Subtract(row, tile.top))
        begin = emit(scalar.Multiply(local, index(emit, width)))
        down = emit(scalar.Multiply(start, index(emit, shape.panel)))

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            place = inside(scalar.Add(times(inside, p, self._stride(2, -3)), down))
            values = inside(loop.Offset(tile.values, place, F32))
            column = inside(scalar.Multiply(p, index(inside, shape.panel)))
            room = inside(loop.Offset(tile.state.sums, inside(scalar.Add(begin, column)), F32))
            before = [
                self._load(inside, room, index(inside, r * width + v * self.lanes), self.lanes)
                for r in range(shape.rows)
                for v in range(shape.across)
            ]
            sums = multiply(inside, shape, powers, [values], keys, before)
            store(inside, shape, sums, room, width)
            return ()

        for_each(emit, index(emit, 0), index(emit, self.out_panels), 1, (), panel)

    def _finish(self, emit: Builder, tile: _Tile) -> None:
        """Divide each row of sums by the sum of its powers, and write the logarithm of that."""
        first = len(self.op.operands) - len(self.op.outs)
        results, *logarithms = (
            self._part(emit, view, tile.batch) for view in range(first, len(self.op.operands))
        )
        width = self.writer.size(self.op.width, "width").value

        def row(inside: Builder, m: Value, _: list[Value]) -> Sequence[Value]:
            at = inside(scalar.Subtract(m, tile.top))
            total = inside(loop.Load(tile.state.total, at, F32))
            stored = self.out_panels * self.op.panel
            begin = inside(scalar.Multiply(at, index(inside, stored)))
            sums = inside(loop.Offset(tile.state.sums, begin, F32))
            result = inside(loop.Offset(results, times(inside, m, self._stride(first, -2)), F32))

            def share(deep: Builder, j: Value, lanes: int) -> None:
                by = deep(vec.Broadcast(total, lanes)) if lanes > 1 else total
                value = deep(scalar.Divide(self._load(deep, sums, j, lanes), by))
                self._store(deep, value, result, j)

            self._stretch(inside, width, share)
            for pointer in logarithms:
                base = self._base(inside, inside(loop.Load(tile.state.largest, at, F32)))
                found = inside(scalar.Add(inside(scalar.Log(total)), base))
                place = times(inside, m, self._stride(first + 1, -1))
                inside.place(loop.Store(found, pointer, place))
            return ()

        for_each(emit, tile.top, tile.bottom, 1, (), row)

    def _base(self, emit: Builder, largest: Value) -> Value:
        """What powers are relative to where this is the largest score."""
        lowest, zero = (self._number(emit, value, 1) for value in (LOWEST, 0.0))
        return emit(scalar.Select(emit(scalar.Compare(largest, lowest, "eq")), zero, largest))

    # Registers and what is left of a row.

    def _load(self, emit: Builder, pointer: Value, at: Value, lanes: int) -> Value:
        if lanes > 1:
            return emit(vec.Load(pointer, at, VectorType(F32, lanes)))
        return emit(loop.Load(pointer, at, F32))

    def _store(self, emit: Builder, value: Value, pointer: Value, at: Value) -> None:
        registers = isinstance(value.type, VectorType)
        emit.place((vec.Store if registers else loop.Store)(value, pointer, at))

    def _number(self, emit: Builder, value: float, lanes: int) -> Value:
        return emit(scalar.Constant(value, VectorType(F32, lanes) if lanes > 1 else F32))

    def _stretch(
        self, emit: Builder, length: Value, step: Callable[[Builder, Value, int], None]
    ) -> None:
        """Do something for whole registers along a row, then for single elements."""
        zero = index(emit, 0)
        whole = whole_registers(emit, zero, length, self.lanes)
        for lower, upper, lanes in ((zero, whole, self.lanes), (whole, length, 1)):

            def one(
                inside: Builder, j: Value, _: list[Value], lanes: int = lanes
            ) -> Sequence[Value]:
                step(inside, j, lanes)
                return ()

            for_each(emit, lower, upper, lanes, (), one)

    def _fold(
        self,
        emit: Builder,
        length: Value,
        start: float,
        combine: str,
        value: Callable[[Builder, Value, int], Value],
    ) -> Value:
        """Values along a row combined: registers first, then single elements."""
        join = scalar.Add if combine == "add" else scalar.Maximum
        zero = index(emit, 0)
        whole = whole_registers(emit, zero, length, self.lanes)

        def step(lanes: int) -> Callable[[Builder, Value, list[Value]], Sequence[Value]]:
            def one(inside: Builder, j: Value, found: list[Value]) -> Sequence[Value]:
                return (inside(join(found[0], value(inside, j, lanes))),)

            return one

        first = [self._number(emit, start, self.lanes)]
        (found,) = for_each(emit, zero, whole, self.lanes, first, step(self.lanes))
        single = [emit(vec.Reduce(found, combine))]
        (result,) = for_each(emit, whole, length, 1, single, step(1))
        return result
