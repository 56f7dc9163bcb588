"""A race detector: shadow memory that keeps the last accesses to each byte.

For each byte the shadow keeps the thread that wrote it last and the one that read it last, each with the
number of barriers that its block had passed. Accesses of two threads of one block are ordered if a barrier
is between them; nothing orders accesses of two blocks of a launch. (This is happens-before race detection,
where a barrier is the only synchronisation; S. Savage et al., "Eraser", ACM TOCS 15 (4), 1997, and later.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_THREAD = -1


class Race(Exception):
    """Two threads access a byte, at least one of them writes it, and nothing orders the two accesses."""


@dataclass(frozen=True, slots=True)
class Accessors:
    """Threads of one block that access memory at once.

    `threads` has their numbers in the launch, one for each row of the offsets accessed. The block has
    `block_size` threads and has passed `phase` barriers.
    """

    threads: Numbers
    block: int
    block_size: int
    phase: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two unordered accesses to one byte: by the thread of a row of the offsets, and by another thread."""

    row: int
    byte: int
    other: int
    """The thread of the earlier access, by its number in the launch."""
    other_wrote: bool


class Shadow:
    """The accesses to `size` bytes of memory in one launch."""

    def __init__(self, size: int) -> None:
        self._writer = np.full(size, NO_THREAD, np.int64)
        self._write_phase = np.zeros(size, np.int64)
        self._reader = np.full(size, NO_THREAD, np.int64)
        self._read_phase = np.zeros(size, np.int64)
        self._many_readers = np.zeros(size, np.bool_)
        """Whether several threads have read the byte in the phase of the last read."""
        self._many_blocks = np.zeros(size, np.bool_)
        """Whether several blocks have read the byte."""
        self.copy_pending = np.zeros(size, np.bool_)
        """Whether an asynchronous copy to the byte has started and nobody has waited for it."""

    def read(self, offsets: Numbers, by: Accessors) -> Conflict | None:
        """Record that each thread reads the bytes in its row of `offsets`; the first conflict."""
        threads = by.threads[:, None]
        conflict = self._with_writes(offsets, by)
        before = self._reader[offsets]
        other_block = before // by.block_size != by.block
        same_phase = (self._read_phase[offsets] == by.phase) & (before != NO_THREAD) & ~other_block
        self._many_readers[offsets] = same_phase & (
            self._many_readers[offsets] | (before != threads)
        )
        self._many_blocks[offsets] |= other_block & (before != NO_THREAD)
        self._reader[offsets] = np.broadcast_to(threads, offsets.shape)
        self._read_phase[offsets] = by.phase
        # Of several rows that read the same byte only one is now its last reader.
        shared = self._reader[offsets] != threads
        self._many_readers[offsets[shared]] = True
        return conflict

    def write(self, offsets: Numbers, by: Accessors) -> Conflict | None:
        """Record that each thread writes the bytes in its row of `offsets`; the first conflict."""
        threads = by.threads[:, None]
        conflict = self._with_writes(offsets, by) or self._with_reads(offsets, by)
        self._writer[offsets] = np.broadcast_to(threads, offsets.shape)
        self._write_phase[offsets] = by.phase
        # Of several rows that write the same byte only one is now its last writer.
        shared = self._writer[offsets] != threads
        return conflict or _first(shared, offsets, self._writer, wrote=True)

    def _with_writes(self, offsets: Numbers, by: Accessors) -> Conflict | None:
        """The first conflict of accesses with earlier writes."""
        before = self._writer[offsets]
        by_others = (before != NO_THREAD) & (before != by.threads[:, None])
        if not by_others.any():
            return None
        other_block = before // by.block_size != by.block
        conflicts = by_others & (other_block | (self._write_phase[offsets] == by.phase))
        return _first(conflicts, offsets, self._writer, wrote=True)

    def _with_reads(self, offsets: Numbers, by: Accessors) -> Conflict | None:
        """The first conflict of writes with earlier reads."""
        before = self._reader[offsets]
        other_block = self._many_blocks[offsets] | (before // by.block_size != by.block)
        by_others = self._many_readers[offsets] | (before != by.threads[:, None])
        same_phase = self._read_phase[offsets] == by.phase
        conflicts = (before != NO_THREAD) & (other_block | (by_others & same_phase))
        return _first(conflicts, offsets, self._reader, wrote=False)


def _first(conflicts: Flags, offsets: Numbers, others: Numbers, *, wrote: bool) -> Conflict | None:
    if not conflicts.any():
        return None
    row, column = np.argwhere(conflicts)[0]
    byte = int(offsets[row, column])
    return Conflict(int(row), byte, int(others[byte]), wrote)
