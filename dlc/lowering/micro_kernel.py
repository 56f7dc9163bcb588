"""The innermost loop of every generated product: a few rows times a few panels, sums in registers.

The right operand comes in *panels*: `panel[k][NR]`, NR columns side by side for every k. For each k the
panel's row is loaded once and multiplied by one element of each row of the left operand. The shape is
chosen so that sums, one panel row and one broadcast element fill the registers
(`dlc.passes.panel_width`). Products of few rows take several panels at a time instead:
additions that wait for each other must be many, and one stream from memory is slower than four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import loop, scalar, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.types import DType, VectorType
from dlc.lowering.loop_words import for_each, index, minimum
from dlc.passes.panel_width import rows_of
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


Sums = list[Value]
"""Registers of sums, row by row."""


def zeros(emit: Builder, shape: Shape) -> Sums:
    """Sums of nothing."""
    dtype = shape.register.dtype
    zero = emit(scalar.Constant(0.0 if dtype.is_float else 0, shape.register))
    return [zero] * (shape.rows * shape.across)


def multiply(
    emit: Builder,
    shape: Shape,
    rows: Sequence[Value],
    panels: Sequence[Value],
    depth: Value,
    sums: Sums,
    apart: int = 1,
) -> Sums:
    """Add `depth` products to every sum: `rows` point at elements k = 0, `panels` at row 0.

    Elements k = 0, 1, ... of a row are so many elements `apart`.
    """
    steps = index(emit, UNROLL)
    even = emit(scalar.Multiply(emit(scalar.RawDivide(depth, steps)), steps))

    def several(inside: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
        for step in range(UNROLL):
            at = k if step == 0 else inside(scalar.Add(k, index(inside, step)))
            carried = _step(inside, shape, rows, panels, at, carried, apart)
        return carried

    def one(inside: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
        return _step(inside, shape, rows, panels, k, carried, apart)

    sums = list(for_each(emit, index(emit, 0), even, UNROLL, sums, several))
    return list(for_each(emit, even, depth, 1, sums, one))


def multiply_long(
    emit: Builder,
    shape: Shape,
    rows: Sequence[Value],
    panels: Sequence[Value],
    depth: Value,
) -> Sums:
    """The sums of `depth` products, however many: stretches of them are summed, then these sums."""
    width = index(emit, shape.panel)
    dtype = shape.register.dtype

    def stretch(inside: Builder, start: Value, totals: list[Value]) -> Sequence[Value]:
        left = inside(scalar.Subtract(depth, start))
        length = minimum(inside, left, index(inside, STRETCH))
        down = inside(scalar.Multiply(start, width))
        here = [inside(loop.Offset(row, start, dtype)) for row in rows]
        beside = [inside(loop.Offset(panel, down, dtype)) for panel in panels]
        sums = multiply(inside, shape, here, beside, length, zeros(inside, shape))
        return [inside(scalar.Add(*pair)) for pair in zip(totals, sums, strict=True)]

    return list(for_each(emit, index(emit, 0), depth, STRETCH, zeros(emit, shape), stretch))


def _step(
    emit: Builder,
    shape: Shape,
    rows: Sequence[Value],
    panels: Sequence[Value],
    k: Value,
    sums: Sums,
    apart: int,
) -> Sums:
    along = k if apart == 1 else emit(scalar.Multiply(k, index(emit, apart)))
    start = emit(scalar.Multiply(k, index(emit, shape.panel)))
    lanes = shape.register.lanes
    across = [
        emit(vec.Load(panel, emit(scalar.Add(start, index(emit, r * lanes))), shape.register))
        for panel in panels
        for r in range(shape.registers)
    ]
    result: Sums = []
    for number, row in enumerate(rows):
        element = emit(vec.Broadcast(emit(loop.Load(row, along, shape.register.dtype)), lanes))
        for r, column in enumerate(across):
            result.append(_add(emit, shape, element, column, sums[number * shape.across + r]))
    return result


def _add(emit: Builder, shape: Shape, one: Value, other: Value, sums: Value) -> Value:
    if shape.fma and shape.register.dtype.is_float:
        return emit(scalar.Fma(one, other, sums))
    return emit(scalar.Add(emit(scalar.Multiply(one, other)), sums))


def store(
    emit: Builder, shape: Shape, sums: Sums, room: Value, distance: int | None = None
) -> None:
    """Write the tile of sums to memory, row by row, rows so many elements apart: none between them."""
    lanes = shape.register.lanes
    for number, value in enumerate(sums):
        row, register = divmod(number, shape.across)
        place = row * (distance or shape.columns) + register * lanes
        emit.place(vec.Store(value, room, index(emit, place)))


def load(emit: Builder, shape: Shape, room: Value) -> Sums:
    """The tile of sums that `store` wrote to memory, its rows one behind the other."""
    lanes = shape.register.lanes
    places = range(0, shape.rows * shape.columns, lanes)
    return [emit(vec.Load(room, index(emit, place), shape.register)) for place in places]
