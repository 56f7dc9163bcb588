"""k-tiles: the part of an operand in shared memory that belongs to one step of the main loop along k."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Pointer
from dlc.lowering.gpu.product.k_positions import KPosition, KTiles
from dlc.lowering.gpu.product.operands import UNIT, Operand
from dlc.lowering.gpu.product.shared_layout import (
    GlobalElement,
    SharedLayout,
    Swizzle,
    ThreadUnits,
)
from dlc.lowering.gpu.product.walks import TileUnit, Walk
from dlc.lowering.gpu.writer import GridWriter


class KTile:
    """The k-tile of an operand: `size` is the rows or columns of the tile, and the bytes along k."""

    def __init__(
        self, writer: GridWriter, operand: Operand, size: tuple[int, int], swizzle: Swizzle
    ) -> None:
        self.writer = writer
        self.operand = operand
        dtype = operand.dtype
        side, k_bytes = size
        self.depth = k_bytes // dtype.bytes
        """Elements along k."""
        along_side = side * dtype.bytes // UNIT
        count = (side, k_bytes // UNIT) if operand.along_k else (self.depth, along_side)
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


class KTileLoader:
    """Loads the k-tiles of an operand into stages: along a walk, where it has one.

    A thread then carries the addresses of its units from one k-tile to the next.
    """

    def __init__(self, tile: KTile, k_tiles: KTiles, first: Expr, buffer: Pointer) -> None:
        """`first` is the tile's first row or column, `buffer` its place in the first stage."""
        self.tile = tile
        self.first = first
        self.buffer = buffer
        self._walk: tuple[Walk, ThreadUnits, Pointer] | None = None
        if tile.operand.walks:
            units = tile.layout.units_of_thread(tile.writer)
            walk = tile.operand.walk(k_tiles, first, self._tile_units(units))
            self._walk = walk, units, units.target(buffer)

    def _tile_units(self, units: ThreadUnits) -> list[TileUnit]:
        if self.tile.operand.along_k:
            return [TileUnit(side=line, k=along) for line, along in units.places()]
        return [TileUnit(side=along, k=line) for line, along in units.places()]

    def start(self) -> list[Expr]:
        """The addresses in the first k-tile."""
        if self._walk is None:
            return []
        walk, _, _ = self._walk
        return [Expr(at.emit, at.value) for at in walk.pointers]

    def load(self, stage: Expr, position: KPosition, addresses: Sequence[Expr]) -> None:
        """Start to copy the k-tile at a position, which exists, into the stage `stage` bytes further."""
        if self._walk is None:
            self.tile.load_tile(self.buffer.skip(stage), self.first, position)
            return
        walk, units, target = self._walk
        units.copy(self._pointers(addresses), target.skip(stage), walk.within(position))

    def advance(self, position: KPosition, addresses: Sequence[Expr]) -> list[Expr]:
        """The addresses in the k-tile after that at a position."""
        if self._walk is None:
            return []
        walk, _, _ = self._walk
        step = walk.step(self.tile.writer, position)
        moved = [pointer + step for pointer in self._pointers(addresses)]
        return [Expr(each.emit, each.value) for each in moved]

    def _pointers(self, addresses: Sequence[Expr]) -> list[Pointer]:
        dtype = self.tile.layout.dtype
        return [Pointer(address.emit, address.value, dtype) for address in addresses]
