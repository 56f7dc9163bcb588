"""How long a kernel takes, roughly: what tile sizes and the sharing of waves are decided by.

Estimates are integers of picoseconds made from the kernel alone; nothing is timed to decide.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op
from dlc.ir.dims import Size, floor_divide, maximum, minimum, product
from dlc.ir.types import DType

TILE_PICOSECONDS = 8_000_000
"""Work of one tile: long against a barrier, short against a call."""

PRODUCT = 12
"""One multiplication and addition of a product of our own, with 256-bit registers."""

_OPERATION = 250
"""One register operation: about one cycle."""
_LOAD_BYTE = 40
"""One byte from the second-level cache."""
_TRANSCENDENTAL = 16
"""Register operations that an exponential or a sine counts for."""
_DIVISION = 5


def element_work(block: Block, lanes: int) -> Size:
    """Picoseconds for one element of a block, inner indices included."""
    total: Size = 0
    for op in block:
        if isinstance(op, kernel.Inner):
            total = total + product(op.extents) * element_work(op.body, lanes)
        else:
            total = total + _operation(op, lanes)
    return maximum(total, 1)


def _operation(op: Op, lanes: int) -> int:
    match op:
        case kernel.Load():
            dtype = op.result.type
            assert isinstance(dtype, DType)
            return max(1, _OPERATION // lanes, dtype.bytes * _LOAD_BYTE)
        case scalar.Constant():
            return 0
        case scalar.Divide() | scalar.Sqrt() | scalar.Rsqrt():
            return max(1, _DIVISION * _OPERATION // lanes)
        case scalar.Unary() if element(op.result.type).is_float and op.name not in CHEAP:
            return max(1, _TRANSCENDENTAL * _OPERATION // lanes)
        case scalar.Power() | scalar.Atan2():
            return max(1, 3 * _TRANSCENDENTAL * _OPERATION // lanes)
        case _:
            return max(1, _OPERATION // lanes)


CHEAP = frozenset(
    f"scalar.{name}" for name in ("negate", "abs", "sign", "floor", "ceil", "round", "trunc")
)
"""Functions of floats that are one or two instructions."""


def tile_rows(row_work: Size) -> Size:
    """How many rows of this much work make a tile."""
    return maximum(1, floor_divide(TILE_PICOSECONDS, maximum(1, row_work)))


def tiles(rows: Size, per_tile: Size, row_work: Size) -> tuple[Size, Size]:
    """How many tiles so many rows are, and nanoseconds for one; the only one may be smaller."""
    return ceil_divide(rows, per_tile), nanoseconds(minimum(rows, per_tile) * row_work)


def nanoseconds(picoseconds: Size) -> Size:
    """A cost in nanoseconds, at least 1."""
    return maximum(1, floor_divide(picoseconds, 1000))


def ceil_divide(one: Size, other: Size) -> Size:
    """`ceil(one / other)`."""
    return floor_divide(one + (other - 1), other)
