"""`kernel.winograd_gradient`: tiles of pictures and cotangents are transformed, multiplied, and summed.

A task is a part of the tiles, some input channels and some output channels. It walks its tiles in blocks:
both sides of a block are transformed into the thread's workspace, a matrix for each of the (m + 2)² places
of a transformed tile, and for each place the product of the two, summed over the tiles, is added to sums in
the workspace. After the last block the sums are transformed back, once. So nothing as large as a picture is
stored between the transforms, and the order of every sum follows from the sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, constant
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.winograd import WINDOW, transforms
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.ir.dims import Size, ceil_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import F32, POINTER
from dlc.lowering.cpu.micro_kernel import Sums, load, multiply, shape_for, store, zeros
from dlc.lowering.cpu.winograd.tile_transforms import PictureTiles, both_sides
from dlc.lowering.kernel_code.words import either, for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import LINE_FLOATS
from dlc.target.register_blocking import panel_columns
from dlc.target.work import gradient_picoseconds, nanoseconds


def lower_winograd_gradient(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one gradient in Winograd's form."""
    assert isinstance(op, WinogradGradient)
    return _WinogradGradient(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Task:
    """A part of the tiles, `rows` input channels from `row` on, and `columns` outputs from `column` on."""

    part: Expr
    row: Expr
    rows: Expr
    column: Expr
    columns: Expr


class _WinogradGradient:
    def __init__(self, op: WinogradGradient, context: Context) -> None:
        self.op = op
        self.m = op.tile
        self.n = self.m + WINDOW - 1
        self.cpu = cpu_of(context.options)
        self.writer = Writer(op)
        blocking = self.cpu.products
        self.channels, self.outputs = op.channels
        most = blocking.gradient_channels
        wide = -(-self.outputs // -(-self.outputs // most))
        tall = -(-self.channels // -(-self.channels // most))
        panel = panel_columns(F32, tall, wide, op.part_tiles, self.cpu)
        self.shape = replace(shape_for(F32, tall, panel, 1, self.cpu), panels=1)
        self.lanes = self.shape.register.lanes
        self.rows = -(-tall // self.shape.rows) * self.shape.rows
        self.panels = -(-wide // panel)
        self.width = self.panels * panel
        self.longest = blocking.winograd_places // self.n**2
        part = maximum(op.part_tiles, 1)
        self.block = ceil_divide(part, ceil_divide(part, self.longest))
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.workspace = Pointer(self.writer.emit, argument, F32)

    @property
    def row_stride(self) -> int:
        """From one tile's input channels to the next one's: an odd number of cache lines, so that the same
        channels of many tiles are in different sets of a cache."""
        lines = -(-self.rows // LINE_FLOATS)
        return (lines | 1) * LINE_FLOATS

    def lower(self) -> Lowered:
        op, writer, emit = self.op, self.writer, self.writer.emit
        down, across = -(-self.channels // self.rows), -(-self.outputs // self.width)
        self._allocate()
        counts = [writer.size(op.parts, "parts")]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        tiles, length = writer.size(product(op.grid), "tiles"), writer.size(op.part_tiles, "part")
        channels, outputs = writer.size(self.channels, "c"), writer.size(self.outputs, "o")
        blocks = writer.size(ceil_divide(maximum(op.part_tiles, 1), self.block), "blocks")
        block = writer.size(self.block, "block")
        self.blank = self._zeros(max(self.rows, self.width))
        self._clear_edges(block)
        with for_each(emit, writer.first, writer.last) as number:
            part, i, j = unravel(number, counts)
            row, column = i * self.rows, j * self.width
            rows = smaller(channels - row, self.rows)
            columns = smaller(outputs - column, self.width)
            task = _Task(part, row, rows, column, columns)
            bottom = smaller((part + 1) * length, tiles)
            with for_each(emit, 0, blocks) as k:
                top = part * length + k * block
                # The last parts may have fewer blocks, or none.
                count = larger(smaller(bottom - top, block), 0)
                self._transform(task, top, count)
                self._multiply(task, k.equals(0), count)
            self._transform_sums(task)
        sides = self.rows, self.width
        work = gradient_picoseconds(self.n**2, op.part_tiles, sides, self.cpu.costs)
        last = (self.workspace.value,)
        return writer.finish(op.parts * down * across, nanoseconds(work), self.scratch, last)

    def _allocate(self) -> None:
        """Divide the thread's workspace: tiles of both sides, then sums; each a plane for every place."""
        writer, places = self.writer, self.n**2
        self.row_plane = writer.size(self.block * self.row_stride + LINE_FLOATS, "row plane")
        self.panel_stride = writer.size(self.block * self.shape.panel, "panel")
        self.column_plane = writer.size(self.block * self.width + LINE_FLOATS, "column plane")
        self.sum_plane = self.rows * self.width + LINE_FLOATS
        self.sums = self.workspace
        self.row_tiles = self.sums + places * self.sum_plane
        self.column_tiles = self.row_tiles + self.row_plane * places
        # Blocks are about equal, so more tiles may make smaller ones; what is reserved never shrinks.
        most = minimum(maximum(self.op.part_tiles, 1), self.longest)
        tiles = most * (self.row_stride + self.width) + 2 * LINE_FLOATS
        self.scratch: Size = places * (self.sum_plane + tiles) * F32.bytes

    def _zeros(self, count: int) -> Pointer:
        """What is read outside a picture: a zero for each channel of a task."""
        buffer = self.writer.buffer(count, F32)
        with for_each(self.writer.emit, 0, count) as number:
            buffer[number] = constant(self.writer.emit, 0, F32)
        return buffer

    def _clear_edges(self, block: Expr) -> None:
        """Write zeros where the last micro-tile reads beyond the last channel; nothing else is there."""
        emit, shape = self.writer.emit, self.shape
        zero = constant(emit, 0, F32)
        rows, columns = self.channels % self.rows, self.outputs % self.width
        first = columns // shape.panel * shape.panel
        with for_each(emit, 0, self.n**2) as place, for_each(emit, 0, block) as t:
            tile = self.row_tiles + place * self.row_plane + t * self.row_stride
            for row in range(rows, -(-rows // shape.rows) * shape.rows):
                tile[row] = zero
            if columns > first:
                number = first // shape.panel
                panel = self.column_tiles + place * self.column_plane + self.panel_stride * number
                with for_each(emit, columns - first, shape.panel) as column:
                    panel[t * shape.panel + column] = zero

    # Into the transformed form.

    def _transform(self, task: _Task, top: Expr, count: Expr) -> None:
        """Write Bᵀ x B and A dy Aᵀ of each tile of a block."""
        op, writer, panel = self.op, self.writer, self.shape.panel
        matrices, blank = transforms(self.m), self.blank
        lows = [low for low, _ in op.padding]
        machine = self.lanes, self.cpu.fma
        pictures = PictureTiles(writer, 0, lows, blank, matrices.input, *machine)
        cotangents = PictureTiles(writer, 1, (0, 0), blank, matrices.output.T, *machine)
        _, down, along = op.grid
        counts = [count, writer.size(down, "tiles down"), writer.size(along, "tiles along")]
        with for_each(writer.emit, 0, count) as t:
            picture, i, j = unravel(top + t, counts)
            position = [i * self.m, j * self.m]

            def write_row(channel: Expr, places: list[Expr]) -> None:
                target = self.row_tiles + (t * self.row_stride + channel)
                for number, place in enumerate(places):
                    (target + self.row_plane * number).store(0, place)

            def write_column(channel: Expr, places: list[Expr]) -> None:
                number = channel // panel
                target = self.column_tiles + (
                    number * self.panel_stride + t * panel + (channel - number * panel)
                )
                for number, place in enumerate(places):
                    (target + self.column_plane * number).store(0, place)

            pictures.transform(picture, position, task.row, task.rows, write_row)
            cotangents.transform(picture, position, task.column, task.columns, write_column)

    # Products.

    def _multiply(self, task: _Task, is_first: Expr, count: Expr) -> None:
        """Add the products of a block, summed over its tiles, to the sums of each place."""
        emit, shape = self.writer.emit, self.shape
        with for_each(emit, 0, self.n**2) as place:
            tiles = self.row_tiles + place * self.row_plane
            panels = self.column_tiles + place * self.column_plane
            sums = self.sums + place * self.sum_plane
            with for_each(emit, 0, task.columns, shape.panel) as column:
                panel = panels + column // shape.panel * self.panel_stride
                with for_each(emit, 0, task.rows, shape.rows) as row:
                    rows = [tiles + (row + number) for number in range(shape.rows)]
                    target = sums + (row * self.width + column)
                    start = zeros(emit, shape)
                    added = multiply(shape, rows, [panel], count, start, self.row_stride)

                    def later(target: Pointer = target, added: Sums = added) -> Sums:
                        before = load(shape, target, self.width)
                        return [one + other for one, other in zip(before, added, strict=True)]

                    total = either(is_first, lambda added=added: added, later)
                    store(shape, total, target, self.width)

    # Back into the gradient.

    def _transform_sums(self, task: _Task) -> None:
        """Write Gᵀ s G for the sums s of each pair of an input and an output channel."""
        writer, emit = self.writer, self.writer.emit
        matrix = transforms(self.m).kernel.T
        taps = [[h, w] for h in range(WINDOW) for w in range(WINDOW)]

        def write(row: Expr, column: Expr, lanes: int) -> None:
            at = self.sums + (row * self.width + column)
            places = [
                [(at + self.sum_plane * (h * self.n + w)).load(0, lanes) for w in range(self.n)]
                for h in range(self.n)
            ]
            gradient = both_sides(matrix, places, fused=self.cpu.fma)
            for (h, w), tap in zip(taps, gradient, strict=True):
                indices = [task.part, h, w, task.row + row, task.column + column]
                writer.part(2, indices).store(0, tap)

        whole = task.columns // self.lanes * self.lanes
        with for_each(emit, 0, task.rows) as row:
            with for_each(emit, 0, whole, self.lanes) as column:
                write(row, column, self.lanes)
            with for_each(emit, whole, task.columns) as column:
                write(row, column, 1)
