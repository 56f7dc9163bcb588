"""Products of a single row without panels: the right operand is read once, where it lies.

Some lines of it at a time, each times its element of the row, are added to sums that stay in the cache. So
nothing is packed, and 16-bit elements are widened in registers.
"""

from __future__ import annotations

from dlc.dialects.expr import Expr, Pointer, broadcast, constant, fma
from dlc.dialects.expr import minimum as smaller
from dlc.ir.types import VectorType
from dlc.lowering.cpu.product.inline_packing import Matrix
from dlc.lowering.kernel_code.register_rows import register_ranges
from dlc.lowering.kernel_code.words import for_each
from dlc.target.cpu import LINE_BYTES

LINES = 8
"""Lines that are added at once: the sums are loaded and stored once for this many products."""
AHEAD = 16
"""Lines by which prefetches run ahead: hardware prefetchers stop where the part of a line ends."""


def add_lines(
    matrix: Matrix, row: Pointer, sums: Pointer, first: Expr, count: Expr, depth: Expr
) -> None:
    """Make `count` sums, of columns from `first` on: each of `depth` products with elements of a row."""
    emit = depth.emit
    zero = constant(emit, 0, VectorType(sums.dtype, matrix.lanes))
    with for_each(emit, 0, count, matrix.lanes) as j:
        sums.store(j, zero)
    # Where the matrix ends in the last panel, the sums beyond stay 0.
    columns = smaller(matrix.count - first, count)
    whole = depth // LINES * LINES
    with for_each(emit, 0, whole, LINES) as k:
        _prefetch(matrix, first, columns, k + AHEAD)
        _add(matrix, row, sums, first, columns, k, LINES)
    with for_each(emit, whole, depth) as k:
        _add(matrix, row, sums, first, columns, k, 1)


def _add(
    matrix: Matrix, row: Pointer, sums: Pointer, first: Expr, columns: Expr, k: Expr, lines: int
) -> None:
    """Add some lines, each times its element of the row."""
    factors = [row[k + step].cast(sums.dtype) for step in range(lines)]
    parts = [matrix.line(k + step) + first for step in range(lines)]
    for begin, end, lanes in register_ranges(columns, matrix.lanes):
        spread = [broadcast(factor, lanes) for factor in factors]
        with for_each(columns.emit, begin, end, lanes) as j:
            total = sums.load(j, lanes)
            for factor, part in zip(spread, parts, strict=True):
                total = fma(factor, part.load(j, lanes).cast(sums.dtype), total)
            sums.store(j, total)


def _prefetch(matrix: Matrix, first: Expr, columns: Expr, k: Expr) -> None:
    """Prefetch what the lines from `k` on have of the columns."""
    step = LINE_BYTES // matrix.pointer.dtype.bytes
    for line in range(LINES):
        part = matrix.line(k + line) + first
        with for_each(columns.emit, 0, columns, step) as j:
            part.prefetch(j)
