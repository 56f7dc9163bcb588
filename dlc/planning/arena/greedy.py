"""Placing one buffer after the other into what is free: quick, and often as good as can be."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from dlc.planning.arena.buffers import Buffer


def best_fit(buffers: Sequence[Buffer]) -> list[int]:
    """An offset for each: the largest first, each into the tightest gap that is free for its life.

    >>> best_fit([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    [128, 0, 128]
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].first, i))
    starts = sorted({buffer.first for buffer in buffers})
    moments = {moment: k for k, moment in enumerate(starts)}
    # Buffers already placed, by the moments at which buffers begin: those alive then, those that begin.
    alive: list[list[int]] = [[] for _ in starts]
    begin: list[list[int]] = [[] for _ in starts]
    places = [(0, 0)] * len(buffers)
    for index in order:
        buffer = buffers[index]
        first, end = moments[buffer.first], bisect_right(starts, buffer.last)
        near = chain(alive[first], *begin[first + 1 : end])
        start = _tightest(sorted([places[other] for other in near]), buffer)
        places[index] = start, start + buffer.size
        begin[first].append(index)
        for moment in range(first, end):
            alive[moment].append(index)
    return [start for start, _ in places]


def _tightest(taken: Iterable[tuple[int, int]], buffer: Buffer) -> int:
    """The start of the smallest gap between taken stretches that holds a buffer, else the end of all."""
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
    """The offset, or the next one that is a multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def first_fit(buffers: Sequence[Buffer], offsets: list[int], order: Iterable[int]) -> None:
    """Place further buffers, in this order, each as low as it fits. An offset of -1 is none yet."""
    for index in order:
        buffer, at = buffers[index], 0
        first, last = buffer.first, buffer.last
        taken = [
            (start, start + other.size)
            for other, start in zip(buffers, offsets, strict=True)
            if start >= 0 and other.first <= last and first <= other.last and other.size
        ]
        for start, stop in sorted(taken):
            if start - at >= buffer.size:
                break
            at = max(at, aligned(stop, buffer.alignment))
        offsets[index] = at


def sure_to_fit(buffers: Sequence[Buffer], height: int) -> list[int]:
    """Buffers, by number, that fit below `height` wherever the others lie.

    Gaps too small for a buffer hold only so much, and what meets it leaves more than that. So each fits
    once all but those before it in the list are placed, as Chaitin's register allocator takes nodes with
    few neighbours out of the graph that it colours.
    """
    left = list(range(len(buffers)))
    out: list[int] = []
    while found := _fitting(buffers, left, height):
        out += found
        gone = set(found)
        left = [index for index in left if index not in gone]
    return out


def _fitting(buffers: Sequence[Buffer], left: Sequence[int], height: int) -> list[int]:
    """Those of the buffers left that fit wherever the others left lie."""
    starts = sorted(left, key=lambda i: buffers[i].first)
    ends = sorted(left, key=lambda i: buffers[i].last)
    firsts = [buffers[i].first for i in starts]
    lasts = [buffers[i].last for i in ends]
    begun = list(accumulate([buffers[i].size for i in starts], initial=0))
    ended = list(accumulate([buffers[i].size for i in ends], initial=0))
    found: list[int] = []
    for index in left:
        buffer = buffers[index]
        before = bisect_left(lasts, buffer.first)
        until = bisect_right(firsts, buffer.last)
        others = until - before - 1
        taken = begun[until] - ended[before] - buffer.size
        too_small = buffer.size + buffer.alignment - 2
        if taken + (others + 1) * too_small < height:
            found.append(index)
    return found
