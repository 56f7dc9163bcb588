"""How long a rank works itself, and how long it sends and waits: a call is traced now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dlc.runtime.abi import TraceWord
from dlc.runtime.artifact.manifest import Op
from dlc.runtime.calling.frames import Words

COLLECTIVES = (
    "all_reduce", "all_gather", "all_to_all", "broadcast", "permute", "reduce_scatter",
    "start_all_reduce", "test", "wait",
)  # fmt: skip
"""How the names of kernels begin that exchange arrays between ranks."""
_SECONDS = 0.5
"""Between two calls that are traced."""
_MOST_RECORDS = 1 << 16
"""A longer call is not looked at."""


class RankWork(NamedTuple):
    """The calls of a rank that were looked at: how many, their seconds, and those in collectives."""

    calls: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def __add__(self, other: object) -> RankWork:
        assert isinstance(other, RankWork)
        return RankWork(
            self.calls + other.calls, self.seconds + other.seconds, self.waited + other.waited
        )

    @property
    def own(self) -> float:
        """The seconds of a call that the rank does not send or wait."""
        return (self.seconds - self.waited) / self.calls if self.calls else 0.0


class Sampler:
    """Looks at a call of a program every half second, but not at the first, in which MPI connects."""

    def __init__(self, ops: Sequence[Op], clock: Callable[[], float] = time.monotonic) -> None:
        self.work = RankWork()
        self._is_sent = np.array([op.kernel.startswith(COLLECTIVES) for op in ops], bool)
        self._clock = clock
        self._last: float | None = None
        self._records: Words | None = None

    def records(self) -> Words | None:
        """Room for the trace of the next call; None where it is not looked at."""
        now = self._clock()
        if self._last is None:
            self._last = now - _SECONDS
            return None
        if now - self._last < _SECONDS or not self._is_sent.any():
            return None
        self._last = now
        if self._records is None:
            self._records = np.zeros((_MOST_RECORDS, TraceWord.COUNT), np.int64)
        return self._records

    def note(self, records: Words, count: int, seconds: float) -> None:
        """Take the trace of a call of so many records, which took `seconds`."""
        if not 0 < count <= len(records):
            return
        found = records[:count]
        spent = found[:, TraceWord.END] - found[:, TraceWord.START]
        whole = int(found[:, TraceWord.END].max() - found[:, TraceWord.START].min())
        sent = int(spent[self._is_sent[found[:, TraceWord.OP]]].sum())
        self.work += RankWork(1, seconds, seconds * min(1.0, sent / max(1, whole)))


def told(works: Sequence[RankWork]) -> str:
    """The share of the time in collectives, and the rank that works longest; empty if that is not known.

    >>> told([RankWork(2, 0.2, 0.02), RankWork(2, 0.2, 0.06)])
    '20% in collectives  slowest rank 0'
    """
    if len(works) < 2 or not all(work.calls for work in works):
        return ""
    total = sum(works, RankWork())
    slowest = max(range(len(works)), key=lambda rank: works[rank].own)
    return f"{total.waited / total.seconds:.0%} in collectives  slowest rank {slowest}"
