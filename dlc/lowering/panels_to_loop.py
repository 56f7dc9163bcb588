"""`kernel.gemm` on panels: our own product, tile by tile.

A tile of the result is some rows times some panels. Inside, each panel meets all rows of the tile while
it is in the cache. Rows that would be beyond the last are computed from the last one and not stored, so
one loop serves every height.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, floor_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.lowering.body import lanes_of
from dlc.lowering.epilogue import epilogue_body, write_epilogue
from dlc.lowering.hoist import tidy
from dlc.lowering.loop_writer import Lowered, Writer, add, for_each, index, times, unravel
from dlc.lowering.loop_writer import minimum as smaller
from dlc.lowering.micro_kernel import Shape, multiply, shape_for, store, zeros
from dlc.lowering.work import ceil_divide, nanoseconds

LEFT_BYTES = 96 * 1024
"""The rows of a tile stay in the second-level cache, together with a panel."""
TILE_PRODUCTS = 3_000_000
"""Products of a tile: some 30 to 60 microseconds."""
PICOSECONDS = 12
"""One product, roughly, on a core with 256-bit registers."""


def tile_rows(m: Size, inner: Size, bytes: int, rows: int) -> Size:
    """Rows of a tile: a multiple of the micro-kernel's, as many as stay in the cache."""
    fits = maximum(floor_divide(LEFT_BYTES, maximum(inner * bytes, 1)), rows)
    whole = maximum(floor_divide(fits, rows), 1) * rows
    return minimum(whole, ceil_divide(maximum(m, 1), rows) * rows)


def tile_panels(across: Size, rows: Size, inner: Size, columns: int) -> Size:
    """Panels of a tile, so that its work is about `TILE_PRODUCTS`."""
    each = maximum(rows * inner * columns, 1)
    return minimum(maximum(floor_divide(TILE_PRODUCTS, each), 1), maximum(across, 1))


def lower_panels(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product whose right operand is in panels."""
    assert isinstance(op, kernel.Gemm)
    lowered = _Panels(op, context).lower()
    tidy(lowered.function)
    return lowered


class _Panels:
    def __init__(self, op: kernel.Gemm, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        self.shape: Shape = shape_for(op.accumulator, context.options)
        self.body = epilogue_body(
            op, self.writer, lanes_of(op.epilogue, context.options.vector_bytes)
        )

    def lower(self) -> Lowered:
        op, writer, shape = self.op, self.writer, self.shape
        *batch, m, n = op.domain
        across = kernel.panels(n, op.panel)
        height = tile_rows(m, op.inner, op.accumulator.bytes, shape.rows)
        width = tile_panels(across, height, op.inner, op.panel)
        down, along = ceil_divide(m, height), ceil_divide(across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *where, j, i = unravel(emit, number, counts)
            self._tile(emit, where, i, j, height, width)
            return ()

        for_each(writer.emit, writer.first, writer.last, 1, (), tile)
        work = height * width * op.panel * maximum(op.inner, 8) * PICOSECONDS
        return writer.finish(product(batch) * down * along, nanoseconds(work))

    def _tile(
        self, emit: Builder, batch: list[Value], i: Value, j: Value, height: Size, width: Size
    ) -> None:
        op, writer, shape = self.op, self.writer, self.shape
        *_, m, n = op.domain
        tall, wide = writer.size(height, "height"), writer.size(width, "width")
        top = emit(scalar.Multiply(i, tall))
        bottom = smaller(emit, emit(scalar.Add(top, tall)), writer.size(m, "m"))
        left = emit(scalar.Multiply(j, wide))
        across = writer.size(kernel.panels(n, op.panel), "panels")
        right = smaller(emit, emit(scalar.Add(left, wide)), across)
        room = emit(loop.Buffer(shape.rows * shape.columns, op.accumulator))
        lhs = self._at(emit, 0, batch)
        rhs = self._at(emit, 1, [] if op.rhs_shared else batch)
        target = self._at(emit, len(op.operands) - 1, batch)

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            columns = inside(loop.Offset(rhs, self._panel_start(inside, p), op.accumulator))

            def rows(deep: Builder, row: Value, _: list[Value]) -> Sequence[Value]:
                self._micro_tile(deep, batch, row, bottom, p, lhs, columns, room, target)
                return ()

            for_each(inside, top, bottom, shape.rows, (), rows)
            return ()

        for_each(emit, left, right, 1, (), panel)

    def _panel_start(self, emit: Builder, p: Value) -> Value:
        return times(emit, p, self.writer.stride(1, len(self.writer.views[1].shape) - 3))

    def _at(self, emit: Builder, view: int, indices: Sequence[Value]) -> Value:
        """The address of the part of a view with these leading indices."""
        offset: Value | None = None
        for axis, position in enumerate(indices):
            offset = add(emit, offset, times(emit, position, self.writer.stride(view, axis)))
        pointer = self.writer.pointers[view]
        if offset is None:
            return pointer
        return emit(loop.Offset(pointer, offset, self.writer.views[view].dtype))

    def _micro_tile(
        self,
        emit: Builder,
        batch: list[Value],
        row: Value,
        bottom: Value,
        p: Value,
        lhs: Value,
        columns: Value,
        room: Value,
        target: Value,
    ) -> None:
        op, writer, shape = self.op, self.writer, self.shape
        rank = len(op.domain)
        last = emit(scalar.Subtract(bottom, index(emit, 1)))
        stride = writer.stride(0, rank - 2)
        pointers: list[Value] = []
        for number in range(shape.rows):
            mine = smaller(emit, emit(scalar.Add(row, index(emit, number))), last)
            pointers.append(emit(loop.Offset(lhs, times(emit, mine, stride), op.accumulator)))
        depth = writer.size(op.inner, "inner")
        store(
            emit, shape, multiply(emit, shape, pointers, columns, depth, zeros(emit, shape)), room
        )
        column = emit(scalar.Multiply(p, index(emit, shape.columns)))
        n = writer.size(op.columns, "n")
        width = smaller(emit, index(emit, shape.columns), emit(scalar.Subtract(n, column)))
        left = emit(scalar.Subtract(bottom, row))
        height = smaller(emit, index(emit, shape.rows), left)
        result_stride = writer.stride(len(op.operands) - 1, rank - 2)

        def finish(inside: Builder, r: Value, _: list[Value]) -> Sequence[Value]:
            here = inside(scalar.Multiply(r, index(inside, shape.columns)))
            sums = inside(loop.Offset(room, here, op.accumulator))
            m = inside(scalar.Add(row, r))
            place = inside(scalar.Add(times(inside, m, result_stride), column))
            result = inside(loop.Offset(target, place, writer.views[-1].dtype))
            write_epilogue(op, self.body, inside, [*batch, m], column, width, sums, result)
            return ()

        for_each(emit, index(emit, 0), height, 1, (), finish)
