"""Micro-tiles and their epilogue, which all generated products for CPUs share.

A *micro-tile* is the sums that fit into the registers: some rows times some panels. When they are complete
the epilogue is applied to them, in registers or from memory, as far as the micro-tile is within the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dlc.dialects.expr import Expr, Pointer, index, minimum
from dlc.dialects.kernel.product_schedule import Packed, PackedPairs, PackInline, PackPairsInline
from dlc.dialects.kernel.products import Conv, Gemm, panel_count
from dlc.ir.dims import Size, floor_divide, maximum
from dlc.ir.passes import Context
from dlc.lowering.cpu.micro_kernel import Shape, Sums, shape_for, store
from dlc.lowering.cpu.register_epilogue import Target, Tile, in_registers, write_registers
from dlc.lowering.kernel_code.body import lanes_of
from dlc.lowering.kernel_code.epilogue import epilogue_body, write_epilogue
from dlc.lowering.kernel_code.lanes import Linear, Uniform
from dlc.lowering.kernel_code.words import either, for_each, parts_of
from dlc.lowering.kernel_code.writer import Writer
from dlc.planning.overwriting import reads_only_own_element
from dlc.target import cpu_of


@dataclass(frozen=True, slots=True)
class TileBounds:
    """A tile of results: its rows from `top` to `bottom`, its panels from `left` to `right`."""

    batch: list[Expr]
    top: Expr
    bottom: Expr
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Corner:
    """The first row and column of a micro-tile, and the `bottom` of its tile, the row after the last.

    `columns` is the first column, and how many there are from it on in its group.
    """

    batch: list[Expr]
    row: Expr
    bottom: Expr
    columns: tuple[Expr, Expr]


class ProductTiles:
    """Lowers a product; subclasses locate its operands and order its loops."""

    def __init__(self, op: Gemm | Conv, context: Context) -> None:
        self.product = op
        self.writer = Writer(op)
        assert isinstance(op.schedule, Packed | PackInline)
        self.panel = op.schedule.columns
        self.cpu = cpu_of(context.options)
        self.pairs = isinstance(op.schedule, PackedPairs | PackPairsInline)
        self.shape = self.shape_of(op.domain[-2])
        lanes = lanes_of(op.epilogue, self.cpu.vector_bytes)
        self.body = epilogue_body(op, self.writer, lanes)

    def shape_of(self, rows: Size) -> Shape:
        """The micro-tile for a tile of `rows` rows."""
        # The panels of two groups are multiplied by different rows.
        beside = 1 if self.groups > 1 else panel_count(self.product.columns, self.panel)
        dtype = self.product.accumulator
        return shape_for(dtype, rows, self.panel, beside, self.cpu, pairs=self.pairs)

    @property
    def is_single_row(self) -> Size:
        """1 where there is a single row, else 0; without rows nothing is done."""
        return floor_divide(1, maximum(self.product.domain[-2], 1))

    def steps(self, depth: Size) -> Size:
        """The steps of the micro-kernel for products over `depth` of k."""
        return floor_divide(depth, 2) if self.pairs else depth

    @property
    def groups(self) -> int:
        """Groups of a convolution, each with columns and panels of its own."""
        return self.product.groups if isinstance(self.product, Conv) else 1

    @property
    def across(self) -> Size:
        """Panels of all groups."""
        return self.groups * panel_count(self.columns, self.shape.panel)

    @property
    def columns(self) -> Size:
        """Columns of one group."""
        return self.product.columns // self.groups

    def columns_of(self, p: Expr) -> tuple[Expr | None, tuple[Expr, Expr]]:
        """The group of a panel, if there are several; its first column, and how many are left there."""
        writer, width = self.writer, self.shape.panel
        columns = writer.size(self.columns, "n")
        if self.groups == 1:
            column = p * width
            return None, (column, columns - column)
        each = writer.size(panel_count(self.columns, self.shape.panel), "panels of a group")
        group = p // each
        inside = (p - group * each) * width
        return group, (group * columns + inside, columns - inside)

    # The epilogue.

    def prefetch(self, corner: Corner) -> None:
        """Prefetch the epilogue's operands of a micro-tile while its sums are computed."""
        op, writer = self.product, self.writer
        column, _ = corner.columns
        axis = len(op.domain) - 2
        for argument, view in self.body.arrays.items():
            if not argument.uses or not reads_only_own_element(op, argument):
                continue
            part = writer.part(view, corner.batch)
            for number in range(self.shape.rows):
                part.prefetch((corner.row + number) * writer.stride(view, axis) + column)

    def targets(self, batch: Sequence[Expr]) -> list[Target]:
        """The results of a batch, and the strides of their rows."""
        op, writer = self.product, self.writer
        views = range(len(op.operands) - len(op.outs), len(op.operands))
        axis = len(op.domain) - 2
        return [(writer.part(view, batch), writer.stride(view, axis)) for view in views]

    def finish(
        self, corner: Corner, sums: Sums, buffer: Pointer, targets: Sequence[Target]
    ) -> None:
        """Apply the epilogue to a micro-tile, from registers unless it is at the edge of the result."""
        op, shape = self.product, self.shape
        emit = self.writer.emit
        _, columns = corner.columns
        rows = corner.bottom - corner.row
        height, width = index(emit, shape.rows), index(emit, shape.columns)

        def partly() -> None:
            store(shape, sums, buffer)
            extent = minimum(height, rows), minimum(width, columns)
            self._by_rows(corner, extent, buffer, targets)

        def whole() -> None:
            write_registers(op, self.body, self._registers(corner), sums, targets)

        def at_right_edge() -> None:
            store(shape, sums, buffer)
            self._by_parts(corner, buffer, targets)

        if not in_registers(op, self.body, shape):
            partly()
        elif isinstance(self.columns, int) and self.columns % shape.columns:
            tall = partial(either, columns >= width, whole, at_right_edge)
            either(rows >= height, tall, partly)
        else:
            either((rows >= height) & (columns >= width), whole, partly)

    def _registers(self, corner: Corner) -> Tile:
        """The indices of a micro-tile's registers."""
        column, _ = corner.columns
        lanes = self.shape.register.lanes
        rows = [corner.row + r for r in range(self.shape.rows)]
        columns = [Linear(column + v * lanes) for v in range(self.shape.across)]
        return Tile(corner.batch, rows, columns, lanes)

    def _by_parts(self, corner: Corner, buffer: Pointer, targets: Sequence[Target]) -> None:
        """Apply the epilogue to the sums in memory of a micro-tile at the right edge that has all rows.

        Register by register, and at the end to halves of one, down to single columns.
        """
        shape = self.shape
        assert isinstance(self.columns, int)
        column, _ = corner.columns
        rows = range(shape.rows)
        for first, lanes in parts_of(self.columns % shape.columns, shape.register.lanes):
            sums = [buffer.load(r * shape.columns + first, lanes) for r in rows]
            place = column + first
            columns = [Linear(place) if lanes > 1 else Uniform(place)]
            tile = Tile(corner.batch, [corner.row + r for r in rows], columns, lanes)
            write_registers(self.product, self.body, tile, sums, targets)

    def _by_rows(
        self,
        corner: Corner,
        extent: tuple[Expr, Expr],
        buffer: Pointer,
        targets: Sequence[Target],
    ) -> None:
        """Apply the epilogue row by row to sums in memory."""
        height, width = extent
        column, _ = corner.columns
        with for_each(self.writer.emit, 0, height) as r:
            sums = buffer + r * self.shape.columns
            m = corner.row + r
            results = [target + (m * stride + column) for target, stride in targets]
            leading = [*corner.batch, m]
            write_epilogue(self.product, self.body, leading, column, width, sums, results)
