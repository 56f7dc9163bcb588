"""Buffers to be placed, a lower bound on the height of every placement, and the check of a placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

ALIGNMENT = 64
"""Offsets in an arena are multiples of this many bytes: a cache line, and the widest vector."""
LOCAL_SEARCH_BYTES = 1 << 43
"""Values of this total size or more are not improved by local search, which multiplies sizes by up to 2^20
(a million, or the number of tasks) in 64-bit integers."""


def align(count: int) -> int:
    """`count` rounded up to a multiple of the alignment."""
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes, live from moment `first` to moment `last`, both included.

    Its offset must be a multiple of `alignment`.
    """

    size: int
    first: int
    last: int
    alignment: int = 1

    def meets(self, other: Buffer) -> bool:
        """Whether both are live at some moment."""
        return self.first <= other.last and other.first <= self.last


def meeting(lives: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each interval of time, given by its first and last moment, the indices of those that it overlaps.

    >>> meeting([(0, 1), (1, 2), (2, 3)])
    [[1], [0, 2], [1]]
    """
    intervals = [(j, first, last) for j, (first, last) in enumerate(lives)]
    return [
        [j for j, begin, end in intervals if begin <= last and first <= end and j != i]
        for i, first, last in intervals
    ]


def height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """The bytes of the arena: the end of the highest buffer."""
    return max([at + b.size for b, at in zip(buffers, offsets, strict=True)], default=0)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The most bytes live at one moment, the maximum load: no placement is lower.

    >>> lower_bound([Buffer(4, 0, 1), Buffer(2, 1, 2), Buffer(5, 2, 3)])
    7
    """
    changes = [(buffer.first, buffer.size) for buffer in buffers]
    changes += [(buffer.last + 1, -buffer.size) for buffer in buffers]
    live_bytes = peak = 0
    for _, changes_at_moment in groupby(sorted(changes), key=lambda change: change[0]):
        live_bytes += sum(size for _, size in changes_at_moment)
        peak = max(peak, live_bytes)
    return peak


def find_overlap(buffers: Sequence[Buffer], offsets: Sequence[int]) -> tuple[int, int] | None:
    """The indices of two buffers that are live together and share bytes; None in a valid placement.

    >>> find_overlap([Buffer(4, 0, 1), Buffer(2, 1, 2)], [0, 3])
    (0, 1)
    """
    alive: list[int] = []
    nonempty = [index for index, buffer in enumerate(buffers) if buffer.size]
    for index in sorted(nonempty, key=lambda i: buffers[i].first):
        start, end = offsets[index], offsets[index] + buffers[index].size
        alive = [other for other in alive if buffers[other].last >= buffers[index].first]
        for other in alive:
            if offsets[other] < end and start < offsets[other] + buffers[other].size:
                return min(index, other), max(index, other)
        alive.append(index)
    return None
