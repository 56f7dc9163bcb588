"""Detection of lost ranks: killed, silent, or behind the others.

A rank is silent where its beats have stopped, as those of a stopped process do. It is behind where
another one has begun a call with collectives that this one has not reached, although none is busy: an
endless loop, or data that does not come. A long step is neither, since all ranks have begun it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlc.runtime.ranks.pulse import (
    ENDED,
    FAILED,
    RUNNING,
    Pulse,
    exit_code,
    is_held,
    path_of,
    read_pulse,
)

LIMIT = 20.0
"""Seconds after which a silent rank, or one behind the others, counts as lost."""
_SIGNALS = 128
"""Exit codes above are those of processes that a signal ended."""
STARTING = 120.0
"""Seconds that a rank may take until its file is there."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A rank that is lost; `failed` where it ended with an error that it told itself."""

    rank: int
    pulse: Pulse
    how: str
    failed: bool = False

    def __str__(self) -> str:
        step = self.pulse.step
        after = "before its first step" if step < 0 else f"after step {step}"
        return f"rank {self.rank} on {self.pulse.host} {self.how}, {after}"


_UNKNOWN = Pulse(0, -1, 0, 0, 1, RUNNING, 0, platform.node())
"""Stands for a rank without a file: only the process that starts ranks looks for these, on its own host."""


@dataclass(slots=True)
class _Seen:
    """What was last seen of a rank, and since when it is so, in seconds."""

    pulse: Pulse
    beaten: float
    moved: float

    def update(self, pulse: Pulse, now: float) -> None:
        if pulse.beats != self.pulse.beats:
            self.beaten = now
        if pulse.progress != self.pulse.progress:
            self.moved = now
        self.pulse = pulse


class Watcher:
    """Watches the files of ranks in a folder; `clock` gives seconds."""

    def __init__(
        self,
        folder: Path,
        ranks: int,
        *,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._ranks = folder, ranks
        self._limit, self._clock = limit, clock
        self._seen: dict[int, _Seen] = {}
        self._begun = clock()

    @property
    def pulses(self) -> dict[int, Pulse]:
        """What was last seen, by rank."""
        return {rank: seen.pulse for rank, seen in self._seen.items()}

    def look(self) -> Lost | None:
        """Look at all ranks; the first one that is lost, those that are killed before the others."""
        now = self._clock()
        for rank in range(self._ranks):
            pulse = read_pulse(path_of(self._folder, rank))
            if pulse is None:
                continue
            if rank in self._seen:
                self._seen[rank].update(pulse, now)
            else:
                self._seen[rank] = _Seen(pulse, now, now)
        return (
            self._failed()
            or self._killed()
            or self._missing(now)
            or self._silent(now)
            or self._behind(now)
        )

    def _failed(self) -> Lost | None:
        for rank, seen in self._seen.items():
            if seen.pulse.state == FAILED:
                return Lost(rank, seen.pulse, "failed", failed=True)
        return None

    def _killed(self) -> Lost | None:
        for rank in range(self._ranks):
            path = path_of(self._folder, rank)
            code = exit_code(self._folder, rank)
            if code is None and (not path.exists() or is_held(path)):
                continue
            last = read_pulse(path) or _UNKNOWN
            if last.state == RUNNING:  # else it ended between the two looks
                by_itself = code is not None and code < _SIGNALS
                how = f"ended with the exit code {code}" if by_itself else "was killed"
                return Lost(rank, last, how, failed=by_itself)
        return None

    def _missing(self, now: float) -> Lost | None:
        if now - self._begun > STARTING:
            for rank in range(self._ranks):
                if rank not in self._seen:
                    return Lost(rank, _UNKNOWN, "has not started")
        return None

    def _silent(self, now: float) -> Lost | None:
        for rank, seen in self._seen.items():
            since = now - seen.beaten
            if seen.pulse.state == RUNNING and since > self._limit:
                return Lost(rank, seen.pulse, f"has not answered for {since:.0f} s")
        return None

    def _behind(self, now: float) -> Lost | None:
        if not self._seen:
            return None
        front = max(self._seen.values(), key=lambda seen: seen.pulse.entered)
        rank, last = min(self._seen.items(), key=lambda item: item[1].pulse.entered)
        busy = any(seen.pulse.busy for seen in self._seen.values())
        if busy or last.pulse.state == ENDED or last.pulse.entered == front.pulse.entered:
            return None
        since = now - max(last.moved, front.moved)
        if since <= self._limit:
            return None
        return Lost(
            rank, last.pulse, f"has come no further for {since:.0f} s, in which the others wait"
        )
