"""Finding races: who touched each byte of memory last, and when.

For each byte the *shadow* keeps the thread that wrote it last and the one that read it last, each with
the number of barriers that its block had passed. Threads of one block are apart if a barrier is between
them; nothing keeps the blocks of a launch apart. (The method is that of happens-before race detectors,
where a barrier is the only synchronisation; S. Savage et al., "Eraser", ACM TOCS 15 (4), 1997, and later.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOBODY = -1


class Race(Exception):
    """Two threads use a byte, at least one of them writes it, and nothing says which comes first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Threads of one block that do something at once: their numbers in the launch, one for each row.

    `block` has `threads` threads; its `phase` is the number of barriers that it has passed.
    """

    who: Numbers
    block: int
    threads: int
    phase: int


@dataclass(frozen=True, slots=True)
class Clash:
    """Who would meet at which byte."""

    row: int
    byte: int
    other: int
    """The thread that was there before, by its number in the launch."""
    other_wrote: bool


class Shadow:
    """What happened to so many bytes in one launch."""

    def __init__(self, size: int) -> None:
        self._writer = np.full(size, NOBODY, np.int64)
        self._written = np.zeros(size, np.int64)
        self._reader = np.full(size, NOBODY, np.int64)
        self._read = np.zeros(size, np.int64)
        # Whether several threads have read it in that phase, and whether several blocks have.
        self._many = np.zeros(size, np.bool_)
        self._blocks = np.zeros(size, np.bool_)
        self.flying = np.zeros(size, np.bool_)
        """Where a copy is on its way to."""

    def read(self, places: Numbers, now: Moment) -> Clash | None:
        """Threads read bytes, those in their row of `places`; the first clash."""
        who = now.who[:, None]
        clash = self._meets_writer(places, now)
        before = self._reader[places]
        elsewhere = before // now.threads != now.block
        same = (self._read[places] == now.phase) & (before != NOBODY) & ~elsewhere
        self._many[places] = same & (self._many[places] | (before != who))
        self._blocks[places] |= elsewhere & (before != NOBODY)
        self._reader[places], self._read[places] = np.broadcast_to(who, places.shape), now.phase
        # Rows that read the same byte: only one of them stands there now.
        together = self._reader[places] != who
        self._many[places[together]] = True
        return clash

    def write(self, places: Numbers, now: Moment) -> Clash | None:
        """Threads write bytes, those in their row of `places`; the first clash."""
        who = now.who[:, None]
        clash = self._meets_writer(places, now) or self._meets_reader(places, now)
        self._writer[places], self._written[places] = np.broadcast_to(who, places.shape), now.phase
        return clash or _first(self._writer[places] != who, places, self._writer, wrote=True)

    def _meets_writer(self, places: Numbers, now: Moment) -> Clash | None:
        before = self._writer[places]
        others = (before != NOBODY) & (before != now.who[:, None])
        if not others.any():
            return None
        apart = before // now.threads != now.block
        wrong = others & (apart | (self._written[places] == now.phase))
        return _first(wrong, places, self._writer, wrote=True)

    def _meets_reader(self, places: Numbers, now: Moment) -> Clash | None:
        before = self._reader[places]
        apart = self._blocks[places] | (before // now.threads != now.block)
        others = self._many[places] | (before != now.who[:, None])
        wrong = (before != NOBODY) & (apart | (others & (self._read[places] == now.phase)))
        return _first(wrong, places, self._reader, wrote=False)


def _first(wrong: Flags, places: Numbers, others: Numbers, *, wrote: bool) -> Clash | None:
    if not wrong.any():
        return None
    row, column = np.argwhere(wrong)[0]
    byte = int(places[row, column])
    return Clash(int(row), byte, int(others[byte]), wrote)
