"""A call on a GPU: arrays go there, kernels are launched, results come back.

Each frame has a stream, an arena and graphs of its own, so calls that run at the same time do not meet.
Small arrays of the host travel together: they are copied to pinned memory, which goes to the device as
one block, and results come back likewise. Large ones have blocks of their own: they go as they are where
they are pinned, else piece by piece (`dlc.runtime.cuda.staging`). What lies on the device already is used
where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dlc.errors import CallError
from dlc.runtime.abi import CallWord, Root, Status, TraceWord
from dlc.runtime.calling.frames import SizedProgram, Words
from dlc.runtime.cuda.driver import Handle
from dlc.runtime.cuda.memory import GrowableDeviceBytes
from dlc.runtime.cuda.pinned import LARGE, GrowablePinnedBytes
from dlc.runtime.cuda.staging import Staging
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.gpu.errors import SUCCESS, call_outcome, with_wait_hint
from dlc.runtime.gpu.steps import StepTable
from dlc.runtime.gpu.walker import Walker
from dlc.runtime.system.buffers import Bytes
from dlc.runtime.weights.model_weights import WeightRoots

ALIGNED = 256
"""What an array in a block begins at a multiple of."""


class CallTimes(NamedTuple):
    """Milliseconds of a call by the device's clock: copying there, computing, copying back."""

    upload_ms: float
    compute_ms: float
    download_ms: float


class Layout(NamedTuple):
    """Where the small arrays of a call lie in the block that travels; None for the large ones.

    Inputs come first, then what kernels note of their failures, then outputs.
    """

    places: tuple[int | None, ...]
    inputs: int
    """Where the inputs end and what comes back begins."""
    size: int


class GpuFrame:
    """A call of one program, with the interface of `dlc.runtime.calling.frames.Frame`."""

    def __init__(
        self, gpu: Gpu, program: Bytes, weights: WeightRoots, inputs: int, tensors: int
    ) -> None:
        """`weights` are on the device; `tensors` counts inputs and outputs."""
        self._gpu = gpu
        self._driver = driver = gpu.driver
        self._steps = StepTable(program, Root.INPUTS + tensors)
        self._inputs = inputs
        self._weights = weights
        self.stream = driver.create_stream()
        """Where all its work is put."""
        self._walker = Walker(gpu, self._steps, self.stream)
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._arena, self._scratch = GrowableDeviceBytes(driver), GrowableDeviceBytes(driver)
        self._travelling = GrowableDeviceBytes(driver)
        self._pinned = GrowablePinnedBytes(driver)
        self._staging = Staging(driver, self.stream)
        self._large = [GrowableDeviceBytes(driver) for _ in range(tensors)]
        self._no_faults = bytes(self._steps.fault_bytes)
        self._clean = 0
        """The address of the notes of failing kernels, if there are none in them."""
        self._status = SUCCESS
        self._events: list[Handle] = []
        # The addresses of the caller's arrays, from INPUTS on.
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()
        self._all_here = (False,) * tensors
        self.resident: Sequence[bool] = self._all_here
        """Which of them lie on the device."""

    @property
    def room(self) -> int:
        """Bytes of working memory that it has."""
        return self._arena.size + self._scratch.size

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        """Run the program at these sizes and give its status.

        Raises CallError: D0817 for an arena, D0818 with the driver's words; KernelFailed where it is
        known which kernel failed.
        """
        if arena:
            raise CallError(
                "arena= lends memory of the host, and this call works on a GPU",
                code="D0817",
                help="leave it out",
            )
        with self._driver:
            return self._run(sized)

    def _run(self, sized: SizedProgram) -> int:
        layout = self._layout(sized)
        roots = self._roots(sized, layout)
        try:
            by_host = self._work(sized, layout, roots)
        except BaseException:
            self._abandon()
            raise
        self._status = self._outcome(layout, by_host)
        if self._status[CallWord.STATUS] == Status.OK:
            self._hand_over(sized, layout, roots)
        return self._status[CallWord.STATUS]

    def _work(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> list[int] | None:
        """All that the device does, which is done then; the words with which the host ended the walk."""
        self._mark(0)
        self._upload(sized, layout, roots)
        self._mark(1)
        by_host = self._walker.walk(sized, roots)
        self._mark(2)
        self._download(sized, layout, roots)
        self._mark(3)
        self._walker.wait()
        return by_host

    def _abandon(self) -> None:
        """Wait for what was begun: its memory is given to others. What it noted is of no call."""
        self._clean = 0
        with suppress(CallError):  # the failure that ended the call is told
            self._driver.synchronize(self.stream)

    # Memory ---------------------------------------------------------------------------------------

    def _layout(self, sized: SizedProgram) -> Layout:
        found = self._layouts.get(sized.tensors)
        if found is None:
            found = _laid_out(sized.tensors, self._inputs, self._steps.fault_bytes)
            self._layouts[sized.tensors] = found
        return found

    def _roots(self, sized: SizedProgram, layout: Layout) -> list[int]:
        """The addresses on the device, the last one that of the notes of failing kernels.

        An output that lies where an input does is written over it, there as here.
        """
        base = self._travelling.of(layout.size)
        self._pinned.of(layout.size)
        arena, scratch = self._arena.of(sized.arena), self._scratch.of(sized.scratch)
        weights = self._weights
        roots = [arena, weights.weights, weights.sources, scratch, self._gpu.constants]
        known: dict[int, int] = {}
        for number, size in enumerate(sized.tensors):
            given = self.roots[Root.INPUTS + number]
            inside = layout.places[number]
            if self.resident[number]:
                place = given
            elif given in known:
                place = known[given]
            elif inside is None:
                place = self._large[number].of(size)
            else:
                place = base + inside
            if size:
                known[given] = place
            roots.append(place)
        faults = base + layout.inputs
        if self._clean != faults:
            self._driver.memset_zero(faults, self._steps.fault_bytes, self.stream)
            self._clean = faults
        return [*roots, faults]

    def _upload(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        travelling = 0
        for number in range(self._inputs):
            given, size = self.roots[Root.INPUTS + number], sized.tensors[number]
            inside = layout.places[number]
            if self.resident[number] or not size:
                continue
            if inside is None:
                self._staging.upload(roots[Root.INPUTS + number], given, size)
            else:
                ctypes.memmove(self._pinned.address + inside, given, size)
                travelling = inside + size
        base = roots[-1] - layout.inputs
        self._driver.upload(base, self._pinned.address, travelling, self.stream)

    def _download(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        """Bring back what kernels noted, and the results: the small ones to pinned memory."""
        end = layout.inputs + self._steps.fault_bytes
        alone: list[tuple[int, int, int]] = []
        for number in range(self._inputs, len(sized.tensors)):
            place, size = roots[Root.INPUTS + number], sized.tensors[number]
            inside = layout.places[number]
            if self.resident[number] or not size:
                continue
            if inside is not None and self._travels(inside, place, layout, roots):
                end = inside + size
            else:
                alone.append((self.roots[Root.INPUTS + number], place, size))
        pinned, size = self._pinned.address + layout.inputs, end - layout.inputs
        self._driver.download(pinned, roots[-1], size, self.stream)
        with with_wait_hint():  # what is not pinned is waited for
            for target, place, size in alone:
                self._staging.download(target, place, size)

    def _travels(self, inside: int, place: int, layout: Layout, roots: Sequence[int]) -> bool:
        """Whether an output lies in the block that comes back, and not over an input."""
        return place - roots[-1] == inside - layout.inputs

    def _hand_over(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        """Copy the small results from pinned memory to where the caller has them."""
        for number in range(self._inputs, len(sized.tensors)):
            place, size = roots[Root.INPUTS + number], sized.tensors[number]
            inside = layout.places[number]
            if inside is None or self.resident[number] or not size:
                continue
            if self._travels(inside, place, layout, roots):
                given = self.roots[Root.INPUTS + number]
                ctypes.memmove(given, self._pinned.address + inside, size)

    def _outcome(self, layout: Layout, by_host: list[int] | None) -> list[int]:
        """The first failure in the order of the program: what ended the walk, or a kernel's note."""
        noted = ctypes.string_at(self._pinned.address + layout.inputs, len(self._no_faults))
        if noted == self._no_faults:
            return by_host or SUCCESS
        self._clean = 0
        return call_outcome(np.frombuffer(noted, np.int64), self._steps, by_host)

    # Times and the rest of the interface ----------------------------------------------------------

    def run_timed(self, sized: SizedProgram) -> tuple[int, CallTimes]:
        """The same, and how long its parts took."""
        self._events = [self._driver.create_event() for _ in range(4)]
        try:
            with self._driver as driver:
                status = self.run(sized)
                pairs = zip(self._events, self._events[1:], strict=False)
                return status, CallTimes(*[driver.elapsed_ms(*pair) for pair in pairs])
        finally:
            for event in self._events:
                self._driver.destroy_event(event)
            self._events = []

    def _mark(self, number: int) -> None:
        """Let an event be now, if times are asked for."""
        if self._events:
            self._driver.record(self._events[number], self.stream)

    def run_traced(self, sized: SizedProgram, capacity: int) -> tuple[int, Words]:
        """The same; nothing is recorded on a GPU."""
        return self.run(sized), np.zeros((0, TraceWord.COUNT), np.int64)

    def status_words(self) -> list[int]:
        """The words that say how the last call ended, as `CallWord` names them."""
        return self._status

    def cancel(self) -> None:
        """Ask the call that this frame is running to end soon."""
        self._walker.cancel()

    def reset(self) -> None:
        """Forget a request to cancel and where arrays were, before the frame serves another call."""
        self._walker.reset()
        self.resident = self._all_here

    def __del__(self) -> None:
        if hasattr(self, "_walker"):  # else it has no stream yet
            self._walker.forget()
            self._driver.destroy_stream(self.stream)


def _laid_out(tensors: Sequence[int], inputs: int, faults: int) -> Layout:
    """The layout of arrays of so many bytes each, the first of which are inputs."""
    places: list[int | None] = []
    end = 0
    for size in tensors[:inputs]:
        places.append(end if size < LARGE else None)
        end = _aligned(end + size) if size < LARGE else end
    first, end = end, _aligned(end + faults)
    for size in tensors[inputs:]:
        places.append(end if size < LARGE else None)
        end = _aligned(end + size) if size < LARGE else end
    return Layout(tuple(places), first, end)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
