"""`kernel.conv` in Winograd's form: tiles of the picture are transformed, multiplied, and transformed back.

A task is a block of tiles and some panels of output channels. It transforms the tiles of the picture into
`[place][tile][channel]`, a matrix for each of the (m + 2)² places of a transformed tile, multiplies each by
the panels of that place with the micro-kernel of all products, and transforms the sums back in registers,
where the epilogue is applied. Both buffers are the thread's own, and stay in the second-level cache or near
it. Tasks of one block follow each other, so a thread transforms the block once for all its panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, all_of, select
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.product_schedule import Winograd
from dlc.dialects.kernel.products import Conv, panel_count
from dlc.dialects.kernel.winograd import WINDOW, transforms
from dlc.ir.dims import Size, ceil_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import F32, POINTER
from dlc.lowering.cpu.micro_kernel import (
    SUM_LENGTH,
    Ahead,
    Sums,
    multiply,
    multiply_long,
    shape_for,
    store,
    zeros,
)
from dlc.lowering.cpu.register_epilogue import Tile, in_registers, write_registers
from dlc.lowering.cpu.winograd.tile_transforms import PictureTiles, both_sides
from dlc.lowering.kernel_code.body import lanes_of
from dlc.lowering.kernel_code.epilogue import epilogue_body, write_epilogue
from dlc.lowering.kernel_code.lanes import Linear
from dlc.lowering.kernel_code.words import either, for_each, unravel, when
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import LINE_FLOATS
from dlc.target.work import nanoseconds, winograd_block, winograd_picoseconds


def lower_winograd(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one convolution in Winograd's form."""
    assert isinstance(op, Conv)
    return _WinogradConv(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Task:
    """The tiles from `top` on, `count` of them, and the panels from `left` up to `right`."""

    top: Expr
    count: Expr
    left: Expr
    right: Expr


class _WinogradConv:
    def __init__(self, op: Conv, context: Context) -> None:
        assert isinstance(op.schedule, Winograd)
        self.op = op
        self.m = op.schedule.tile
        self.n = self.m + WINDOW - 1
        self.cpu = cpu_of(context.options)
        self.writer = Writer(op)
        self.body = epilogue_body(op, self.writer, lanes_of(op.epilogue, self.cpu.vector_bytes))
        batch, _, _, channels = kernel.array_type(op.lhs).shape
        assert isinstance(channels, int)
        self.channels = channels
        down, along = (ceil_divide(extent, self.m) for extent in op.extents)
        self.grid = batch, down, along
        self.block = winograd_block(product(self.grid), self.n**2, self.cpu.products)
        panels = panel_count(op.columns, op.schedule.columns)
        assert isinstance(panels, int)
        self.panels = panels
        self.shape = shape_for(F32, self.block, op.schedule.columns, panels, self.cpu)
        self.lanes = self.shape.register.lanes
        argument = self.writer.block.add_argument(POINTER, "scratch")
        self.workspace = Pointer(self.writer.emit, argument, F32)

    @property
    def pass_panels(self) -> int:
        """Panels of a task: micro-tiles side by side, at most as many as hold all columns."""
        most = self.cpu.products.winograd_columns // self.shape.columns
        needed = -(-self.panels // self.shape.panels)
        return max(1, min(most, needed)) * self.shape.panels

    @property
    def width(self) -> int:
        """Columns of a task."""
        return self.pass_panels * self.shape.panel

    def lower(self) -> Lowered:
        writer = self.writer
        tiles = product(self.grid)
        blocks = ceil_divide(maximum(tiles, 1), self.block)
        passes = ceil_divide(self.panels, self.pass_panels)
        self._allocate()
        counts = [writer.size(blocks, "blocks"), writer.size(passes, "passes")]
        block = writer.size(self.block, "block")
        with for_each(writer.emit, writer.first, writer.last) as number:
            i, j = unravel(number, counts)
            top, left = i * block, j * self.pass_panels
            count = smaller(writer.size(tiles, "tiles") - top, block)
            right = smaller(left + self.pass_panels, writer.size(self.panels, "panels"))
            task = _Task(top, count, left, right)
            with when(j.equals(0) | number.equals(writer.first)):
                self._transform_pictures(task)
            self._multiply(task)
            self._transform_sums(task)
        work = winograd_picoseconds(
            self.n**2 * self.block, self.channels, self.width, self.cpu.costs
        )
        last = (self.workspace.value,)
        return writer.finish(blocks * passes, nanoseconds(work), self.scratch, last)

    def _allocate(self) -> None:
        """Divide the thread's workspace: transformed tiles, then sums; each a plane for every place."""
        writer, places = self.writer, self.n**2
        self.tile_plane = writer.size(self._tile_plane(self.block), "tile plane")
        self.sum_plane = writer.size(self._sum_plane(self.block), "sum plane")
        self.tiles = self.workspace
        self.sums = self.workspace + self.tile_plane * places
        # Tasks are about equal, so more tiles may make smaller ones; what is reserved never shrinks.
        most = minimum(product(self.grid), self.cpu.products.winograd_places // places)
        self.scratch = places * (self._tile_plane(most) + self._sum_plane(most)) * F32.bytes

    def _tile_plane(self, tiles: Size) -> Size:
        # A plane begins one line further than it would, in other sets of the cache.
        return tiles * self.channels + LINE_FLOATS

    def _sum_plane(self, tiles: Size) -> Size:
        return ceil_divide(tiles, self.shape.rows) * self.shape.rows * self.width + LINE_FLOATS

    # Into the transformed form.

    def _transform_pictures(self, task: _Task) -> None:
        """Write Bᵀ x B of every tile x of a block; outside the picture x is 0."""
        writer, matrix = self.writer, transforms(self.m).input
        lows = [low for low, _ in self.op.padding]
        blank = writer.pointer(2)
        tiles = PictureTiles(writer, 0, lows, blank, matrix, self.lanes, self.cpu.fma)
        with for_each(writer.emit, 0, task.count) as t:
            target = self.tiles + t * writer.size(self.channels, "channels")
            picture, *corner = self._position(task.top + t)

            def write(channel: Expr, places: list[Expr], target: Pointer = target) -> None:
                for number, place in enumerate(places):
                    (target + self.tile_plane * number).store(channel, place)

            tiles.transform(picture, corner, 0, self.channels, write)

    def _position(self, tile: Expr) -> list[Expr]:
        """The picture of a tile, and its first row and column in the result."""
        _, down, along = self.grid
        counts = [tile, self.writer.size(down, "down"), self.writer.size(along, "along")]
        picture, i, j = unravel(tile, counts)
        return [picture, i * self.m, j * self.m]

    # Products.

    def _multiply(self, task: _Task) -> None:
        """The sums over all channels, for each place of a transformed tile."""
        writer, shape, emit = self.writer, self.shape, self.writer.emit
        depth = writer.size(self.channels, "channels")
        across = writer.size(self.panels, "panels")
        with for_each(emit, 0, self.n**2) as place:
            matrix = writer.part(1, [place])
            tiles = self.tiles + place * self.tile_plane
            sums = self.sums + place * self.sum_plane
            with for_each(emit, task.left, task.right, shape.panels) as p:
                panels = [
                    matrix + smaller(p + number, across - 1) * writer.stride(1, 1)
                    for number in range(shape.panels)
                ]
                target = sums + (p - task.left) * shape.panel
                ahead = self._next_panels(task, place, p)
                with for_each(emit, 0, task.count, shape.rows) as row:
                    rows = [
                        tiles + smaller(row + number, task.count - 1) * depth
                        for number in range(shape.rows)
                    ]
                    part = ahead and ahead.after(row // shape.rows * depth)
                    total = self._sums(rows, panels, depth, part)
                    store(shape, total, target + row * self.width, self.width)

    def _next_panels(self, task: _Task, place: Expr, p: Expr) -> Ahead | None:
        """What micro-tiles prefetch of the panel that comes next, of this place or of the next one."""
        shape, writer = self.shape, self.writer
        if shape.panels > 1:
            return None
        is_last = p.equals(task.right - 1)
        next_place, next_panel = (
            select(is_last, place + 1, place),
            select(is_last, task.left, p + 1),
        )
        following = writer.part(1, [next_place]) + next_panel * writer.stride(1, 1)
        tiles = ceil_divide(self.block, shape.rows)
        each = -(-shape.panel // tiles) if isinstance(tiles, int) else 1
        return Ahead(following, writer.size(each, "ahead"), each)

    def _sums(
        self, rows: Sequence[Pointer], panels: Sequence[Pointer], depth: Expr, ahead: Ahead | None
    ) -> Sums:
        if self.channels > SUM_LENGTH:
            return multiply_long(self.shape, rows, panels, depth)
        none = zeros(depth.emit, self.shape)
        return multiply(self.shape, rows, panels, depth, none, ahead=ahead)

    # Back into pixels.

    def _transform_sums(self, task: _Task) -> None:
        """Write the epilogue of Aᵀ s A for the sums s of every tile of a block."""
        writer, emit, shape = self.writer, self.writer.emit, self.shape
        extents = [writer.size(extent, "out", axis) for axis, extent in enumerate(self.op.extents)]
        columns = writer.size(self.op.columns, "n")
        buffer = writer.buffer(self.m**2 * shape.panel, F32)
        with for_each(emit, 0, task.count) as t:
            picture, *corner = self._position(task.top + t)
            tile_inside = all_of(
                at + self.m <= extent for at, extent in zip(corner, extents, strict=True)
            )
            with for_each(emit, task.left, task.right) as p:
                sums = self.sums + (t * self.width + (p - task.left) * shape.panel)
                first = p * shape.panel
                pixel = _Pixels(picture, corner, extents, self.m)
                fits = all_of([tile_inside, columns - first >= shape.panel])
                assert isinstance(fits, Expr)

                def whole() -> None:
                    self._each_register(
                        sums, lambda v, pixels: self._finish(pixel, first + v, pixels)
                    )

                def partly() -> None:
                    self._each_register(sums, lambda v, pixels: self._keep(buffer, v, pixels))
                    self._finish_some(pixel, first, smaller(columns - first, shape.panel), buffer)

                if in_registers(self.op, self.body, shape):
                    either(fits, whole, partly)
                else:
                    partly()

    def _each_register(self, sums: Pointer, then: Callable[[Expr, list[Expr]], None]) -> None:
        """Transform the sums of a panel back, register by register of its columns."""
        matrix = transforms(self.m).output
        with for_each(self.writer.emit, 0, self.shape.panel, self.lanes) as v:
            places = [
                [
                    (sums + self.sum_plane * (h * self.n + w)).load(v, self.lanes)
                    for w in range(self.n)
                ]
                for h in range(self.n)
            ]
            then(v, both_sides(matrix, places, fused=self.cpu.fma))

    def _finish(self, pixels: _Pixels, column: Expr, sums: list[Expr]) -> None:
        """Apply the epilogue to all pixels of a tile in registers."""
        tile = Tile((), pixels.numbers(), [Linear(column)], self.lanes)
        write_registers(self.op, self.body, tile, sums, self._targets())

    def _keep(self, buffer: Pointer, v: Expr, sums: list[Expr]) -> None:
        for number, register in enumerate(sums):
            (buffer + number * self.shape.panel).store(v, register)

    def _finish_some(self, pixels: _Pixels, column: Expr, width: Expr, buffer: Pointer) -> None:
        """Apply the epilogue to those pixels of a tile, in memory, that are in the result."""
        emit = self.writer.emit
        down, along = pixels.inside()
        with for_each(emit, 0, down) as r, for_each(emit, 0, along) as s:
            pixel = pixels.number(r, s)
            sums = buffer + (r * self.m + s) * self.shape.panel
            targets = [target + (pixel * stride + column) for target, stride in self._targets()]
            write_epilogue(self.op, self.body, [pixel], column, width, sums, targets)

    def _targets(self) -> list[tuple[Pointer, Expr | int]]:
        views = range(len(self.op.operands) - len(self.op.outs), len(self.op.operands))
        return [(self.writer.pointer(view), self.writer.stride(view, 0)) for view in views]


@dataclass(frozen=True, slots=True)
class _Pixels:
    """The pixels of a tile of results: its picture, first row and column, and the size of a result."""

    picture: Expr
    corner: Sequence[Expr]
    extents: Sequence[Expr]
    m: int

    def number(self, r: Expr | int, s: Expr | int) -> Expr:
        """The number of a pixel among all of the result."""
        (row, column), (height, width) = self.corner, self.extents
        return (self.picture * height + (row + r)) * width + (column + s)

    def numbers(self) -> list[Expr]:
        """The numbers of all pixels, row by row."""
        return [self.number(r, s) for r in range(self.m) for s in range(self.m)]

    def inside(self) -> list[Expr]:
        """The rows and columns of the tile that are in the result."""
        pairs = zip(self.corner, self.extents, strict=True)
        return [smaller(extent - at, self.m) for at, extent in pairs]
