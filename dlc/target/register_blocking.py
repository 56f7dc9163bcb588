"""Register blocking (BLIS): chooses MR rows and NR columns of the micro-kernel.

`panel_columns` chooses NR, the width of panels, when operands are packed. MR follows from it by
`rows_of`, when the product is lowered (`shape_for` in `dlc.lowering.cpu.micro_kernel`). Which pairs fill
a processor's registers, and what each costs, is in `dlc.target.products`.

The micro-kernel keeps the sums of some rows times one panel in registers. For each k it loads a row of the
panel and one element of each row, so large tiles load least for each multiplication. But padding rows and
columns are multiplied, too, and a panel is read again for the next rows, so it should stay in the
second-level cache.
"""

from __future__ import annotations

from dlc.ir.dims import Size
from dlc.ir.types import DType
from dlc.target.cpu import CpuTarget
from dlc.target.products import ProductBlocking, Tile


def rows_of(m: int, most: int, blocking: ProductBlocking) -> int:
    """The rows of a tile for `m` rows, at most `most`: fewer where the last tile would be nearly empty."""
    if m <= most:
        return max(m, 1)
    rows = range(most, blocking.latency_rows - 1, -1)
    return min(rows, key=lambda rows: _row_cost(m, rows, most, blocking))


def panel_columns(dtype: DType, m: Size, n: Size, k: Size, cpu: CpuTarget) -> int:
    """The columns of a panel of the (k, n) operand of an (m, k) x (k, n) product, summed in `dtype`."""
    lanes, blocking = cpu.lanes(dtype), cpu.products
    if not isinstance(n, int):
        return blocking.tiles[0].registers * lanes

    def cost(tile: Tile) -> int:
        width = tile.registers * lanes
        rows = 1
        if isinstance(m, int):
            rows = _row_cost(m, rows_of(m, tile.rows, blocking), tile.rows, blocking)
        is_long = isinstance(k, int) and k * width * dtype.bytes > blocking.panel_bytes
        percent = tile.percent * (blocking.long_percent if is_long else 100)
        return -(-n // width) * width * rows * percent

    return min(blocking.tiles, key=cost).registers * lanes


def _row_cost(m: int, rows: int, most: int, blocking: ProductBlocking) -> int:
    fewer = blocking.fewer_rows_percent * (most - rows) if m > most else 0
    return -(-max(m, 1) // rows) * rows * (100 + fewer)
