"""Running a program on a GPU: the host launches segment after segment, and does the steps between them.

The second time that it comes to a segment, it gathers a longer one, across loops and branches that the
device can decide on, and instantiates it as a CUDA graph. Most programs are a single graph then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from functools import partial

from dlc.errors import CallError
from dlc.runtime.abi import Opcode, Status, StepWord
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.cuda.pinned import PinnedBytes
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.gpu.errors import attributed_to, outcome_words, with_wait_hint
from dlc.runtime.gpu.graphs import Graph, at_roots
from dlc.runtime.gpu.kernel_timer import KernelTimer
from dlc.runtime.gpu.launching import (
    MAX_SEGMENTS,
    CachedSegment,
    Launcher,
    SegmentCache,
    SizeSegments,
)
from dlc.runtime.gpu.ready import ReadyCall
from dlc.runtime.gpu.segments import Launch, Walk
from dlc.runtime.gpu.steps import IMMEDIATE, EndWord, StepTable


class _Word(IntEnum):
    """Words of 8 bytes in pinned memory by which the host and the device communicate."""

    STOP = 0  # not 0: loops on the device are to end
    READ = 1  # a number that a kernel computed
    ENDED = 2  # not 0: a condition on the device has ended the call
    COUNT = 3


class Walker:
    """Runs one program in a stream, for one call at a time."""

    def __init__(self, gpu: Gpu, steps: StepTable, stream: int) -> None:
        self._driver = gpu.driver
        self._kernels = gpu.kernels
        self._collectives, self._ranks = gpu.collectives, gpu.ranks
        self._steps = steps
        self._stream = stream
        self._cancelled = False
        size = 8 * _Word.COUNT if steps.reads_back else 0
        self._pinned = PinnedBytes(gpu.driver, size) if size else None
        self._words = self._pinned.address if self._pinned is not None else 0
        """The address of these words; 0 if the program needs none."""
        self._set_word(_Word.STOP, 0)
        self.cache = SegmentCache()
        """Its segments, and the calls that are ready."""
        self._launcher = Launcher(gpu.driver, gpu.kernels, stream, self._words + 8 * _Word.STOP)
        self._may_have_ended = False
        """Whether loops that can end the call were launched since the host last checked."""
        self.timer: KernelTimer | None = None
        """What launches in the place of the launcher, for times of each kernel."""

    def name_kernels(self, names: Sequence[str]) -> None:
        """Tell profilers what to call the kernel of each op."""
        self._launcher.names = names

    def walk(self, sized: SizedProgram, roots: Sequence[int]) -> list[int] | None:
        """Launch the program at these sizes; `roots` are the addresses of its roots on the device.

        Returns the words of the call (`CallWord`) if the host ends it early, else None.
        """
        cache = self.cache.of(sized)
        whole = cache.whole
        may_repeat = whole is not None and not self._cancelled and self.timer is None
        if whole is not None and may_repeat and self._again(cache, whole, roots):
            return None
        self._may_have_ended = False
        walk = Walk(self._steps, cache.sizes, partial(self._read, roots))
        try:
            return self._walk(cache, walk, roots)
        except _Ended:
            return None

    def launch_each(self, sized: SizedProgram, roots: Sequence[int]) -> list[int] | None:
        """Launch the program in a stream that is captured, as `walk` does the first time: by kernels.

        Raises CallError (D0818) where the host waits for what a kernel computes.
        """
        cache = self.cache.of(sized)
        return self._walk(cache, Walk(self._steps, cache.sizes, _refuse_reading), roots)

    @property
    def is_cancelled(self) -> bool:
        """Whether the running call was asked to end."""
        return self._cancelled

    def ready(self, sized: SizedProgram) -> dict[tuple[int, ...], ReadyCall]:
        """The calls at these sizes that are ready, by the addresses of arrays on the device."""
        return self.cache.of(sized).ready

    def whole_graph(self, sized: SizedProgram) -> Graph | None:
        """The graph that is the whole program at these sizes, if there is one."""
        whole = self.cache.of(sized).whole
        return None if whole is None else whole.graph

    def _walk(self, cache: SizeSegments, walk: Walk, roots: Sequence[int]) -> list[int] | None:
        pc = 0
        while True:
            if self._cancelled:
                return outcome_words(Status.CANCELLED)
            begin = pc
            cached = self._segment(cache, walk, pc, roots)
            pc = cached.segment.end
            step = self._steps.steps[pc]
            if step[StepWord.OPCODE] == Opcode.END:
                if begin == 0 and self.timer is None:
                    cache.whole = cached
                    cache.segments.clear()
                return None
            limit = walk.limit(pc)
            if limit is not None:
                return outcome_words(Status.LIMIT, step[StepWord.C], 0, limit)
            if step[StepWord.OPCODE] == Opcode.CALL:
                self._call(walk.launch(pc), roots)
                pc += 1
            else:
                pc = walk.control(pc)

    def _call(self, launches: Sequence[Launch], roots: Sequence[int]) -> None:
        """Launch the kernel of a call, or do what ranks do together there."""
        for launch in launches:
            what = self._collectives.get(launch.kernel)
            if what is None:
                if self.timer is not None:
                    self.timer.launch([launch], roots)
                else:
                    self._launcher.one(launch, roots)
                continue
            assert self._ranks is not None
            words = at_roots(launch.words, roots)
            with attributed_to(launch.op):
                call = partial(self._ranks.call, what, words, self._stream)
                if self.timer is not None:
                    self.timer.around(launch.op, call)
                else:
                    call()

    def _segment(
        self, cache: SizeSegments, walk: Walk, pc: int, roots: Sequence[int]
    ) -> CachedSegment:
        """Launch the segment from step `pc`."""
        if self.timer is not None:
            timed = CachedSegment(walk.segment(pc))
            launches = [item for item in timed.segment.items if isinstance(item, Launch)]
            self.timer.launch(launches, roots)
            return timed
        key = self._steps.key(pc, walk.counters, walk.trips)
        cached = cache.segments.get(key)
        if cached is not None:
            if not cached.is_longest and self._launcher.supports_conditions:
                longer = walk.longer_segment(pc)
                if longer.is_conditional:
                    cached = cache.segments[key] = CachedSegment(longer)
                cached.is_longest = True
            if self._again(cache, cached, roots):
                walk.enter(cached.segment)
                return cached
        cached = CachedSegment(walk.segment(pc))
        if len(cache.segments) < MAX_SEGMENTS:
            cache.segments[key] = cached
        self._launcher.launch(cached, roots, again=False)
        return cached

    def _again(self, cache: SizeSegments, cached: CachedSegment, roots: Sequence[int]) -> bool:
        """Launch a segment again; False if it has conditional nodes that the driver refuses."""
        if not cached.segment.is_conditional:
            self._launcher.launch(cached, roots, again=True)
            return True
        if self._launcher.launch_conditional(cached, roots):
            self._may_have_ended = self._steps.may_end_on_device
            return True
        cache.forget()
        self.cache.forget_ready()
        return False

    def _read(self, roots: Sequence[int], root: int, offset: int, count: int) -> int:
        """Read an integer of `count` bytes on the device, once all that was launched is done.

        Raises _Ended if a condition has ended the call.
        """
        source = offset if root == IMMEDIATE else roots[root] + offset
        self._fetch(_Word.READ, source, count)
        if self._may_have_ended:
            faults, end = self._steps.end_notes
            self._fetch(_Word.ENDED, roots[faults] + end + 8 * EndWord.STATUS, 8)
        self.wait()
        if self._may_have_ended and self._word(_Word.ENDED):
            raise _Ended
        self._may_have_ended = False
        return self._word(_Word.READ)

    def _fetch(self, word: _Word, source: int, count: int) -> None:
        """Start a copy of `count` bytes from an address of the device to a word."""
        self._set_word(word, 0)
        self._driver.download(self._words + 8 * word, source, count, self._stream)

    def _set_word(self, word: _Word, value: int) -> None:
        if self._words:
            ctypes.c_int64.from_address(self._words + 8 * word).value = value

    def _word(self, word: _Word) -> int:
        return ctypes.c_int64.from_address(self._words + 8 * word).value

    def new_timer(self) -> KernelTimer:
        """A timer for the kernels of this program, in its stream."""
        return KernelTimer(self._driver, self._kernels, self._stream)

    def wait(self) -> None:
        """Wait until all that was launched is done."""
        try:
            self._driver.synchronize(self._stream)
        except CallError:
            with with_wait_hint:
                raise

    def cancel(self) -> None:
        """Ask the walk to end before its next launch, and loops on the device before their next round."""
        self._cancelled = True
        self._set_word(_Word.STOP, 1)

    def reset(self) -> None:
        """Forget a request to cancel."""
        self._cancelled = False
        if self._words:
            self._set_word(_Word.STOP, 0)

    def forget(self) -> None:
        """Drop all segments."""
        self.cache.forget()


def _refuse_reading(root: int, offset: int, count: int) -> int:
    del root, offset, count
    raise CallError(
        "the stream is captured, and the call waits for a number that a kernel computes",
        code="D0818",
        help="call it outside of the capture",
    )


class _Ended(Exception):
    """A condition on the device has ended the call, and noted why."""
