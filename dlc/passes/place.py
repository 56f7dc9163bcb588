"""Placing buffers in one arena, as a register allocator places values in registers.

For numbers this is best fit: the largest buffer first, each into the tightest gap that is free for its
whole life. For symbolic sizes the placement at sample sizes gives an *order*: of two buffers alive
together the one that lies higher stays above the other at every size, as low as that allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


def align(count: int) -> int:
    """The next multiple of the alignment."""
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes needed in waves `first` to `last`, both included."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Buffer) -> bool:
        """Whether both are alive in some wave."""
        return self.first <= other.last and other.first <= self.last


def place(buffers: Sequence[Buffer]) -> list[int]:
    """An offset for each buffer such that no two alive together overlap.

    >>> place([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    [128, 0, 128]
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first, i))
    offsets = [0] * len(buffers)
    # Buffers already placed, by wave: only those that share a wave can be in the way.
    by_wave: dict[int, list[int]] = {}
    for index in order:
        buffer = buffers[index]
        near = {
            other
            for wave in range(buffer.first, buffer.last + 1)
            for other in by_wave.get(wave, ())
        }
        taken = sorted(
            (offsets[other], offsets[other] + align(buffers[other].bytes)) for other in near
        )
        offsets[index] = _tightest_gap(taken, align(buffer.bytes))
        for wave in range(buffer.first, buffer.last + 1):
            by_wave.setdefault(wave, []).append(index)
    return offsets


def _tightest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap between taken stretches that holds `size`, else the end of all."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]


def height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes of the arena."""
    ends = [offset + align(b.bytes) for b, offset in zip(buffers, offsets, strict=True)]
    return max(ends, default=0)


def order_above(buffers: Sequence[Buffer], offsets: Sequence[int]) -> list[list[int]]:
    """For each buffer those alive with it that lie directly or indirectly below it."""
    above: list[list[int]] = []
    for i, buffer in enumerate(buffers):
        above.append(
            [
                j
                for j, other in enumerate(buffers)
                if j != i and buffer.meets(other) and (offsets[j], j) < (offsets[i], i)
            ]
        )
    return above
