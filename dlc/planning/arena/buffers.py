"""What is placed, the least height that any placement of it has, and what makes a placement valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector. Everything in an arena begins at a multiple of it."""


def align(count: int) -> int:
    """The next multiple of the alignment."""
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes, needed from moment `first` to moment `last`, both included.

    Its offset must be a multiple of `alignment`.
    """

    size: int
    first: int
    last: int
    alignment: int = 1

    def meets(self, other: Buffer) -> bool:
        """Whether both are alive in some moment."""
        return self.first <= other.last and other.first <= self.last


def meeting(lives: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each of these stretches of time, given by its first and its last moment, the others it meets.

    >>> meeting([(0, 1), (1, 2), (2, 3)])
    [[1], [0, 2], [1]]
    """
    numbered = [(j, first, last) for j, (first, last) in enumerate(lives)]
    return [
        [j for j, begin, end in numbered if begin <= last and first <= end and j != i]
        for i, first, last in numbered
    ]


def height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes of the arena: where the highest of them ends."""
    return max([at + b.size for b, at in zip(buffers, offsets, strict=True)], default=0)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The most bytes alive at once: no placement has less height.

    >>> lower_bound([Buffer(4, 0, 1), Buffer(2, 1, 2), Buffer(5, 2, 3)])
    7
    """
    changes = [(buffer.first, buffer.size) for buffer in buffers]
    changes += [(buffer.last + 1, -buffer.size) for buffer in buffers]
    alive = most = 0
    for _, here in groupby(sorted(changes), key=lambda change: change[0]):
        alive += sum(size for _, size in here)
        most = max(most, alive)
    return most


def find_overlap(buffers: Sequence[Buffer], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two buffers, by number, that are alive together and share bytes; None in a valid placement.

    >>> find_overlap([Buffer(4, 0, 1), Buffer(2, 1, 2)], [0, 3])
    (0, 1)
    """
    alive: list[int] = []
    some = [index for index, buffer in enumerate(buffers) if buffer.size]
    for index in sorted(some, key=lambda i: buffers[i].first):
        start, end = offsets[index], offsets[index] + buffers[index].size
        alive = [other for other in alive if buffers[other].last >= buffers[index].first]
        for other in alive:
            if offsets[other] < end and start < offsets[other] + buffers[other].size:
                return min(index, other), max(index, other)
        alive.append(index)
    return None
