"""A call of a heterogeneous program: the host walks the step table and dispatches each call to its device.

Kernels of the GPU are launched and copies started asynchronously; CPU segments
(`dlc.runtime.hetero.host_segments`) run as soon as the data that they touch has arrived. In a wave the GPU
gets its work first, so that both devices compute at the same time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
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
from dlc.runtime.gpu.graphs import arguments_of
from dlc.runtime.gpu.kernel_timer import KernelTimer
from dlc.runtime.gpu.segments import Walk
from dlc.runtime.gpu.steps import IMMEDIATE, StepTable
from dlc.runtime.hetero.code import HeteroCode, HeteroRoots
from dlc.runtime.hetero.host_segments import HostSegment, HostSegments
from dlc.runtime.hetero.in_flight_copies import AddressRange, InFlightCopies
from dlc.runtime.hetero.recorder import Pieces, Recorder
from dlc.runtime.hetero.staging_slots import StagingSlots
from dlc.runtime.system.buffers import Bytes, address

_Roots: TypeAlias = "Sequence[int] | ctypes.Array[ctypes.c_int64]"


class _Specialized(NamedTuple):
    """A program at one tuple of sizes, with its partition and the sizes that CPU segments are given."""

    sized: SizedProgram
    partition: Partition
    segment_sizes: Words
    """The sizes, followed by a slot for each argument that the host evaluates for a segment."""
    on_host: SizedProgram
    """What the engine runs segments with: `segment_sizes`, and the host's part of the arena."""


class HeteroFrame:
    """A call of one program, with the interface of `dlc.runtime.calling.frames.Frame`."""

    def __init__(
        self,
        machine: HeteroCode,
        program: Bytes,
        threads: int,
        weights: HeteroRoots,
        inputs: int,
        tensors: int,
    ) -> None:
        """`tensors` counts inputs and outputs."""
        self._machine = machine
        self._threads = threads
        self._weights = weights
        self._steps = StepTable(program, Root.INPUTS + tensors)
        self._host_segments: HostSegments | None = None
        self._engines: dict[int, Frame] = {}
        """A frame for each segment, by its first step."""
        self._tensors = tensors
        self._specialized: _Specialized | None = None
        driver = machine.gpu.driver
        self._copies = InFlightCopies(driver)
        self._staging = StagingSlots(driver, _copied(self._steps), inputs)
        self._host, self._device = GrowablePinnedBytes(driver), GrowableDeviceBytes(driver)
        self._scratch, self._faults = GrowableDeviceBytes(driver), GrowableDeviceBytes(driver)
        self._running: Frame | None = None
        self._cancelled = False
        self._synchronous = waits_for_each_kernel()
        self._recorder: Recorder | None = None
        self._status = SUCCESS
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()
        self.roots[Root.WEIGHTS], self.roots[Root.SOURCES] = weights.weights, weights.sources
        self.roots[Root.CONSTANTS] = address(machine.native.constants)
        self._gpu_roots: list[int] = []
        """The addresses of the roots on the device; the last one holds what failing kernels report."""

    @property
    def room(self) -> int:
        """Bytes of working memory on the host that the frame owns."""
        return self._host.size

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        """Run the program at these sizes; returns its status. `arena` is the address of an external arena.

        Raises ArtifactError (D0610) for a copy outside its memory, CallError (D0818) where the driver
        refuses something, KernelFailed where it is known which kernel failed.
        """
        try:
            with self._machine.gpu.driver:
                return self._run(sized, arena)
        except BadPartition as error:
            raise ArtifactError(str(error), code="D0610") from None

    def run_timed(self, sized: SizedProgram) -> tuple[int, CallTimes]:
        """`run`, with the times of uploads, kernels and downloads by the GPU's clock."""
        with self._machine.gpu.driver:
            self._copies.begin_times()
            status = self.run(sized)
            return status, self._copies.end_times()

    def run_profiled(
        self, sized: SizedProgram, capacity: int, *, alone: bool
    ) -> tuple[int, Pieces]:
        """`run`, with one device at work at a time, and what each did; see `Recorder`."""
        gpu = self._machine.gpu
        with gpu.driver:
            timer = KernelTimer(gpu.driver, gpu.kernels, self._copies.kernel_stream)
            recorder = self._recorder = Recorder(timer, capacity, alone)
            self._copies.begin_times()
            try:
                status = self.run(sized)
            finally:
                self._recorder = None
                copies = self._copies.end_times()
                found = recorder.close(copies.upload_ms + copies.download_ms)
            return status, found

    def _run(self, sized: SizedProgram, arena: int) -> int:
        program = self._specialized
        if program is None or program.sized is not sized:
            program = self._specialize(sized)
        arena = arena or self._host.of(working_bytes(sized, self._threads))
        self.roots[Root.ARENA] = arena
        self._staging.begin(self.roots, sized.tensors)
        self._gpu_roots = self._device_roots(program)
        self._copies.clear(self._gpu_roots[-1], self._steps.fault_bytes)
        with with_wait_hint:
            try:
                host_outcome = self._walk(program)
            except BaseException:
                with suppress(CallError):  # the first failure is reported
                    self._copies.wait()
                raise
            self._copies.wait()
            self._status = self._first_failure(host_outcome)
        if self._status[CallWord.STATUS] == Status.OK:
            self._staging.hand_over()
        return self._status[CallWord.STATUS]

    def _specialize(self, sized: SizedProgram) -> _Specialized:
        """The program at these sizes. The CPU segments are found at the first sizes, and hold for all."""
        assert sized.partition is not None
        sizes: list[int] = sized.sizes.tolist()
        if self._host_segments is None:
            self._host_segments = HostSegments(self._steps, sizes, sized.partition.start)
        slots = [0] * self._host_segments.slots
        segment_sizes = np.array([*sizes, *slots], np.int64)
        on_host = sized._replace(sizes=segment_sizes, sizes_at=address(segment_sizes))
        self._specialized = _Specialized(sized, sized.partition, segment_sizes, on_host)
        return self._specialized

    def _device_roots(self, program: _Specialized) -> list[int]:
        start = program.partition.start
        arena = self._device.of(program.sized.arena - start) - start
        scratch, faults = (
            self._scratch.of(program.sized.gpu_scratch),
            self._faults.of(self._steps.fault_bytes),
        )
        weights = self._weights.on_gpu
        fixed = [arena, weights.weights, weights.sources, scratch, self._machine.gpu.constants]
        # Arrays of the caller are on the host, and the partition passes none to the GPU.
        return [*fixed, *[0] * self._tensors, faults]

    # Walk -----------------------------------------------------------------------------------------

    def _walk(self, program: _Specialized) -> list[int] | None:
        """Walk the step table; None at its end, else the words (`CallWord`) of a call that ended early."""
        assert self._host_segments is not None

        def read(root: int, offset: int, count: int) -> int:
            return self._read_number(program, root, offset, count)

        walk = Walk(self._steps, program.sized.sizes.tolist(), read)
        pc = 0
        while not self._cancelled:
            step = self._steps.steps[pc]
            segment = self._host_segments.whole.get(pc)
            outcome: list[int] | None = None
            if segment is not None:
                outcome, pc = self._enter(program, walk, pc, segment), segment.end
            elif step[StepWord.OPCODE] == Opcode.END:
                return None
            elif step[StepWord.OPCODE] == Opcode.WAVE:
                outcome, pc = self._wave(program, walk, pc), pc + 1 + step[StepWord.A]
            elif (limit := walk.limit(pc)) is not None:
                return outcome_words(Status.LIMIT, step[StepWord.C], 0, limit)
            else:
                pc = walk.control(pc)
            if outcome is not None:
                return outcome
        return outcome_words(Status.CANCELLED)

    def _wave(self, program: _Specialized, walk: Walk, pc: int) -> list[int] | None:
        """Launch the kernels and copies of a wave, then run its CPU calls."""
        assert self._host_segments is not None
        for call in range(pc + 1, pc + 1 + self._steps.steps[pc][StepWord.A]):
            step = self._steps.steps[call]
            if device_partition.is_copy(step):
                self._copy(program, walk, call)
            elif device_partition.is_on_gpu(step):
                self._launch(program, walk, call)
        segment = self._host_segments.in_waves.get(pc)
        return None if segment is None else self._enter(program, walk, pc, segment)

    def _launch(self, program: _Specialized, walk: Walk, call: int) -> None:
        gpu = self._machine.gpu
        accesses = program.partition.calls[call]
        for launch in walk.launch(call):
            if self._recorder is not None:
                self._copies.wait()
                own = launch._replace(kernel=launch.kernel - ON_GPU)
                self._recorder.kernel(own, self._gpu_roots)
                continue
            kernel = gpu.kernels[launch.kernel - ON_GPU]
            reads, writes = (_addresses(self._gpu_roots, ranges) for ranges in accesses)
            with attributed_to(launch.op):
                words = arguments_of(kernel, launch.words, self._gpu_roots)
                self._copies.launch(kernel, launch.tiles, words, reads, writes)
                if self._synchronous:
                    self._copies.wait_for_kernels()

    def _copy(self, program: _Specialized, walk: Walk, call: int) -> None:
        """Start a copy between the memories. Raises BadPartition if it leaves its memory."""
        first = self._steps.steps[call][StepWord.B]
        source, target, (_, count) = [walk.word(first + k) for k in range(3)]
        for root, offset in (source, target):
            end = program.partition.lengths[root]
            if root == Root.ARENA and offset < program.partition.start:
                end = program.partition.start
            if not 0 <= offset <= offset + count <= end:
                raise BadPartition(f"step {call} copies {count} bytes at {offset}, of {end}")
        if not count:
            return  # and an offset of no bytes may be that of either memory
        if self._is_on_host(program, source):
            self._copies.upload(
                self._address_range(self._gpu_roots, target, count),
                self._address_range(self.roots, source, count),
            )
        else:
            self._copies.download(
                self._address_range(self.roots, target, count),
                self._address_range(self._gpu_roots, source, count),
            )

    def _enter(
        self, program: _Specialized, walk: Walk, pc: int, segment: HostSegment
    ) -> list[int] | None:
        """Run a CPU segment once the data that it touches has arrived; the words of a failure, if any."""
        for argument, slot in segment.host_arguments:
            root, value = walk.word(argument)
            program.segment_sizes[slot] = value if root == IMMEDIATE else self.roots[root] + value
        accesses = [program.partition.calls[call] for call in segment.calls]
        self._copies.settle(
            _addresses(self.roots, [range_ for call in accesses for range_ in call.reads]),
            _addresses(self.roots, [range_ for call in accesses for range_ in call.writes]),
        )
        self._running = frame = self._engine(pc, segment)
        try:
            run = partial(frame.run, program.on_host, self.roots[Root.ARENA])
            status = run() if self._recorder is None else self._recorder.segment(frame, run)
        finally:
            self._running = None
        return frame.status_words() if status else None

    def _engine(self, pc: int, segment: HostSegment) -> Frame:
        """The engine's frame for a segment; all of them share the roots of this frame."""
        engine = self._engines.get(pc)
        if engine is None:
            native, weights = self._machine.native, self._weights
            engine = Frame(native, segment.words, self._threads, weights, self._tensors)
            engine.roots = self.roots
            engine.words[CallWord.ROOTS] = ctypes.addressof(self.roots)
            self._engines[pc] = engine
        return engine

    # Memory ---------------------------------------------------------------------------------------

    def _is_on_host(self, program: _Specialized, word: tuple[int, int]) -> bool:
        root, offset = word
        return root != Root.ARENA or offset < program.partition.start

    def _address_range(self, roots: _Roots, word: tuple[int, int], count: int) -> AddressRange:
        root, offset = word
        return AddressRange(roots[root] + offset, roots[root] + offset + count)

    def _read_number(self, program: _Specialized, root: int, offset: int, count: int) -> int:
        """Read an integer of `count` bytes from the memory that it is in, once it is there."""
        word = ctypes.c_int64(0)
        if root == IMMEDIATE or self._is_on_host(program, (root, offset)):
            source = offset if root == IMMEDIATE else self.roots[root] + offset
            self._copies.settle([AddressRange(source, source + count)], [])
            ctypes.memmove(ctypes.addressof(word), source, count)
        else:
            self._copies.fetch(
                ctypes.addressof(word), self._address_range(self._gpu_roots, (root, offset), count)
            )
        return word.value

    # Outcome --------------------------------------------------------------------------------------

    def _first_failure(self, host_outcome: list[int] | None) -> list[int]:
        """The first failure in program order: what ended the walk, or what a kernel reported."""
        count = max(1, len(self._steps.ops))
        reports = np.zeros((count, FaultWord.COUNT), np.int64)
        faults = self._gpu_roots[-1]
        self._copies.fetch(address(reports), AddressRange(faults, faults + reports.nbytes))
        return first_failure(reports, self._steps.ops, host_outcome)

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None:
        """Nothing: heterogeneous calls are not traced."""

    @property
    def traced(self) -> int:
        """No records were to be written."""
        return 0

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


def _copied(steps: StepTable) -> set[int]:
    """The roots that copies between the memories name."""
    calls = [step for step in steps.steps if step[StepWord.OPCODE] == Opcode.CALL]
    firsts = [step[StepWord.B] for step in calls if device_partition.is_copy(step)]
    return {steps.arguments[first + k][ArgWord.ROOT] for first in firsts for k in (0, 1)}


def _addresses(roots: _Roots, ranges: Iterable[RootRange]) -> tuple[AddressRange, ...]:
    """The addresses of these ranges, where the roots begin at `roots`."""
    return tuple(
        [AddressRange(roots[root] + first, roots[root] + end) for root, first, end in ranges]
    )
