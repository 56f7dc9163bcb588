"""Greedy placement: best fit and first fit, which take each buffer once and are often optimal."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from dlc.planning.arena.buffers import Buffer


def best_fit(buffers: Sequence[Buffer]) -> list[int]:
    """Best fit by decreasing size: each buffer goes into the smallest gap that is free for its lifetime.

    >>> best_fit([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    [128, 0, 128]
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].first, i))
    starts = sorted({buffer.first for buffer in buffers})
    moments = {moment: k for k, moment in enumerate(starts)}
    # Placed buffers by the moments at which buffers begin: those live then, and those that begin then.
    alive: list[list[int]] = [[] for _ in starts]
    begin: list[list[int]] = [[] for _ in starts]
    spans = [(0, 0)] * len(buffers)
    for index in order:
        buffer = buffers[index]
        first, end = moments[buffer.first], bisect_right(starts, buffer.last)
        live = chain(alive[first], *begin[first + 1 : end])
        start = _tightest(sorted([spans[other] for other in live]), buffer)
        spans[index] = start, start + buffer.size
        begin[first].append(index)
        for moment in range(first, end):
            alive[moment].append(index)
    return [start for start, _ in spans]


def _tightest(taken: Iterable[tuple[int, int]], buffer: Buffer) -> int:
    """The start of the smallest gap between occupied spans that holds a buffer, else the end of all."""
    size, alignment = buffer.size, buffer.alignment
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        if start - end >= size and (best is None or start - end < best[0]):
            best = (start - end, end)
        if stop > end:
            end = stop if alignment == 1 else aligned(stop, alignment)
    return end if best is None else best[1]


def aligned(offset: int, alignment: int) -> int:
    """The offset rounded up to a multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def first_fit(buffers: Sequence[Buffer], offsets: list[int], order: Iterable[int]) -> None:
    """Place further buffers in this order, each at the lowest offset that fits; -1 is an unset one."""
    for index in order:
        buffer, offset = buffers[index], 0
        first, last = buffer.first, buffer.last
        taken = [
            (start, start + other.size)
            for other, start in zip(buffers, offsets, strict=True)
            if start >= 0 and other.first <= last and first <= other.last and other.size
        ]
        for start, stop in sorted(taken):
            if start - offset >= buffer.size:
                break
            offset = max(offset, aligned(stop, buffer.alignment))
        offsets[index] = offset


def sure_to_fit(buffers: Sequence[Buffer], height: int) -> list[int]:
    """The indices of buffers that fit below `height` wherever the others lie.

    The gaps beside the overlapping buffers cannot all be too small for such a buffer. Each in the list fits
    once all buffers but those before it are placed, as Chaitin's register allocator removes nodes with few
    neighbours from the interference graph.
    """
    left = list(range(len(buffers)))
    postponed: list[int] = []
    while fitting := _fitting(buffers, left, height):
        postponed += fitting
        gone = set(fitting)
        left = [index for index in left if index not in gone]
    return postponed


def _fitting(buffers: Sequence[Buffer], left: Sequence[int], height: int) -> list[int]:
    """Those of the remaining buffers that fit wherever the other remaining ones lie."""
    starts = sorted(left, key=lambda i: buffers[i].first)
    ends = sorted(left, key=lambda i: buffers[i].last)
    firsts = [buffers[i].first for i in starts]
    lasts = [buffers[i].last for i in ends]
    begun = list(accumulate([buffers[i].size for i in starts], initial=0))
    ended = list(accumulate([buffers[i].size for i in ends], initial=0))
    fitting: list[int] = []
    for index in left:
        buffer = buffers[index]
        before = bisect_left(lasts, buffer.first)
        until = bisect_right(firsts, buffer.last)
        others = until - before - 1
        taken = begun[until] - ended[before] - buffer.size
        too_small = buffer.size + buffer.alignment - 2
        if taken + (others + 1) * too_small < height:
            fitting.append(index)
    return fitting
