"""Block scan: the values of a block's threads combined up to each of them (CUB: BlockScan).

Threads of a warp shuffle partial results over distances of 1, 2, 4, ... (Hillis & Steele 1986); the warps'
totals are combined in shared memory. The tree is fixed, so the bits are the same in every run.
"""

from __future__ import annotations

from dlc.dialects.expr import Expr, combine, index, select
from dlc.dialects.simt import WARP
from dlc.lowering.gpu.writer import GridWriter, shuffle_xor
from dlc.lowering.kernel_code.words import when


def scan(writer: GridWriter, name: str, value: Expr, start: Expr) -> tuple[Expr, Expr]:
    """`start` and all values of the threads before this one combined; and those of all threads.

    All threads of the block must be here.
    """
    prefix, total = _within_warp(writer, name, value, start)
    warps = writer.threads // WARP
    if warps == 1:
        return prefix, total
    totals = writer.shared(warps, value.dtype)
    warp = writer.thread // WARP
    with when(writer.thread.equals(warp * WARP)):
        totals[warp] = total
    writer.barrier()
    before, whole = start, start
    for number in range(warps):
        whole = combine(name, whole, totals[number])
        before = select(index(writer.emit, number) < warp, whole, before)
    # The memory is used again if this is in a loop.
    writer.barrier()
    return combine(name, before, prefix), whole


def _within_warp(writer: GridWriter, name: str, value: Expr, start: Expr) -> tuple[Expr, Expr]:
    """The same among the threads of a warp."""
    prefix, total, distance = start, value, 1
    while distance < WARP:
        other = shuffle_xor(total, distance)
        is_later = (writer.thread & distance).differs(0)
        prefix = select(is_later, combine(name, other, prefix), prefix)
        total = combine(name, total, other)
        distance *= 2
    return prefix, total
