"""Walking through a program: segment after segment is launched, and the host does what stands between.

The second time that the walk comes to a segment it looks for a longer one, over loops and branches that
the device can decide on, and makes it a graph. Most programs are one segment then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from functools import partial

from dlc.runtime.abi import Opcode, Status, StepWord
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.cuda.pinned import PinnedBytes
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.gpu.errors import outcome_words, with_wait_hint
from dlc.runtime.gpu.launching import (
    MAX_SEGMENTS,
    CachedSegment,
    Launcher,
    SegmentCache,
    SizeSegments,
)
from dlc.runtime.gpu.steps import IMMEDIATE, EndWord, StepTable
from dlc.runtime.gpu.walk import Walk


class _Word(IntEnum):
    """What the host and the device tell each other in pinned memory, 8 bytes each."""

    STOP = 0  # not 0: loops on the device are to end
    READ = 1  # a number that a kernel computed
    ENDED = 2  # not 0: a condition on the device has ended the call
    COUNT = 3


class Walker:
    """Walks through one program, for one call at a time, and launches in a stream."""

    def __init__(self, gpu: Gpu, steps: StepTable, stream: int) -> None:
        self._driver = gpu.driver
        self._steps = steps
        self._stream = stream
        self._cancelled = False
        size = 8 * _Word.COUNT if steps.reads_back else 0
        self._pinned = PinnedBytes(gpu.driver, size) if size else None
        self._words = self._pinned.address if self._pinned is not None else 0
        """The address of the words, if anything is to be told."""
        self._tell(_Word.STOP, 0)
        self._known = SegmentCache()
        self._launcher = Launcher(gpu.driver, gpu.kernels, stream, self._words + 8 * _Word.STOP)
        self._may_have_ended = False
        """Whether loops that can end the call were launched and the host has not looked since."""

    def walk(self, sized: SizedProgram, roots: Sequence[int]) -> list[int] | None:
        """Launch all of it at these sizes, where the roots are at these addresses on the device.

        What the words of the call say (`CallWord`) if the host ends it before that.
        """
        kept = self._known.of(sized)
        whole = kept.whole
        if whole is not None and not self._cancelled and self._again(kept, whole, roots):
            return None
        self._may_have_ended = False
        walk = Walk(self._steps, kept.numbers, partial(self._read, roots))
        try:
            return self._walk(kept, walk, roots)
        except _Ended:
            return None

    def _walk(self, kept: SizeSegments, walk: Walk, roots: Sequence[int]) -> list[int] | None:
        place = 0
        while True:
            if self._cancelled:
                return outcome_words(Status.CANCELLED)
            begun = place
            known = self._segment(kept, walk, place, roots)
            place = known.segment.end
            step = self._steps.steps[place]
            if step[StepWord.OPCODE] == Opcode.END:
                if begun == 0:
                    kept.whole = known
                    kept.segments.clear()
                return None
            limit = walk.limit(place)
            if limit is not None:
                return outcome_words(Status.LIMIT, step[StepWord.C], 0, limit)
            if step[StepWord.OPCODE] == Opcode.CALL:
                for launch in walk.launch(place):
                    self._launcher.one(launch, roots)
                place += 1
            else:
                place = walk.control(place)

    def _segment(
        self, kept: SizeSegments, walk: Walk, place: int, roots: Sequence[int]
    ) -> CachedSegment:
        """Launch all from a place on to where the host has something to do."""
        key = self._steps.key(place, walk.counters, walk.trips)
        known = kept.segments.get(key)
        if known is not None:
            if not known.is_longest and self._launcher.supports_conditions:
                longer = walk.longer_segment(place)
                if longer.is_conditional:
                    known = kept.segments[key] = CachedSegment(longer)
                known.is_longest = True
            if self._again(kept, known, roots):
                walk.enter(known.segment)
                return known
        known = CachedSegment(walk.segment(place))
        if len(kept.segments) < MAX_SEGMENTS:
            kept.segments[key] = known
        self._launcher.launch(known, roots, again=False)
        return known

    def _again(self, kept: SizeSegments, known: CachedSegment, roots: Sequence[int]) -> bool:
        """Launch a segment that was launched before; not one with conditions that the driver refuses."""
        if not known.segment.is_conditional:
            self._launcher.launch(known, roots, again=True)
            return True
        if self._launcher.launch_conditional(known, roots):
            self._may_have_ended = self._steps.may_end_on_device
            return True
        kept.forget()
        return False

    def _read(self, roots: Sequence[int], root: int, offset: int, count: int) -> int:
        """A number of so many bytes on the device, once all that was launched is done.

        Raises _Ended where a condition has ended the call.
        """
        place = offset if root == IMMEDIATE else roots[root] + offset
        self._fetch(_Word.READ, place, count)
        if self._may_have_ended:
            faults, end = self._steps.end_notes
            self._fetch(_Word.ENDED, roots[faults] + end + 8 * EndWord.STATUS, 8)
        self.wait()
        if self._may_have_ended and self._told(_Word.ENDED):
            raise _Ended
        self._may_have_ended = False
        return self._told(_Word.READ)

    def _fetch(self, word: _Word, place: int, count: int) -> None:
        """Let a number of so many bytes of the device come to a word."""
        self._tell(word, 0)
        self._driver.download(self._words + 8 * word, place, count, self._stream)

    def _tell(self, word: _Word, value: int) -> None:
        if self._words:
            ctypes.c_int64.from_address(self._words + 8 * word).value = value

    def _told(self, word: _Word) -> int:
        return ctypes.c_int64.from_address(self._words + 8 * word).value

    def wait(self) -> None:
        """Wait for all that was launched."""
        with with_wait_hint():
            self._driver.synchronize(self._stream)

    def cancel(self) -> None:
        """Ask the walk to end before it launches more, and loops on the device before their next round."""
        self._cancelled = True
        self._tell(_Word.STOP, 1)

    def reset(self) -> None:
        """Forget a request to cancel."""
        self._cancelled = False
        self._tell(_Word.STOP, 0)

    def forget(self) -> None:
        """Drop all that is known of segments."""
        self._known.forget()


class _Ended(Exception):
    """A condition on the device has ended the call, and noted why."""
