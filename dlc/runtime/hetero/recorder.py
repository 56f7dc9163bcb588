"""The record of a call on two devices, one after the other: traces of the processor, times of the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from dlc.runtime.abi import TraceWord
from dlc.runtime.calling.frames import Frame, Words
from dlc.runtime.gpu.kernel_timer import KernelTime, KernelTimer
from dlc.runtime.gpu.segments import Launch


class Traced(NamedTuple):
    """What threads of the processor did in a segment (`TraceWord`), and the clock's ns at its end."""

    records: Words
    end: int


Piece: TypeAlias = Traced | KernelTime


class Pieces(NamedTuple):
    """A call whose devices worked one after the other: what they did, in that order."""

    pieces: Sequence[Piece]
    copies_ms: float
    events_ms: float
    """What the events of the GPU took, which is in no time."""
    most_records: int
    """Of a segment, how many records there were to write; those beyond the capacity are missing."""


class Recorder:
    """Times the pieces of one call. `close` gives its events back."""

    def __init__(self, timer: KernelTimer, capacity: int, alone: bool) -> None:
        """There is room for `capacity` records of a segment; `alone` leaves all work to one thread."""
        self._timer = timer
        self._records = np.zeros((capacity, TraceWord.COUNT), np.int64)
        self._alone = alone
        self._pieces: list[Piece] = []
        self._most = 0

    def segment(self, engine: Frame, run: Callable[[], int]) -> int:
        """Run a segment of the processor with a trace; returns its status."""
        engine.trace_into(self._records, alone=self._alone)
        try:
            status = run()
            end = time.perf_counter_ns()
            self._most = max(self._most, engine.traced)
            self._pieces.append(Traced(self._records[: engine.traced].copy(), end))
        finally:
            engine.trace_into(None)
        return status

    def kernel(self, launch: Launch, roots: Sequence[int]) -> None:
        """Launch a kernel of the GPU, on which nothing else is at work, and wait for it."""
        self._timer.launch([launch], roots)
        self._pieces.append(self._timer.times[-1])

    def close(self, copies_ms: float) -> Pieces:
        """All pieces of the call."""
        self._timer.close()
        return Pieces(self._pieces, copies_ms, self._timer.events_ms, self._most)
