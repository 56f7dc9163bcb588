"""Rough times of parts of a kernel, by which tile sizes and the sharing of waves are decided.

Estimates are integers of picoseconds made from the kernel and a target's table; nothing is timed to decide.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.winograd import WINDOW
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op
from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum, product
from dlc.ir.types import F32, DType
from dlc.target.cpu_costs import CpuCosts
from dlc.target.products import ProductBlocking
from dlc.target.table import ElementCosts


def element_work(block: Block, lanes: int, costs: ElementCosts) -> Size:
    """Picoseconds for one element of a block, inner indices included, in registers of `lanes` lanes."""
    total: Size = 0
    for op in block:
        if isinstance(op, kernel.Inner):
            total = total + product(op.extents) * element_work(op.body, lanes, costs)
        else:
            total = total + _operation(op, lanes, costs)
    return maximum(total, 1)


def _operation(op: Op, lanes: int, costs: ElementCosts) -> int:
    match op:
        case kernel.Load():
            dtype = op.result.type
            assert isinstance(dtype, DType)
            return max(1, costs.operation // lanes, dtype.bytes * costs.load_byte)
        case scalar.Constant():
            return 0
        case scalar.Divide() | scalar.Sqrt() | scalar.Rsqrt():
            return max(1, costs.division * costs.operation // lanes)
        case scalar.Unary() if element(op.result.type).is_float and op.name not in CHEAP:
            return max(1, costs.function * costs.operation // lanes)
        case scalar.Power() | scalar.Atan2():
            return max(1, 3 * costs.function * costs.operation // lanes)
        case _:
            return max(1, costs.operation // lanes)


CHEAP = frozenset(
    f"scalar.{name}" for name in ("negate", "abs", "sign", "floor", "ceil", "round", "trunc")
)
"""Functions of floats that are one or two instructions."""


def tile_rows(rows: Size, row_work: Size, costs: CpuCosts) -> Size:
    """How many of `rows` rows make a tile; if their number is known, all tiles have about as many."""
    fitting = maximum(1, floor_divide(costs.tile, maximum(1, row_work)))
    if not (isinstance(rows, int) and isinstance(fitting, int)):
        return fitting
    rows = max(rows, 1)
    return ceil_divide(rows, ceil_divide(rows, fitting))


def tiles(rows: Size, per_tile: Size, row_work: Size) -> tuple[Size, Size]:
    """The number of tiles of `rows` rows, and nanoseconds for one; a single tile may be smaller."""
    return ceil_divide(rows, per_tile), nanoseconds(minimum(rows, per_tile) * row_work)


def winograd_block(tiles: Size, places: int, blocking: ProductBlocking) -> Size:
    """The tiles of `places` elements in a task of a Winograd convolution; tasks have about as many."""
    tiles = maximum(tiles, 1)
    return ceil_divide(tiles, ceil_divide(tiles, blocking.winograd_places // places))


def winograd_picoseconds(places: Size, channels: Size, columns: Size, costs: CpuCosts) -> Size:
    """Picoseconds of a Winograd convolution: transforming tiles, multiplying, and transforming back."""
    transforms = (channels + columns) * costs.winograd_element
    return places * (channels * columns * costs.product + transforms)


def transform_picoseconds(costs: CpuCosts) -> int:
    """An element of a kernel that is transformed: its sums, and writing it to memory it was not in."""
    return WINDOW**2 * costs.product + 2 * F32.bytes * costs.memory_byte


def gradient_picoseconds(
    places: Size, tiles: Size, sides: tuple[Size, Size], costs: CpuCosts
) -> Size:
    """Picoseconds of a kernel's gradient in Winograd's form: transforming, multiplying, transforming back.

    `tiles` have `places` elements each; `sides` are the channels of the picture and of the result.
    """
    rows, columns = sides
    products = tiles * (rows * columns * costs.product + (rows + columns) * costs.winograd_element)
    return places * (products + rows * columns * costs.winograd_element)


def nanoseconds(picoseconds: Size) -> Size:
    """A cost in nanoseconds, at least 1."""
    return maximum(1, floor_divide(picoseconds, 1000))
