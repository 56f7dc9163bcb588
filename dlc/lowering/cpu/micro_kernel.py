"""The innermost loop of every generated product: a few rows times a few panels, sums in registers.

The right operand comes in *panels*: `panel[k][NR]`, NR columns side by side for every k. For each k the
panel's row is loaded once and multiplied by one element of each row of the left operand. The shape is
chosen so that sums, one panel row and one broadcast element fill the registers
(`dlc.passes.kernel.panel_width`). Products of few rows take several panels at a time instead:
additions that wait for each other must be many, and one stream from memory is slower than four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Expr, Pointer, broadcast, constant, fma, minimum
from dlc.ir.core import Builder
from dlc.ir.dims import Size
from dlc.ir.types import DType, VectorType
from dlc.lowering.kernel_code.words import iterate
from dlc.passes.kernel.panel_width import rows_of
from dlc.target.cpu import CpuTarget

UNROLL = 2
"""Steps of k per round: enough to hide the counting, and short code."""
MAX_PANELS = 4
"""Panels that are read at the same time."""
STRETCH = 4096
"""Products added to one sum before it joins a total: a sum loses digits with each addition."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile of sums: rows, panels side by side, registers in a row of a panel, and the register."""

    rows: int
    panels: int
    registers: int
    register: VectorType
    fma: bool

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.registers * self.register.lanes

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.panels * self.panel

    @property
    def across(self) -> int:
        """Registers in a row of the tile."""
        return self.panels * self.registers


def shape_for(dtype: DType, m: Size, panel: int, beside: Size, cpu: CpuTarget) -> Shape:
    """The tile of sums for a product of `m` rows with panels of so many columns on the target.

    `beside` counts the panels that a tile may go through: of a group of products, or of all columns.
    """
    register = VectorType(dtype, cpu.lanes(dtype))
    registers = panel // register.lanes
    most = cpu.products.tile(registers).rows
    rows = rows_of(m, most, cpu.products) if isinstance(m, int) else most
    sums = max(tile.rows * tile.registers for tile in cpu.products.tiles)
    panels = min(max(sums // (rows * registers), 1), MAX_PANELS)
    if isinstance(beside, int):
        panels = min(panels, max(beside, 1))
    return Shape(rows, panels, registers, register, cpu.fma)


Sums = list[Expr]
"""Registers of sums, row by row."""


def zeros(emit: Builder, shape: Shape) -> Sums:
    """Sums of nothing."""
    return [constant(emit, 0, shape.register)] * (shape.rows * shape.across)


def multiply(
    shape: Shape,
    rows: Sequence[Pointer],
    panels: Sequence[Pointer],
    depth: Expr,
    sums: Sums,
    stride: int = 1,
) -> Sums:
    """Add `depth` products to every sum: `rows` point at elements k = 0, `panels` at row 0.

    Elements k = 0, 1, ... of a row are `stride` elements apart.
    """
    even = depth // UNROLL * UNROLL

    def several(k: Expr, sums: Sums) -> Sums:
        for step in range(UNROLL):
            sums = _step(shape, rows, panels, k + step if step else k, sums, stride)
        return sums

    def one(k: Expr, sums: Sums) -> Sums:
        return _step(shape, rows, panels, k, sums, stride)

    sums = iterate(depth.emit, 0, even, sums, several, UNROLL)
    return iterate(depth.emit, even, depth, sums, one)


def multiply_long(
    shape: Shape, rows: Sequence[Pointer], panels: Sequence[Pointer], depth: Expr
) -> Sums:
    """The sums of `depth` products, however many: stretches of them are summed, then these sums."""
    emit = depth.emit

    def stretch(start: Expr, totals: Sums) -> Sums:
        length = minimum(depth - start, STRETCH)
        down = start * shape.panel
        later_rows = [row + start for row in rows]
        later_panels = [panel + down for panel in panels]
        sums = multiply(shape, later_rows, later_panels, length, zeros(emit, shape))
        return [total + sum for total, sum in zip(totals, sums, strict=True)]

    return iterate(emit, 0, depth, zeros(emit, shape), stretch, STRETCH)


def _step(
    shape: Shape,
    rows: Sequence[Pointer],
    panels: Sequence[Pointer],
    k: Expr,
    sums: Sums,
    stride: int,
) -> Sums:
    """The sums with one product added to each."""
    along, start, lanes = k * stride, k * shape.panel, shape.register.lanes
    across = [
        panel.load(start + r * lanes, lanes) for panel in panels for r in range(shape.registers)
    ]
    totals: Sums = []
    for number, row in enumerate(rows):
        element = broadcast(row[along], lanes)
        own = sums[number * shape.across : (number + 1) * shape.across]
        totals += [_add(shape, element, *pair) for pair in zip(across, own, strict=True)]
    return totals


def _add(shape: Shape, one: Expr, other: Expr, sum: Expr) -> Expr:
    return fma(one, other, sum) if shape.fma else one * other + sum


def store(shape: Shape, sums: Sums, buffer: Pointer, stride: int | None = None) -> None:
    """Write the tile of sums to memory, row by row, `stride` elements apart, by default the columns."""
    lanes = shape.register.lanes
    for number, register in enumerate(sums):
        row, across = divmod(number, shape.across)
        buffer.store(row * (stride or shape.columns) + across * lanes, register)


def load(shape: Shape, buffer: Pointer) -> Sums:
    """The tile of sums that `store` wrote to memory, its rows one behind the other."""
    lanes = shape.register.lanes
    return [buffer.load(place, lanes) for place in range(0, shape.rows * shape.columns, lanes)]
