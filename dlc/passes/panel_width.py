"""How wide the panels of a product are: so that they are full, and the micro-kernel has much to do.

The micro-kernel (`dlc.lowering.micro_kernel`) keeps sums of some rows times one panel in registers. For
each k it loads the panel's row and one element of each row, so wide and high tiles load least for what
they multiply. But rows and columns that do not exist are multiplied, too, and a panel is read again for
the next rows, so it should stay in the second-level cache.
"""

from __future__ import annotations

from typing import NamedTuple

from dlc.ir.dims import Size
from dlc.ir.types import DType


class Tile(NamedTuple):
    """Registers in a row of a panel, the rows that fit beside it, and what a product costs there."""

    registers: int
    rows: int
    percent: int


_OF_32 = (Tile(3, 8, 100), Tile(4, 6, 100), Tile(2, 8, 104), Tile(1, 8, 120))
"""With 32 registers (AVX-512): sums, one row of the panel and one element of the left operand fit into
them, and no more rows than there are other registers to point at them. Two products are made and two
numbers loaded in a cycle, so tiles of one or two registers wait for their loads."""
_OF_16 = (Tile(2, 6, 100), Tile(3, 4, 102), Tile(1, 8, 120))
"""The same with 16 registers."""

LATENCY_ROWS = 4
"""Fewer rows of one panel take as long: an addition waits for the one before."""
FEWER_ROWS_PERCENT = 3
"""What a row less costs the others: each load from a panel serves fewer of them."""
PANEL_BYTES = 900 * 1024
"""A longer panel leaves the second-level cache (1 MiB of a core) before the next rows meet it."""
LONG_PERCENT = 104
"""What products cost then: the three 3 x 3 convolutions of 512 channels on 7 x 7 in ResNet-50, with 1.18 MB
to a panel of 64 columns, took 1.24 ms each, and 1.21 with panels of 48 columns, which multiply 1 % more."""


def tiles_of(vector_bytes: int) -> tuple[Tile, ...]:
    """The tiles that there are where registers have so many bytes; the first suits most products."""
    return _OF_32 if vector_bytes == 64 else _OF_16


def tile_of(registers: int, vector_bytes: int) -> Tile:
    """The tile with panels of so many registers."""
    (found,) = [tile for tile in tiles_of(vector_bytes) if tile.registers == registers]
    return found


def rows_of(m: int, most: int) -> int:
    """Rows of the tile for `m` rows: fewer than possible where the last one would be rather empty."""
    if m <= most:
        return max(m, 1)
    return min(range(most, LATENCY_ROWS - 1, -1), key=lambda rows: _row_cost(m, rows, most))


def panel_columns(dtype: DType, m: Size, n: Size, k: Size, vector_bytes: int) -> int:
    """Columns of a panel of the (k, n) operand of a product of `m` rows, with sums of a dtype."""
    lanes = vector_bytes // dtype.bytes
    tiles = tiles_of(vector_bytes)
    if not isinstance(n, int):
        return tiles[0].registers * lanes

    def cost(tile: Tile) -> int:
        width = tile.registers * lanes
        rows = _row_cost(m, rows_of(m, tile.rows), tile.rows) if isinstance(m, int) else 1
        is_long = isinstance(k, int) and k * width * dtype.bytes > PANEL_BYTES
        percent = tile.percent * (LONG_PERCENT if is_long else 100)
        return -(-n // width) * width * rows * percent

    return min(tiles, key=cost).registers * lanes


def _row_cost(m: int, rows: int, most: int) -> int:
    fewer = FEWER_ROWS_PERCENT * (most - rows) if m > most else 0
    return -(-max(m, 1) // rows) * rows * (100 + fewer)
