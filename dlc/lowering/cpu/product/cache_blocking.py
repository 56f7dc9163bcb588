"""Cache blocking (BLIS): the size of the tiles of a product on a CPU, MC rows, NC columns, KC steps of k.

The numbers that they follow from are in `dlc.target.products`; MR and NR, the rows and columns of a
micro-tile, are chosen by `dlc.target.register_blocking`.
"""

from __future__ import annotations

from dlc.ir.dims import Size, ceil_divide, floor_divide, maximum, minimum
from dlc.lowering.cpu.micro_kernel import (
    SUM_LENGTH,
    Shape,
)
from dlc.target.cpu import CpuTarget
from dlc.target.products import ProductBlocking


def tile_rows(m: Size, bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """MC, the rows of a tile, each of which reads `bytes`: a multiple of the micro-kernel's `rows` (MR).

    They stay in the cache, and all tiles have about as many.
    """
    tiles = ceil_divide(maximum(m, 1), fitting_rows(bytes, rows, blocking))
    return ceil_divide(ceil_divide(maximum(m, 1), tiles), rows) * rows


def fitting_rows(bytes: Size, rows: int, blocking: ProductBlocking) -> Size:
    """The rows of a tile, each of which reads `bytes`, that the cache keeps."""
    return maximum(floor_divide(blocking.tile_left_bytes, maximum(bytes, 1)), rows)


def depth_block(depth: Size, step_bytes: int, steps: int, cpu: CpuTarget) -> int | None:
    """KC, the steps of k in each block of a panel: a multiple of `steps`. None if it is met whole.

    A step takes `step_bytes` of the panel.
    """
    most = cpu.l2_bytes // (cpu.products.cached_panels * step_bytes)
    if not isinstance(depth, int) or not most < depth <= SUM_LENGTH:
        return None
    fewest = -(-depth // most)
    even = (n for n in range(fewest, 2 * fewest) if depth % (n * steps) == 0)
    return next((depth // n for n in even), None)


def tile_panels(
    across: Size, work: Size, down: Size, shape: Shape, blocking: ProductBlocking
) -> Size:
    """NC as panels of a tile, of which each column has `work` products, where tiles are `down` in a column.

    They are a multiple of the micro-kernel's panels. A tile has the usual work, or less where a product of
    known size would otherwise be too few tiles for threads to share evenly.
    """
    each = maximum(work * shape.columns, 1)
    several = ceil_divide(maximum(across, 1), shape.panels)
    most: Size = blocking.tile_products
    if isinstance(share := floor_divide(several * each * down, blocking.product_tiles), int):
        most = min(max(share, blocking.least_tile_products), most)
    fitting = maximum(floor_divide(most, each), 1)
    tiles = ceil_divide(several, minimum(fitting, several))
    return ceil_divide(several, tiles) * shape.panels


def shared_rows(m: Size, work: Size, rows: int, blocking: ProductBlocking) -> Size:
    """MC of a tile that has all panels, where a row has `work` products: threads share the rows.

    The rows that a thread computes are often those that it has just written or reads next, in an
    element-wise or depthwise neighbour, so they stay in its second-level cache.
    """
    share = floor_divide(work * m, blocking.product_tiles)
    most = maximum(share, blocking.least_tile_products)
    return maximum(floor_divide(most, maximum(work, 1) * rows), 1) * rows
