"""`kernel.gemm` and `kernel.conv` on panels: our own products, tile by tile.

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
from dlc.lowering.micro_kernel import Shape, Sums, multiply, shape_for, store, zeros
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
    match op:
        case kernel.Gemm():
            writer: _Panels = _Matrix(op, context)
        case kernel.Conv():
            writer = _Pictures(op, context)
        case _:
            raise AssertionError(op.name)
    lowered = writer.lower()
    tidy(lowered.function)
    return lowered


Place = list[Value]
"""Where the first row of a micro-tile is; what is in it is the subclass's affair."""


class _Panels:
    """What all products on panels share. Subclasses say where the rows of the left operand are."""

    def __init__(self, op: kernel.Gemm | kernel.Conv, context: Context) -> None:
        self.product = op
        self.writer = Writer(op)
        self.shape: Shape = shape_for(op.accumulator, context.options)
        self.body = epilogue_body(
            op, self.writer, lanes_of(op.epilogue, context.options.vector_bytes)
        )

    depth: Size
    """Products in one sum."""

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        """The place of a row."""
        raise NotImplementedError

    def sums(
        self, emit: Builder, place: Place, row: Value, bottom: Value, columns: Value
    ) -> tuple[Sums, Place]:
        """The sums of the rows from a place on, none from `bottom` on, and the place after them."""
        raise NotImplementedError

    def lower(self) -> Lowered:
        op, writer, shape = self.product, self.writer, self.shape
        *batch, m, n = op.domain
        across = kernel.panels(n, op.panel)
        height = tile_rows(m, self.depth, op.accumulator.bytes, shape.rows)
        width = tile_panels(across, height, self.depth, op.panel)
        down, along = ceil_divide(m, height), ceil_divide(across, width)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(along, "along"), writer.size(down, "down")]

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *where, j, i = unravel(emit, number, counts)
            self._tile(emit, where, i, j, height, width)
            return ()

        for_each(writer.emit, writer.first, writer.last, 1, (), tile)
        work = height * width * op.panel * maximum(self.depth, 8) * PICOSECONDS
        return writer.finish(product(batch) * down * along, nanoseconds(work))

    def _tile(
        self, emit: Builder, batch: list[Value], i: Value, j: Value, height: Size, width: Size
    ) -> None:
        op, writer, shape = self.product, self.writer, self.shape
        *_, m, n = op.domain
        tall, wide = writer.size(height, "height"), writer.size(width, "width")
        top = emit(scalar.Multiply(i, tall))
        bottom = smaller(emit, emit(scalar.Add(top, tall)), writer.size(m, "m"))
        left = emit(scalar.Multiply(j, wide))
        across = writer.size(kernel.panels(n, op.panel), "panels")
        right = smaller(emit, emit(scalar.Add(left, wide)), across)
        room = emit(loop.Buffer(shape.rows * shape.columns, op.accumulator))
        shared = isinstance(op, kernel.Conv) or op.rhs_shared
        rhs = self.part(emit, 1, [] if shared else batch)
        target = self.part(emit, len(op.operands) - 1, batch)
        place = self.first(emit, batch, top)

        def panel(inside: Builder, p: Value, _: list[Value]) -> Sequence[Value]:
            start = times(inside, p, writer.stride(1, len(writer.views[1].shape) - 3))
            columns = inside(loop.Offset(rhs, start, op.accumulator))

            def rows(deep: Builder, row: Value, here: list[Value]) -> Sequence[Value]:
                sums, after = self.sums(deep, here, row, bottom, columns)
                store(deep, shape, sums, room)
                self._finish(deep, batch, row, bottom, p, room, target)
                return after

            for_each(inside, top, bottom, shape.rows, place, rows)
            return ()

        for_each(emit, left, right, 1, (), panel)

    def part(self, emit: Builder, view: int, indices: Sequence[Value]) -> Value:
        """The address of the part of a view with these leading indices."""
        offset: Value | None = None
        for axis, position in enumerate(indices):
            offset = add(emit, offset, times(emit, position, self.writer.stride(view, axis)))
        pointer = self.writer.pointers[view]
        if offset is None:
            return pointer
        return emit(loop.Offset(pointer, offset, self.writer.views[view].dtype))

    def _finish(
        self,
        emit: Builder,
        batch: list[Value],
        row: Value,
        bottom: Value,
        p: Value,
        room: Value,
        target: Value,
    ) -> None:
        """The epilogue over the rows of a micro-tile that exist."""
        op, writer, shape = self.product, self.writer, self.shape
        column = emit(scalar.Multiply(p, index(emit, shape.columns)))
        n = writer.size(op.columns, "n")
        width = smaller(emit, index(emit, shape.columns), emit(scalar.Subtract(n, column)))
        left = emit(scalar.Subtract(bottom, row))
        height = smaller(emit, index(emit, shape.rows), left)
        stride = writer.stride(len(op.operands) - 1, len(op.domain) - 2)

        def finish(inside: Builder, r: Value, _: list[Value]) -> Sequence[Value]:
            here = inside(scalar.Multiply(r, index(inside, shape.columns)))
            sums = inside(loop.Offset(room, here, op.accumulator))
            m = inside(scalar.Add(row, r))
            place = inside(scalar.Add(times(inside, m, stride), column))
            result = inside(loop.Offset(target, place, writer.views[-1].dtype))
            write_epilogue(op, self.body, inside, [*batch, m], column, width, sums, result)
            return ()

        for_each(emit, index(emit, 0), height, 1, (), finish)


class _Matrix(_Panels):
    """Rows of a matrix: a place is where the matrix begins."""

    def __init__(self, op: kernel.Gemm, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.depth = op.inner

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        self.lhs = self.part(emit, 0, batch)
        return []

    def sums(
        self, emit: Builder, place: Place, row: Value, bottom: Value, columns: Value
    ) -> tuple[Sums, Place]:
        shape, dtype = self.shape, self.op.accumulator
        last = emit(scalar.Subtract(bottom, index(emit, 1)))
        stride = self.writer.stride(0, len(self.op.domain) - 2)
        pointers: list[Value] = []
        for number in range(shape.rows):
            mine = smaller(emit, emit(scalar.Add(row, index(emit, number))), last)
            pointers.append(emit(loop.Offset(self.lhs, times(emit, mine, stride), dtype)))
        depth = self.writer.size(self.op.inner, "inner")
        return multiply(emit, shape, pointers, columns, depth, zeros(emit, shape)), []


class _Pictures(_Panels):
    """Rows are pixels of results: a place is the picture, row and column of the first pixel."""

    def __init__(self, op: kernel.Conv, context: Context) -> None:
        super().__init__(op, context)
        self.op = op
        self.channels = kernel.array_type(op.lhs).shape[-1]
        self.depth = op.window[0] * op.window[1] * self.channels

    def first(self, emit: Builder, batch: list[Value], row: Value) -> Place:
        height, width = self.op.extents
        counts = [row, self.writer.size(height, "rows"), self.writer.size(width, "columns")]
        return unravel(emit, row, counts)

    def sums(
        self, emit: Builder, place: Place, row: Value, bottom: Value, columns: Value
    ) -> tuple[Sums, Place]:
        pixels, after = self._pixels(emit, place, row, bottom)
        op, writer = self.op, self.writer
        taps = [index(emit, count) for count in op.window]
        channels = writer.size(self.channels, "channels")
        zero, size = index(emit, 0), index(emit, self.shape.columns)
        panel_step = emit(scalar.Multiply(channels, size))

        def down(outer: Builder, h: Value, sums: list[Value]) -> Sequence[Value]:
            def across(inner: Builder, w: Value, sums: list[Value]) -> Sequence[Value]:
                rows = [self._tap(inner, pixel, h, w) for pixel in pixels]
                tap = inner(scalar.Add(inner(scalar.Multiply(h, taps[1])), w))
                start = inner(scalar.Multiply(tap, panel_step))
                panel = inner(loop.Offset(columns, start, op.accumulator))
                return multiply(inner, self.shape, rows, panel, channels, sums)

            return for_each(outer, zero, taps[1], 1, sums, across)

        sums = for_each(emit, zero, taps[0], 1, zeros(emit, self.shape), down)
        return list(sums), after

    def _pixels(
        self, emit: Builder, place: Place, row: Value, bottom: Value
    ) -> tuple[list[Place], Place]:
        """The places of the rows of a micro-tile, the last one again beyond the end; and the next."""
        pixels = [place]
        for number in range(1, self.shape.rows + 1):
            following = self._next(emit, pixels[-1])
            if number < self.shape.rows:
                here = emit(scalar.Add(row, index(emit, number)))
                inside = emit(scalar.Compare(here, bottom, "lt"))
                following = [
                    emit(scalar.Select(inside, new, old))
                    for new, old in zip(following, pixels[-1], strict=True)
                ]
            pixels.append(following)
        return pixels[:-1], pixels[-1]

    def _next(self, emit: Builder, place: Place) -> Place:
        picture, i, j = place
        one, zero = index(emit, 1), index(emit, 0)
        height, width = (
            self.writer.size(size, name)
            for size, name in zip(self.op.extents, ("rows", "columns"), strict=True)
        )
        j = emit(scalar.Add(j, one))
        wrapped = emit(scalar.Compare(j, width, "eq"))
        j = emit(scalar.Select(wrapped, zero, j))
        i = emit(scalar.Select(wrapped, emit(scalar.Add(i, one)), i))
        ended = emit(scalar.Compare(i, height, "eq"))
        i = emit(scalar.Select(ended, zero, i))
        picture = emit(scalar.Select(ended, emit(scalar.Add(picture, one)), picture))
        return [picture, i, j]

    def _tap(self, emit: Builder, pixel: Place, h: Value, w: Value) -> Value:
        """Where the channels are that a tap of the window meets, or zeros outside the picture."""
        op, writer = self.op, self.writer
        picture, *position = pixel
        _, *extents, _ = kernel.array_type(op.lhs).shape
        offset = times(emit, picture, writer.stride(0, 0))
        inside: Value | None = None
        for axis, (at, tap) in enumerate(zip(position, (h, w), strict=True)):
            moved = emit(scalar.Multiply(at, index(emit, op.strides[axis])))
            moved = emit(
                scalar.Add(moved, emit(scalar.Multiply(tap, index(emit, op.dilations[axis]))))
            )
            low, high = op.padding[axis]
            if (low, high) != (0, 0):
                moved = emit(scalar.Subtract(moved, writer.size(low, "low", axis)))
                extent = writer.size(extents[axis], "extent", axis)
                above = emit(scalar.Compare(moved, index(emit, 0), "ge"))
                here = emit(scalar.And(above, emit(scalar.Compare(moved, extent, "lt"))))
                inside = here if inside is None else emit(scalar.And(inside, here))
            offset = emit(scalar.Add(offset, times(emit, moved, writer.stride(0, 1 + axis))))
        pointer = emit(loop.Offset(writer.pointers[0], offset, op.accumulator))
        if inside is None:
            return pointer
        return emit(scalar.Select(inside, pointer, writer.pointers[2]))
