"""k-tiles: the part of an operand in shared memory that belongs to one step of the main loop along k."""

from __future__ import annotations

from dlc.dialects.expr import Expr, Pointer
from dlc.lowering.gpu.product.operands import UNIT, KPosition, Operand
from dlc.lowering.gpu.product.shared_layout import GlobalElement, SharedLayout, Swizzle
from dlc.lowering.gpu.writer import GridWriter

K_TILE_BYTES = 64
"""Bytes of a k-tile along k."""


class KTile:
    """The k-tile of an operand, with the `side` rows or columns of the threadblock tile."""

    def __init__(self, writer: GridWriter, operand: Operand, side: int, swizzle: Swizzle) -> None:
        self.writer = writer
        self.operand = operand
        dtype = operand.dtype
        self.depth = K_TILE_BYTES // dtype.bytes
        """Elements along k."""
        along_side = side * dtype.bytes // UNIT
        count = (side, K_TILE_BYTES // UNIT) if operand.along_k else (self.depth, along_side)
        self.layout = SharedLayout(dtype, *count, swizzle)

    @property
    def bytes(self) -> int:
        return self.layout.bytes

    def load_tile(self, buffer: Pointer, first: Expr, position: KPosition) -> None:
        """Start to copy a k-tile, with zeros out of bounds; `first` is the tile's first row or column."""
        operand = self.operand

        def locate(line: Expr, along: Expr) -> GlobalElement:
            side, k = (line, along) if operand.along_k else (along, line)
            return GlobalElement(operand.array, *operand.locate(position, first + side, k))

        self.layout.load(self.writer, buffer, locate, whole=operand.whole)
