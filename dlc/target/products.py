"""Blocking of products for registers and caches (BLIS: MR, NR, KC, MC, NC): the numbers of a processor.

What a product gets is chosen by `dlc.target.register_blocking` (MR and NR) and
`dlc.lowering.cpu.product.cache_blocking` (MC, NC, KC), from these numbers and the sizes of the product.

F. G. Van Zee and R. A. van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality",
ACM TOMS 41 (2015). The numbers were chosen by measuring whole products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

KIB = 1024


class Tile(NamedTuple):
    """A micro-tile of sums."""

    registers: int
    """In a row of a panel (NR)."""
    rows: int
    """That fit beside it (MR)."""
    percent: int
    """What a product costs there, against the best tile."""


@dataclass(frozen=True, slots=True)
class ProductBlocking:
    """The micro-tiles that a processor's registers allow, and the parts of operands that caches keep."""

    tiles: tuple[Tile, ...]
    """The first suits most products."""
    latency_rows: int = 4
    """Fewer rows of one panel take as long: an addition waits for the one before."""
    latency_sums: int = 8
    """Registers of sums that hide the latency: two additions begin in a cycle, and each takes four."""
    fewer_rows_percent: int = 3
    """What a row less costs the others: each load from a panel serves fewer of them."""
    panel_bytes: int = 900 * KIB
    """A longer panel leaves the second-level cache before the next rows meet it."""
    cached_panels: int = 6
    """Longer panels than a sixth of the second-level cache are met in blocks of k: it holds the one that
    rows meet, the one that they prefetch, and the rows."""
    long_percent: int = 104
    """What products cost then: the three 3 x 3 convolutions of 512 channels on 7 x 7 in ResNet-50, with
    1.18 MB to a panel of 64 columns, took 1.24 ms each, and 1.21 with panels of 48 columns, which multiply
    1 % more."""

    long_unroll: int = 2
    """Steps of k per iteration of a matrix product whose k they divide."""

    tile_products: int = 1_500_000
    """Products of a tile whose operands are in panels, at most: some 15 to 30 microseconds."""
    product_tiles: int = 16
    """Tiles that a product is cut into, at least, so that threads end together."""
    least_tile_products: int = 250_000
    """Smaller tiles than this, some 3 to 5 microseconds, are not made for that."""
    shared_panel_bytes: int = 256 * KIB
    """All panels of a product that every thread may read: then threads share rows."""
    streamed_rows: int = 4
    """Fewer rows wait for their panels: one row by 512 x 2048, as in an LSTM, takes as long as 4 rows."""
    streamed_panel_bytes: int = 256 * KIB
    """The panels of a tile of so few rows, which are read once: small tiles cost nothing more, and threads
    that share them end together."""
    tile_left_bytes: int = 96 * KIB
    """There the rows of a tile stay in the second-level cache, together with a panel."""

    block_depth: int = 512
    """Products of a sum in one block (KC): a panel with this many rows stays in the L1 or L2 cache."""
    block_left_bytes: int = 512 * KIB
    """What the rows of a tile read in a block stays in the second-level cache, or near it."""
    block_rows: int = 192
    """Rows of a tile (MC): packing a panel costs a hundredth of multiplying it with this many rows."""
    block_panel_bytes: int = 128 * KIB
    """The panels of a tile, in a block (NC), take a quarter of the second-level cache: the rows pass by."""
    packed_rows: int = 96
    """Rows of a tile where the left operand is packed, too: its strips stay in the second-level cache."""
    packed_panel_bytes: int = 512 * KIB
    """There the panels pass by the strips: the more of them, the less often a strip is packed."""

    winograd_places: int = 49 * 36
    """Places of transformed tiles in a task, of which a tile of 4 x 4 results has 36: each panel of the
    transformed kernel is used for all of them while it is in the cache."""
    winograd_columns: int = 64
    """Output channels of a task, at least: its sums are read back before they leave the cache."""

    gradient_channels: int = 128
    """Channels of a task of a kernel's gradient in Winograd's form, at most, on both sides: each
    transformed element is multiplied by as many others. With 64, gradients of 512 x 512 channels took
    13.1 ms on Zen 3, with 128 11.1 ms, though the sums of a task, 2.4 MB, are in the third-level cache."""

    gradient_part: int = 200_000_000
    """Picoseconds that a part of these sums is worth, at least: each is transformed back."""

    band_worth: int = 6 * 1024 * KIB
    """What is between a depthwise convolution and the products around it is worth bands if larger."""
    band_bytes: int = 3 * 1024 * KIB
    """What is between them in a band of rows."""

    attention_panels: int = 4
    """Panels of keys in a block: with as many values they stay in the first-level cache."""
    attention_blocks: int = 8
    """Micro-tiles of queries in a tile, which read each block of keys."""

    def tile(self, registers: int) -> Tile:
        """The micro-tile whose panels are `registers` registers wide."""
        (tile,) = [tile for tile in self.tiles if tile.registers == registers]
        return tile


AVX2 = ProductBlocking((Tile(2, 6, 100), Tile(3, 4, 102), Tile(1, 8, 120)), long_unroll=8)
"""16 registers. With 8 steps of k per iteration in place of 2, products of 128 rows take 1 to 2 % less on
Zen 3, where k is 384 and 768."""
AVX512 = ProductBlocking(
    (Tile(3, 8, 100), Tile(4, 6, 100), Tile(5, 5, 103), Tile(2, 8, 104), Tile(1, 8, 120)),
    packed_rows=144,
)
"""32 registers: sums, one row of the panel and one element of the left operand fit into them, and no more
rows than there are other registers to point at them. Two products are made and two numbers loaded in a
cycle, so tiles of one or two registers wait for their loads. Such processors have caches of 1 MiB and more,
which keep more rows."""
