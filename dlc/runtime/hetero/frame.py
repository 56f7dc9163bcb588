"""A call of a program for a processor and a GPU: the host walks, and runs each call where it belongs.

Kernels of the GPU are launched, copies between the memories are started, and what the processor has to do
is entered (`dlc.runtime.hetero.host_segments`) as soon as what it touches is there. In a wave the GPU
gets its work first, so both compute side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import numpy as np

from dlc.errors import ArtifactError, CallError
from dlc.runtime.abi import (
    ON_GPU,
    ArgWord,
    CallWord,
    FaultWord,
    Opcode,
    Root,
    Status,
    StepWord,
    TraceWord,
)
from dlc.runtime.calling import device_partition
from dlc.runtime.calling.device_partition import BadPartition, Partition, RootRange
from dlc.runtime.calling.frames import Frame, SizedProgram, Words, working_bytes
from dlc.runtime.cuda.memory import GrowableDeviceBytes
from dlc.runtime.cuda.pinned import GrowablePinnedBytes
from dlc.runtime.gpu.errors import (
    SUCCESS,
    attributed_to,
    first_failure,
    outcome_words,
    waits_for_each_kernel,
    with_wait_hint,
)
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.gpu.steps import NUMBER, Steps
from dlc.runtime.gpu.walk import Walk
from dlc.runtime.hetero.code import HeteroCode, HeteroRoots
from dlc.runtime.hetero.host_segments import HostSegment, HostSegments
from dlc.runtime.hetero.in_flight_copies import AddressRange, InFlightCopies
from dlc.runtime.hetero.staging_slots import StagingSlots
from dlc.runtime.system.buffers import Bytes as Block
from dlc.runtime.system.buffers import address

_Roots: TypeAlias = "Sequence[int] | ctypes.Array[ctypes.c_int64]"


class _At(NamedTuple):
    """A program at one tuple of sizes: its parts, and the numbers with room for what is moving."""

    sized: SizedProgram
    partition: Partition
    numbers: Words
    own: SizedProgram
    """What the engine is given: the sizes in `numbers`, and the host's part of the arena."""


class HeteroFrame:
    """A call of one program, with the interface of `dlc.runtime.calling.frames.Frame`."""

    def __init__(
        self,
        machine: HeteroCode,
        program: Block,
        threads: int,
        weights: HeteroRoots,
        inputs: int,
        tensors: int,
    ) -> None:
        """`tensors` counts inputs and outputs."""
        self._machine = machine
        self._threads = threads
        self._weights = weights
        self._steps = Steps(program, Root.INPUTS + tensors)
        self._host_segments: HostSegments | None = None
        self._engines: dict[int, Frame] = {}
        """A frame for each segment, by its first step."""
        self._tensors = tensors
        self._at: _At | None = None
        driver = machine.gpu.driver
        self._copies = InFlightCopies(driver)
        self._staging = StagingSlots(driver, _copied(self._steps), inputs)
        self._host, self._device = GrowablePinnedBytes(driver), GrowableDeviceBytes(driver)
        self._scratch, self._faults = GrowableDeviceBytes(driver), GrowableDeviceBytes(driver)
        self._running: Frame | None = None
        self._cancelled = False
        self._waits = waits_for_each_kernel()
        self._status = SUCCESS
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()
        self.roots[Root.WEIGHTS], self.roots[Root.SOURCES] = weights.weights, weights.sources
        self.roots[Root.CONSTANTS] = address(machine.native.constants)
        self._on_gpu: list[int] = []
        """Where the roots begin on the device, the last one that of the notes of failing kernels."""

    @property
    def room(self) -> int:
        """Bytes of working memory that it has on the host."""
        return self._host.size

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        """Run the program at these sizes and give its status; `arena` is memory of the host to work in.

        Raises ArtifactError (D0610) for a program that would copy what it must not, CallError (D0818) with
        the driver's words; KernelFailed where it is known which kernel failed.
        """
        try:
            with self._machine.gpu.driver:
                return self._run(sized, arena)
        except BadPartition as error:
            raise ArtifactError(str(error), code="D0610") from None

    def run_timed(self, sized: SizedProgram) -> tuple[int, CallTimes]:
        """The same, and how long copies there, kernels of the GPU and copies back took by its clock."""
        with self._machine.gpu.driver:
            self._copies.begin_times()
            status = self.run(sized)
            return status, self._copies.end_times()

    def _run(self, sized: SizedProgram, arena: int) -> int:
        at = self._at if self._at is not None and self._at.sized is sized else self._begin(sized)
        base = arena or self._host.of(working_bytes(sized, self._threads))
        self.roots[Root.ARENA] = base
        self._staging.begin(self.roots, sized.tensors)
        self._on_gpu = self._device_roots(at)
        self._copies.clear(self._on_gpu[-1], self._steps.fault_bytes)
        with with_wait_hint():
            try:
                by_host = self._walk(at)
            except BaseException:
                with suppress(CallError):  # the failure that ended the call is told
                    self._copies.wait()
                raise
            self._copies.wait()
            self._status = self._first_failure(by_host)
        if self._status[CallWord.STATUS] == Status.OK:
            self._staging.hand_over()
        return self._status[CallWord.STATUS]

    def _begin(self, sized: SizedProgram) -> _At:
        """What is known at these sizes; the first ones also say what the processor does by itself."""
        assert sized.partition is not None
        sizes: list[int] = sized.sizes.tolist()
        if self._host_segments is None:
            self._host_segments = HostSegments(self._steps, sizes, sized.partition.start)
        room = [0] * self._host_segments.room
        numbers = np.array([*sizes, *room], np.int64)
        own = sized._replace(sizes=numbers, sizes_at=address(numbers))
        self._at = _At(sized, sized.partition, numbers, own)
        return self._at

    def _device_roots(self, at: _At) -> list[int]:
        inside = at.sized.arena - at.partition.start
        arena = self._device.of(inside) - at.partition.start
        scratch, faults = (
            self._scratch.of(at.sized.gpu_scratch),
            self._faults.of(self._steps.fault_bytes),
        )
        weights = self._weights.on_gpu
        fixed = [arena, weights.weights, weights.sources, scratch, self._machine.gpu.constants]
        # Arrays of the caller are on the host, and no kernel of the GPU is given one.
        return [*fixed, *[0] * self._tensors, faults]

    # The walk -------------------------------------------------------------------------------------

    def _walk(self, at: _At) -> list[int] | None:
        """Walk to the end; what the words of the call say (`CallWord`) if it ends before that."""
        assert self._host_segments is not None

        def read(root: int, offset: int, count: int) -> int:
            return self._number(at, root, offset, count)

        walk = Walk(self._steps, at.sized.sizes.tolist(), read)
        place = 0
        while not self._cancelled:
            step = self._steps.steps[place]
            whole = self._host_segments.whole.get(place)
            by_host: list[int] | None = None
            if whole is not None:
                by_host, place = self._enter(at, walk, place, whole), whole.end
            elif step[StepWord.OPCODE] == Opcode.END:
                return None
            elif step[StepWord.OPCODE] == Opcode.WAVE:
                by_host, place = self._wave(at, walk, place), place + 1 + step[StepWord.A]
            elif (limit := walk.limit(place)) is not None:
                return outcome_words(Status.LIMIT, step[StepWord.C], 0, limit)
            else:
                place = walk.control(place)
            if by_host is not None:
                return by_host
        return outcome_words(Status.CANCELLED)

    def _wave(self, at: _At, walk: Walk, place: int) -> list[int] | None:
        """Start what is not the processor's, then do what is."""
        assert self._host_segments is not None
        for call in range(place + 1, place + 1 + self._steps.steps[place][StepWord.A]):
            step = self._steps.steps[call]
            if device_partition.is_copy(step):
                self._copy(at, walk, call)
            elif device_partition.is_on_gpu(step):
                self._launch(at, walk, call)
        own = self._host_segments.in_waves.get(place)
        return None if own is None else self._enter(at, walk, place, own)

    def _launch(self, at: _At, walk: Walk, call: int) -> None:
        gpu = self._machine.gpu
        touched = at.partition.calls[call]
        for launch in walk.launch(call):
            words = [v if root == NUMBER else self._on_gpu[root] + v for root, v in launch.words]
            kernel = gpu.kernels[launch.kernel - ON_GPU]
            reads, writes = (_spans(self._on_gpu, each) for each in touched)
            with attributed_to(launch.op):
                self._copies.launch(kernel, launch.tiles, words, reads, writes)
                if self._waits:
                    self._copies.wait_for_kernels()

    def _copy(self, at: _At, walk: Walk, call: int) -> None:
        first = self._steps.steps[call][StepWord.B]
        source, target, (_, count) = [walk.word(first + k) for k in range(3)]
        for root, offset in (source, target):
            end = at.partition.lengths[root]
            if root == Root.ARENA and offset < at.partition.start:
                end = at.partition.start
            if not 0 <= offset <= offset + count <= end:
                raise BadPartition(f"step {call} copies {count} bytes at {offset}, of {end}")
        if self._is_on_host(at, source):
            self._copies.upload(
                self._span(self._on_gpu, target, count), self._span(self.roots, source, count)
            )
        else:
            self._copies.download(
                self._span(self.roots, target, count), self._span(self._on_gpu, source, count)
            )

    def _enter(self, at: _At, walk: Walk, place: int, segment: HostSegment) -> list[int] | None:
        """Let the processor do a segment, when what it touches is there; the words of a failure."""
        for argument, slot in segment.moving:
            root, value = walk.word(argument)
            at.numbers[slot] = value if root == NUMBER else self.roots[root] + value
        touched = [at.partition.calls[call] for call in segment.calls]
        self._copies.settle(
            _spans(self.roots, [each for call in touched for each in call.reads]),
            _spans(self.roots, [each for call in touched for each in call.writes]),
        )
        self._running = frame = self._engine(place, segment)
        try:
            status = frame.run(at.own, self.roots[Root.ARENA])
        finally:
            self._running = None
        return frame.status_words() if status else None

    def _engine(self, place: int, segment: HostSegment) -> Frame:
        """What enters the engine for a segment; all of them have the roots of this frame."""
        found = self._engines.get(place)
        if found is None:
            native, weights = self._machine.native, self._weights
            found = Frame(native, segment.words, self._threads, weights, self._tensors)
            found.roots = self.roots
            found.words[CallWord.ROOTS] = ctypes.addressof(self.roots)
            self._engines[place] = found
        return found

    # Places ---------------------------------------------------------------------------------------

    def _is_on_host(self, at: _At, word: tuple[int, int]) -> bool:
        root, offset = word
        return root != Root.ARENA or offset < at.partition.start

    def _span(self, roots: _Roots, word: tuple[int, int], count: int) -> AddressRange:
        root, offset = word
        return AddressRange(roots[root] + offset, roots[root] + offset + count)

    def _number(self, at: _At, root: int, offset: int, count: int) -> int:
        """A number of so many bytes, from whichever memory it is in, once it is there."""
        word = ctypes.c_int64(0)
        if root == NUMBER or self._is_on_host(at, (root, offset)):
            place = offset if root == NUMBER else self.roots[root] + offset
            self._copies.settle([AddressRange(place, place + count)], [])
            ctypes.memmove(ctypes.addressof(word), place, count)
        else:
            self._copies.fetch(
                ctypes.addressof(word), self._span(self._on_gpu, (root, offset), count)
            )
        return word.value

    # How it ended ---------------------------------------------------------------------------------

    def _first_failure(self, by_host: list[int] | None) -> list[int]:
        """The first failure in the order of the program: what ended the walk, or a kernel's note."""
        count = max(1, len(self._steps.ops))
        noted = np.zeros((count, FaultWord.COUNT), np.int64)
        faults = self._on_gpu[-1]
        self._copies.fetch(address(noted), AddressRange(faults, faults + noted.nbytes))
        return first_failure(noted, self._steps.ops, by_host)

    def run_traced(self, sized: SizedProgram, capacity: int) -> tuple[int, Words]:
        """The same; nothing is recorded where two devices work."""
        return self.run(sized), np.zeros((0, TraceWord.COUNT), np.int64)

    def status_words(self) -> list[int]:
        """The words that say how the last call ended, as `CallWord` names them."""
        return self._status

    def cancel(self) -> None:
        """Ask the call that this frame is running to end before its next step."""
        self._cancelled = True
        if self._running is not None:
            self._running.cancel()

    def reset(self) -> None:
        """Forget a request to cancel, before the frame serves another call."""
        self._cancelled = False
        for engine in self._engines.values():
            engine.reset()

    def __del__(self) -> None:
        if hasattr(self, "_copies"):
            self._copies.close()


def _copied(steps: Steps) -> set[int]:
    """The roots that copies between the memories name."""
    calls = [step for step in steps.steps if step[StepWord.OPCODE] == Opcode.CALL]
    firsts = [step[StepWord.B] for step in calls if device_partition.is_copy(step)]
    return {steps.arguments[first + k][ArgWord.ROOT] for first in firsts for k in (0, 1)}


def _spans(roots: _Roots, ranges: Iterable[RootRange]) -> tuple[AddressRange, ...]:
    """The addresses of these ranges, where the roots begin at `roots`."""
    return tuple(
        [AddressRange(roots[root] + first, roots[root] + end) for root, first, end in ranges]
    )
