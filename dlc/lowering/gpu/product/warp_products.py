"""How the warps of a block multiply two k-tiles: by matrix instructions (`mma`), or by `fma`.

The threadblock tile is divided into a grid of warp tiles of `warp_rows` x `warp_columns`. Sums stay in
registers; when they are finished, they are spilled in *groups* of 16 rows, as `SumVector`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.expr import Expr, Pointer, fma
from dlc.dialects.simt import WARP
from dlc.ir.types import F32
from dlc.lowering.gpu.product.k_tiles import KTile
from dlc.lowering.gpu.product.operands import Operand
from dlc.lowering.gpu.product.shared_layout import Swizzle, load_fragment
from dlc.lowering.gpu.writer import GridWriter, load_several, multiply_add
from dlc.lowering.kernel_code.words import iterate, unravel

GROUP_ROWS = 16
"""Rows of sums of a warp that are spilled to shared memory at a time."""
STEP_BYTES = 32
"""Bytes along k that a matrix instruction multiplies."""
LANES_DOWN, LANES_ACROSS = 4, 8
"""The threads of a warp that multiplies by `fma` as a grid over the warp tile."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The threadblock tile, its grid of `down` x `across` warps, and the stages of the pipeline.

    `blocks` is how many blocks a multiprocessor is to hold at once (CUDA: `minBlocksPerMultiprocessor`),
    `k_bytes` what a k-tile has along k of each row and column.
    """

    rows: int
    columns: int
    down: int
    across: int
    stages: int
    blocks: int = 1
    k_bytes: int = 64

    @property
    def threads(self) -> int:
        return self.down * self.across * WARP

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for all stages."""
        return self.stages * (self.rows + self.columns) * self.k_bytes

    @property
    def warp_rows(self) -> int:
        return self.rows // self.down

    @property
    def warp_columns(self) -> int:
        return self.columns // self.across


@dataclass(frozen=True, slots=True)
class SumVector:
    """Neighbouring sums of a thread: their row in the group, and the first column in the warp tile."""

    row: Expr
    column: Expr
    sums: Sequence[Expr]


class WarpProduct:
    """The part of a k-tile product that a warp computes: its warp tile."""

    def __init__(self, tiling: Tiling, writer: GridWriter, lhs: KTile, rhs: KTile) -> None:
        self.tiling = tiling
        self.lhs, self.rhs = lhs, rhs
        self.writer = writer
        warp, self.lane = unravel(writer.thread, [WARP] * 2)
        self.down, self.across = unravel(warp, [tiling.across] * 2)
        self.row = self.down * tiling.warp_rows
        self.column = self.across * tiling.warp_columns

    @staticmethod
    def swizzle(operand: Operand, *, of_rows: bool) -> Swizzle:
        """The swizzle of an operand's k-tile, of lhs (`of_rows`) or of rhs."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Sums of a thread."""
        return self.tiling.warp_rows * self.tiling.warp_columns // WARP

    def multiply(self, buffer: Pointer, stage: Expr, sums: Sequence[Expr]) -> list[Expr]:
        """The sums, with the product of the k-tiles of a stage added, `stage` bytes into the buffer."""
        raise NotImplementedError

    def sum_vectors(self, group: int, sums: Sequence[Expr]) -> list[SumVector]:
        """The thread's sums in a group of rows."""
        raise NotImplementedError


class MatrixProduct(WarpProduct):
    """By matrix instructions (`simt.mma`): 16 x 8 sums at a time, and 32 bytes along k."""

    @staticmethod
    def swizzle(operand: Operand, *, of_rows: bool) -> Swizzle:
        by_elements = operand.dtype is F32 and not operand.along_k
        return Swizzle.ELEMENTS if by_elements else Swizzle.UNITS

    def multiply(self, buffer: Pointer, stage: Expr, sums: Sequence[Expr]) -> list[Expr]:
        sums = list(sums)
        lhs, rhs = buffer, buffer.skip(self.lhs.bytes)
        tiling = self.tiling
        for step in range(tiling.k_bytes // STEP_BYTES):
            left = self._fragments(self.lhs, lhs, self.row, (tiling.warp_rows, step), stage)
            right = self._fragments(self.rhs, rhs, self.column, (tiling.warp_columns, step), stage)
            pairs = [(rows, two[k : k + 2]) for rows in left for two in right for k in (0, 2)]
            for k, (rows, columns) in enumerate(pairs):
                accumulators = slice(4 * k, 4 * k + 4)
                sums[accumulators] = multiply_add(rows, columns, sums[accumulators])
        return sums

    def _fragments(
        self, tile: KTile, buffer: Pointer, base: Expr, size: tuple[int, int], stage: Expr
    ) -> list[list[Expr]]:
        """The fragments of a k-tile, one for each 16 rows or columns; `size` is these and a step of k."""
        length, step = size
        along_k, of_rows = tile.operand.along_k, tile is self.lhs
        return [
            load_fragment(
                tile.layout,
                buffer,
                self.lane,
                base,
                (first, step),
                along_k=along_k,
                of_rows=of_rows,
                skip=stage,
            )
            for first in range(0, length, 16)
        ]

    def sum_vectors(self, group: int, sums: Sequence[Expr]) -> list[SumVector]:
        row, part = unravel(self.lane, [4] * 2)
        eighths = self.tiling.warp_columns // 8
        sum_vectors: list[SumVector] = []
        for eighth in range(eighths):
            column = part * 2 + 8 * eighth
            first = 4 * (group * eighths + eighth)
            for half in range(2):
                two = sums[first + 2 * half : first + 2 * half + 2]
                sum_vectors.append(SumVector(row + 8 * half, column, two))
        return sum_vectors


class ScalarProduct(WarpProduct):
    """By `fma` in f32: a thread adds in order of k.

    The threads of a warp are 4 down and 8 across. A thread has every fourth row of the warp's and every
    eighth column, or four neighbouring ones where those are read at once.
    """

    @staticmethod
    def swizzle(operand: Operand, *, of_rows: bool) -> Swizzle:
        # Eight threads have the same rows; only columns that lie along k are as many lines.
        return Swizzle.UNITS if operand.along_k and not of_rows else Swizzle.NONE

    def multiply(self, buffer: Pointer, stage: Expr, sums: Sequence[Expr]) -> list[Expr]:
        lhs = buffer.skip(stage)
        rhs = lhs.skip(self.lhs.bytes)

        def step(unit: Expr, sums: list[Expr]) -> list[Expr]:
            for half in range(2):
                rows = self._factors(self.lhs, lhs, self.row, unit, half)
                columns = self._factors(self.rhs, rhs, self.column, unit, half)
                for left, right in zip(rows, columns, strict=True):
                    pairs = [(row, column) for row in left for column in right]
                    sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, self.lhs.depth // self.lhs.layout.each, sums, step)

    @property
    def _each(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        return self.tiling.warp_rows // LANES_DOWN, self.tiling.warp_columns // LANES_ACROSS

    def _thread_position(self) -> list[Expr]:
        """The thread's row and column in the warp's grid of threads."""
        return unravel(self.lane, [LANES_ACROSS] * 2)

    def _factors(
        self, tile: KTile, buffer: Pointer, base: Expr, unit: Expr, half: int
    ) -> list[list[Expr]]:
        """The thread's elements of a k-tile for each of two steps along k, which are half of a unit."""
        axis = 0 if tile is self.lhs else 1
        own, each = self._thread_position()[axis], self._each[axis]
        threads = (LANES_DOWN, LANES_ACROSS)[axis]
        if tile.operand.along_k:
            rows = [
                load_several(buffer, self._in_line(tile, base, own, threads * part, unit, half), 2)
                for part in range(each)
            ]
            return [list(step) for step in zip(*rows, strict=True)]
        units = base // 4
        steps: list[list[Expr]] = []
        for k in (2 * half, 2 * half + 1):
            line = unit * 4 + k
            offsets = (
                tile.layout.offset(line, units + own + threads * part, line)
                for part in range(each // 4)
            )
            vectors = (load_several(buffer, offset, 4) for offset in offsets)
            steps.append([element for vector in vectors for element in vector])
        return steps

    def _in_line(
        self, tile: KTile, base: Expr, own: Expr, beyond: int, unit: Expr, half: int
    ) -> Expr:
        """The offset of half a unit in one of the thread's lines, which are along k."""
        low = own + beyond % 8
        return tile.layout.offset(base + own + beyond, unit, low) + 2 * half

    def sum_vectors(self, group: int, sums: Sequence[Expr]) -> list[SumVector]:
        (y, x), (_, each) = self._thread_position(), self._each
        sum_vectors: list[SumVector] = []
        for part in range(4):
            row = y + 4 * part if self.lhs.operand.along_k else y * 4 + part
            first = each * (4 * group + part)
            own = sums[first : first + each]
            if self.rhs.operand.along_k:
                sum_vectors += [SumVector(row, x + 8 * k, [sum]) for k, sum in enumerate(own)]
            else:
                sum_vectors += [
                    SumVector(row, x * 4 + 32 * k, own[4 * k : 4 * k + 4]) for k in range(each // 4)
                ]
        return sum_vectors
