"""What all lowerings of products share: the tile of sums, the columns of groups, and how sums are finished.

A *micro-tile* is the sums that fit into the registers: some rows times some panels. When they are complete
the epilogue is applied to them, in the registers or from memory, as far as the micro-tile is inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import loop, scalar
from dlc.dialects.kernel_products import Conv, Gemm, panel_count
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.lowering.body import lanes_of
from dlc.lowering.epilogue import (
    Target,
    Tile,
    epilogue_body,
    in_registers,
    write_epilogue,
    write_registers,
)
from dlc.lowering.lanes import Linear
from dlc.lowering.loop_words import add, for_each, index, times
from dlc.lowering.loop_words import minimum as smaller
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import Writer
from dlc.lowering.micro_kernel import Shape, Sums, shape_for, store
from dlc.lowering.plan_storage import reads_only_own_element


@dataclass(frozen=True, slots=True)
class Corner:
    """Where the results of a micro-tile begin, and the row after the last one of its tile.

    `stretch` is the first column, and how many there are from it on.
    """

    batch: list[Value]
    row: Value
    bottom: Value
    stretch: tuple[Value, Value]


class ProductTiles:
    """A product being written; subclasses say where its operands are and in which order they meet."""

    def __init__(self, op: Gemm | Conv, context: Context) -> None:
        self.product = op
        self.writer = Writer(op)
        panel = op.packs or op.panel if isinstance(op, Gemm) else op.panel
        # The panels of two groups do not meet the same rows.
        beside = 1 if self.groups > 1 else panel_count(op.columns, panel)
        self.shape: Shape = shape_for(op.accumulator, op.domain[-2], panel, beside, context.options)
        lanes = lanes_of(op.epilogue, context.options.vector_bytes)
        self.body = epilogue_body(op, self.writer, lanes)

    @property
    def groups(self) -> int:
        """Products beside each other, each with columns and panels of its own."""
        return self.product.groups if isinstance(self.product, Conv) else 1

    @property
    def across(self) -> Size:
        """Panels of all groups."""
        return self.groups * panel_count(self.columns, self.shape.panel)

    @property
    def columns(self) -> Size:
        """Columns of one group."""
        return self.product.columns // self.groups

    def stretch(self, emit: Builder, p: Value) -> tuple[Value | None, tuple[Value, Value]]:
        """The group of a panel, if there are several; its first column, and how many are left there."""
        writer, width = self.writer, index(emit, self.shape.panel)
        columns = writer.size(self.columns, "n").value
        if self.groups == 1:
            column = emit(scalar.Multiply(p, width))
            return None, (column, emit(scalar.Subtract(columns, column)))
        each = writer.size(panel_count(self.columns, self.shape.panel), "panels of a group").value
        group = emit(scalar.RawDivide(p, each))
        within = emit(scalar.Subtract(p, emit(scalar.Multiply(group, each))))
        inside = emit(scalar.Multiply(within, width))
        column = emit(scalar.Add(emit(scalar.Multiply(group, columns)), inside))
        return group, (column, emit(scalar.Subtract(columns, inside)))

    def part(self, emit: Builder, view: int, indices: Sequence[Value]) -> Value:
        """The address of the part of a view with these leading indices."""
        offset: Value | None = None
        for axis, position in enumerate(indices):
            offset = add(emit, offset, times(emit, position, self.writer.stride(view, axis)))
        pointer = self.writer.pointers[view]
        if offset is None:
            return pointer
        return emit(loop.Offset(pointer, offset, self.writer.views[view].dtype))

    # The epilogue.

    def prefetch(self, emit: Builder, corner: Corner) -> None:
        """Ask for what the epilogue reads in a micro-tile: it comes while the sums are made."""
        op = self.product
        column, _ = corner.stretch
        axis = len(op.domain) - 2
        for argument, view in self.body.arrays.items():
            if not argument.uses or not reads_only_own_element(op, argument):
                continue
            pointer, dtype = self.part(emit, view, corner.batch), self.writer.views[view].dtype
            for number in range(self.shape.rows):
                row = emit(scalar.Add(corner.row, index(emit, number)))
                along = times(emit, row, self.writer.stride(view, axis))
                emit.place(loop.Prefetch(pointer, emit(scalar.Add(along, column)), dtype))

    def targets(self, emit: Builder, batch: Sequence[Value]) -> list[Target]:
        """Where the results of a batch are, and the strides of their rows."""
        op = self.product
        views = range(len(op.operands) - len(op.outs), len(op.operands))
        axis = len(op.domain) - 2
        return [(self.part(emit, view, batch), known_stride(self.writer.stride(view, axis))) for view in views]

    def finish(
        self, emit: Builder, corner: Corner, sums: Sums, room: Value, targets: Sequence[Target]
    ) -> None:
        """The epilogue over the part of a micro-tile that exists: from registers where all of it does."""
        op, shape = self.product, self.shape
        _, columns = corner.stretch
        rows = emit(scalar.Subtract(corner.bottom, corner.row))
        height, width = index(emit, shape.rows), index(emit, shape.columns)
        if not in_registers(op, self.body, shape):
            store(emit, shape, sums, room)
            some = smaller(emit, height, rows), smaller(emit, width, columns)
            self._by_rows(emit, corner, some, room, targets)
            return
        inside, beside = Block(), Block()
        whole = Builder(inside, emit.location)
        tile = self._registers(whole, corner)
        write_registers(op, self.body, whole, tile, sums, targets)
        whole.place(loop.Yield([]))
        partly = Builder(beside, emit.location)
        store(partly, shape, sums, room)
        some = smaller(partly, height, rows), smaller(partly, width, columns)
        self._by_rows(partly, corner, some, room, targets)
        partly.place(loop.Yield([]))
        tall = emit(scalar.Compare(rows, height, "ge"))
        wide = emit(scalar.Compare(columns, width, "ge"))
        emit.place(loop.If(emit(scalar.And(tall, wide)), inside, beside))

    def _registers(self, emit: Builder, corner: Corner) -> Tile:
        """Which elements the registers of a micro-tile are."""
        column, _ = corner.stretch
        lanes = self.shape.register.lanes
        rows = [emit(scalar.Add(corner.row, index(emit, r))) for r in range(self.shape.rows)]
        steps = [index(emit, v * lanes) for v in range(self.shape.across)]
        places = [Linear(emit(scalar.Add(column, step))) for step in steps]
        return Tile(corner.batch, rows, places, lanes)

    def _by_rows(
        self,
        emit: Builder,
        corner: Corner,
        extent: tuple[Value, Value],
        room: Value,
        targets: Sequence[Target],
    ) -> None:
        """The epilogue row by row over sums in memory."""
        op, shape = self.product, self.shape
        height, width = extent
        column, _ = corner.stretch
        first = len(op.operands) - len(op.outs)

        def finish(inside: Builder, r: Value, _: list[Value]) -> Sequence[Value]:
            here = inside(scalar.Multiply(r, index(inside, shape.columns)))
            sums = inside(loop.Offset(room, here, op.accumulator))
            m = inside(scalar.Add(corner.row, r))
            results: list[Value] = []
            for view, (target, stride) in enumerate(targets, first):
                place = inside(scalar.Add(times(inside, m, stride), column))
                results.append(inside(loop.Offset(target, place, self.writer.views[view].dtype)))
            leading = [*corner.batch, m]
            write_epilogue(op, self.body, inside, leading, column, width, sums, results)
            return ()

        for_each(emit, index(emit, 0), height, 1, (), finish)
