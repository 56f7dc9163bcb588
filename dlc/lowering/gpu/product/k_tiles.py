"""Strips of a product's operands in shared memory."""

from __future__ import annotations

from dlc.dialects.expr import Expr, Pointer
from dlc.lowering.gpu.product.operands import UNIT, Source, State
from dlc.lowering.gpu.product.shared_layout import Lines, Order, Place
from dlc.lowering.gpu.writer import GridWriter

STRIP = 64
"""Bytes of a strip along k."""


class Panel:
    """A strip of an operand, of which `side` rows or columns are a tile's."""

    def __init__(self, writer: GridWriter, source: Source, side: int, order: Order) -> None:
        self.writer = writer
        self.source = source
        dtype = source.dtype
        self.depth = STRIP // dtype.bytes
        """Elements along k."""
        along_side = side * dtype.bytes // UNIT
        count = (side, STRIP // UNIT) if source.along_k else (self.depth, along_side)
        self.lines = Lines(dtype, *count, order)

    @property
    def bytes(self) -> int:
        return self.lines.bytes

    def load_tile(self, buffer: Pointer, first: Expr, state: State) -> None:
        """Start to copy a strip, with zeros beyond the ends; `first` is the tile's row or column."""
        source = self.source

        def find(line: Expr, along: Expr) -> Place:
            side, k = (line, along) if source.along_k else (along, line)
            return Place(source.array, *source.place(state, first + side, k))

        self.lines.load(self.writer, buffer, find, whole=source.whole)
