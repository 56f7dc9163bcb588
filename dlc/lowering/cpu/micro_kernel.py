"""The micro-kernel of every generated product (BLIS): MR rows times some panels, sums in registers.

The right operand comes in *panels*: `panel[k][NR]`, NR columns side by side for every k. Each step of k
is a rank-1 update: the panel's row is loaded once and multiplied by one broadcast element of each row of
the left operand. The sums, one panel row and one broadcast element fill the registers: NR, the width of
panels, is chosen by `dlc.target.register_blocking`, and so is MR, which `shape_for` asks it for;
what fits a processor's registers is in `dlc.target.products`. Products of few rows take several panels at
a time instead: they need enough independent additions to hide their latency, and four streams from memory
are faster than one.

Numbers of 16 bits, i16 and where the processor can bf16, are multiplied in pairs: an element is two of
them, which fill a lane of i32, and a step is two steps of k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.dialects.expr import Expr, Pointer, broadcast, constant, dot_pairs, fma, minimum
from dlc.ir.core import Builder
from dlc.ir.dims import Size
from dlc.ir.types import I32, DType, VectorType
from dlc.lowering.kernel_code.words import iterate
from dlc.target.cpu import LINE_BYTES, CpuTarget
from dlc.target.products import ProductBlocking
from dlc.target.register_blocking import rows_of

UNROLL = 2
"""Steps of k per iteration: enough to hide the loop overhead, and short code."""
MAX_PANELS = 4
"""Panels that are read at the same time."""
SUM_LENGTH = 4096
"""Products added to one sum before it is added to a total: blocked summation bounds rounding errors."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The micro-tile: rows (MR), panels side by side, registers in a row of a panel, and the register."""

    rows: int
    panels: int
    registers: int
    register: VectorType
    """Of sums."""
    factors: DType
    """What is multiplied: I32 for pairs, else numbers of the dtype of the sums. Panels of 16-bit floats are
    widened to it."""
    fma: bool

    @property
    def panel(self) -> int:
        """Columns of a panel (NR)."""
        return self.registers * self.register.lanes

    @property
    def columns(self) -> int:
        """Columns of the micro-tile."""
        return self.panels * self.panel

    @property
    def across(self) -> int:
        """Registers in a row of the micro-tile."""
        return self.panels * self.registers


def shape_for(
    dtype: DType, m: Size, panel: int, beside: Size, cpu: CpuTarget, *, pairs: bool = False
) -> Shape:
    """The micro-tile for a product of `m` rows with panels of `panel` columns on the target.

    `beside` counts the panels that it may take together: those of a group, or of all columns.
    """
    register = VectorType(dtype, cpu.lanes(dtype))
    registers = panel // register.lanes
    most = cpu.products.tile(registers).rows
    rows = rows_of(m, most, cpu.products) if isinstance(m, int) else most
    sums = max(tile.rows * tile.registers for tile in cpu.products.tiles)
    panels = min(max(sums // (rows * registers), 1), MAX_PANELS)
    if isinstance(beside, int):
        panels = min(panels, max(beside, 1))
    return Shape(rows, panels, registers, register, I32 if pairs else dtype, cpu.fma)


def streamed(shape: Shape, panel_bytes: Size, blocking: ProductBlocking) -> Shape:
    """The micro-tile of a product of few rows, each panel of which is read once.

    It has fewer panels where all of them would make too large a tile, as long as its sums hide the latency
    of an addition: then threads share even a product of few columns.
    """
    if not isinstance(panel_bytes, int):
        return shape
    fitting = blocking.streamed_panel_bytes // max(panel_bytes, 1)
    least = -(-blocking.latency_sums // (shape.rows * shape.registers))
    return replace(shape, panels=min(shape.panels, max(fitting, least)))


Sums = list[Expr]
"""Registers of sums, row by row."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a micro-tile prefetches of the next panel, from `start` on: `each` elements for each step of k.

    They are `most` at most, and an argument of the kernel, which does not depend on their number.
    Otherwise the first rows that meet a panel wait for it: it comes from memory at a fraction of the rate
    at which they read it, and hardware does not prefetch it before they begin.
    """

    start: Pointer
    each: Expr
    most: int

    def prefetch(self, k: Expr, steps: int) -> None:
        """Prefetch what belongs to `steps` steps of k."""
        line = LINE_BYTES // self.start.dtype.bytes
        for first in range(0, self.most * steps, line):
            self.start.prefetch(k * self.each + first)

    def after(self, steps: Expr) -> Ahead:
        """What is left after some steps of k."""
        return replace(self, start=self.start + steps * self.each)


def zeros(emit: Builder, shape: Shape) -> Sums:
    """Sums of no products."""
    return [constant(emit, 0, shape.register)] * (shape.rows * shape.across)


def multiply(
    shape: Shape,
    rows: Sequence[Pointer],
    panels: Sequence[Pointer],
    depth: Expr,
    sums: Sums,
    stride: int = 1,
    unroll: int = UNROLL,
    ahead: Ahead | None = None,
) -> Sums:
    """Add `depth` products to every sum: `rows` point at elements k = 0, `panels` at row 0.

    Elements k = 0, 1, ... of a row are `stride` elements apart. There are `unroll` steps in an iteration,
    which prefetches a part of the panel that comes `ahead`.
    """
    even = depth // unroll * unroll

    def unrolled(k: Expr, sums: Sums) -> Sums:
        if ahead is not None:
            ahead.prefetch(k, unroll)
        for step in range(unroll):
            sums = _step(shape, rows, panels, k + step if step else k, sums, stride)
        return sums

    def single(k: Expr, sums: Sums) -> Sums:
        return _step(shape, rows, panels, k, sums, stride)

    sums = iterate(depth.emit, 0, even, sums, unrolled, unroll)
    return iterate(depth.emit, even, depth, sums, single)


def multiply_long(
    shape: Shape, rows: Sequence[Pointer], panels: Sequence[Pointer], depth: Expr
) -> Sums:
    """The sums of any number of products: blocks of `SUM_LENGTH` are summed, then their sums."""
    emit = depth.emit

    def block(start: Expr, totals: Sums) -> Sums:
        length = minimum(depth - start, SUM_LENGTH)
        down = start * shape.panel
        later_rows = [row + start for row in rows]
        later_panels = [panel + down for panel in panels]
        sums = multiply(shape, later_rows, later_panels, length, zeros(emit, shape))
        return [total + sum for total, sum in zip(totals, sums, strict=True)]

    return iterate(emit, 0, depth, zeros(emit, shape), block, SUM_LENGTH)


def _step(
    shape: Shape,
    rows: Sequence[Pointer],
    panels: Sequence[Pointer],
    k: Expr,
    sums: Sums,
    stride: int,
) -> Sums:
    """The sums after one step of k."""
    along, start, lanes = k * stride, k * shape.panel, shape.register.lanes
    across = [
        panel.load(start + r * lanes, lanes).cast(shape.factors)
        for panel in panels
        for r in range(shape.registers)
    ]
    totals: Sums = []
    for number, row in enumerate(rows):
        element = broadcast(row[along], lanes)
        own = sums[number * shape.across : (number + 1) * shape.across]
        totals += [_add(shape, element, *pair) for pair in zip(across, own, strict=True)]
    return totals


def _add(shape: Shape, single: Expr, other: Expr, sum: Expr) -> Expr:
    if shape.factors is I32:
        return dot_pairs(single, other, sum)
    return fma(single, other, sum) if shape.fma else single * other + sum


def store(shape: Shape, sums: Sums, buffer: Pointer, stride: int | None = None) -> None:
    """Store the micro-tile row by row, `stride` elements apart, by default without gaps."""
    lanes = shape.register.lanes
    for number, register in enumerate(sums):
        row, across = divmod(number, shape.across)
        buffer.store(row * (stride or shape.columns) + across * lanes, register)


def load(shape: Shape, buffer: Pointer, stride: int | None = None) -> Sums:
    """The micro-tile that `store` wrote with this stride."""
    lanes, apart = shape.register.lanes, stride or shape.columns
    starts = [row * apart + v * lanes for row in range(shape.rows) for v in range(shape.across)]
    return [buffer.load(start, lanes) for start in starts]
