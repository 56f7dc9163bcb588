"""A call on a GPU: upload the inputs, launch the kernels, download the results.

Each frame has a stream, an arena and graphs of its own, so that calls can run concurrently. Small arrays
of the host are packed into one pinned block, which is uploaded in one copy; results come back likewise.
Large arrays are copied separately: directly if they are pinned, else in chunks
(`dlc.runtime.cuda.staging`). Arrays that lie on the device already are used in place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dlc.errors import CallError
from dlc.runtime.abi import CallWord, Root, Status
from dlc.runtime.calling.frames import SizedProgram, Words
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.cuda.driver import Handle
from dlc.runtime.cuda.memory import GrowableDeviceBytes
from dlc.runtime.cuda.pinned import LARGE, GrowablePinnedBytes
from dlc.runtime.cuda.staging import Staging
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.gpu.errors import SUCCESS, call_outcome, outcome_words, with_wait_hint
from dlc.runtime.gpu.fitting import Key
from dlc.runtime.gpu.kernel_timer import KernelTimer
from dlc.runtime.gpu.ready import MOST, Copies, HostArray, Plan, ReadyCall
from dlc.runtime.gpu.steps import StepTable
from dlc.runtime.gpu.walker import Walker
from dlc.runtime.system.buffers import Bytes, bytes_at
from dlc.runtime.weights.model_weights import WeightRoots

ALIGNED = 256
"""Bytes; the alignment of an array in the block."""


class CallTimes(NamedTuple):
    """Milliseconds of a call by the device's clock: uploads, kernels, downloads."""

    upload_ms: float
    compute_ms: float
    download_ms: float


class Layout(NamedTuple):
    """Offsets of the small arrays of a call in the block that is copied; None for a large array.

    Inputs come first, then the faults of the kernels, then outputs.
    """

    offsets: tuple[int | None, ...]
    inputs: int
    """The offset at which the inputs end and what is downloaded begins."""
    size: int


class GpuFrame:
    """A call of one program, with the interface of `dlc.runtime.calling.frames.Frame`."""

    def __init__(
        self, gpu: Gpu, program: Bytes, weights: WeightRoots, inputs: int, tensors: int
    ) -> None:
        """`weights` are on the device; `tensors` counts inputs and outputs."""
        self._gpu = gpu
        self.driver = self._driver = driver = gpu.driver
        self._steps = StepTable(program, Root.INPUTS + tensors, gpu.collectives)
        self._inputs = inputs
        self._weights = weights
        self.stream = driver.create_stream()
        """The stream of all its work."""
        self.is_captured = False
        """Whether another library captures what is put into the stream."""
        self._owns_stream = True
        self._names: Sequence[str] = ()
        self._reports = 0
        """The address of pinned memory to which calls that nobody waits for copy their faults."""
        self._walker = Walker(gpu, self._steps, self.stream)
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._arena, self._scratch = GrowableDeviceBytes(driver), GrowableDeviceBytes(driver)
        self._block = GrowableDeviceBytes(driver)
        self._pinned = GrowablePinnedBytes(driver)
        self._staging = Staging(driver, self.stream)
        self._large = [GrowableDeviceBytes(driver) for _ in range(tensors)]
        self._no_faults = bytes(self._steps.fault_bytes)
        self._faults = 0
        """The address of the faults of the last call."""
        self._clean = 0
        """The address of the faults, if they are known to be zero."""
        self._status = SUCCESS
        self._ready: ReadyCall | None = None
        """What the last call has become, if the next one like it is ready."""
        self._own: list[int] = []
        """The addresses of the memory that the calls that are ready use."""
        self._overwritten: list[tuple[int, int, int]] = []
        """Arrays of the caller that inputs and results share: host, device and bytes of each."""
        self._events: list[Handle] = []
        self._launches = 1
        """How often a call runs the program."""
        # The addresses of the caller's arrays, from INPUTS on.
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()
        self._all_on_host = (0,) * tensors
        self._devices: Sequence[int] = self._all_on_host
        """The addresses of inputs and outputs that lie on the device; 0 for the others."""
        self._hosts: Sequence[int] = self._all_on_host
        """The addresses of those in host memory."""

    @property
    def room(self) -> int:
        """Bytes of working memory that the frame owns."""
        return self._arena.size + self._scratch.size

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        """Run the program at these sizes; returns its status.

        Raises CallError: D0817 for an arena, D0818 if the driver refuses something; KernelFailed where it
        is known which kernel failed.
        """
        if arena:
            raise CallError(
                "arena= lends memory of the host, and this call works on a GPU",
                code="D0817",
                help="leave it out",
            )
        return self.run_placed(sized, self._all_on_host, self.roots[Root.INPUTS :])

    def run_placed(
        self, sized: SizedProgram, devices: tuple[int, ...], hosts: Sequence[int]
    ) -> int:
        """Run the program at these sizes; returns its status.

        Each input and output is at an address in `devices`, or in `hosts` where that is 0. Raises as
        `run` does, but takes no arena.
        """
        self._ready = None if self._events else self._walker.ready(sized).get(devices)
        if self._ready is not None:
            return self.run_ready(self._ready, hosts)
        with self._driver:
            self._devices, self._hosts = devices, hosts
            return self._run(sized)

    def plan(self, key: Key) -> Plan | None:
        """What is known of calls with arguments of this key."""
        return self._walker.cache.plan(key)

    def note(self, key: Key, at: Specialization, outputs: tuple[int, ...] = ()) -> None:
        """Note that the last call had arguments of this key, if the next one like it is ready.

        `outputs` are the addresses of its results where these differ from call to call.
        """
        if self._ready is None:
            return
        plan = self._walker.cache.plan(key)
        if plan is None or len(plan.ready) >= MOST:
            plan = Plan(at.sized, at.outputs, {})
            self._walker.cache.note(key, plan)
        plan.ready[outputs] = self._ready

    def run_ready(self, ready: ReadyCall, hosts: Sequence[int]) -> int:
        """Run a call that is ready, with arrays of the host at `hosts`; returns its status.

        Raises as `run` does, but takes no arena.
        """
        if self._walker.is_cancelled:
            self._status = outcome_words(Status.CANCELLED)
            return self._status[CallWord.STATUS]
        with self._driver:
            pinned = self._pinned.address
            try:
                self.clear_faults(ready.faults_at)
                ready.start(pinned, hosts)
                self._walker.wait()
            except BaseException:
                self.abandon()
                raise
        faults = ready.faults(pinned)
        if faults is None:
            ready.hand_over(pinned, hosts)
            self._status = SUCCESS
        else:
            self._status = self.outcome(faults)
        return self._status[CallWord.STATUS]

    def _run(self, sized: SizedProgram) -> int:
        layout = self._layout(sized)
        try:
            roots = self._roots(sized, layout)
        except BaseException:
            self.forget_ready()  # some memory may have been freed
            raise
        try:
            by_host = self._work(sized, layout, roots)
        except BaseException:
            self.abandon()
            raise
        faults = bytes_at(self._pinned.address + layout.inputs, len(self._no_faults))
        self._status = self.outcome(faults, by_host)
        if self._status[CallWord.STATUS] == Status.OK:
            self._hand_over(sized, layout, roots)
            self._note_ready(sized, layout, roots)
        return self._status[CallWord.STATUS]

    def _work(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> list[int] | None:
        """Do all the work on the device, and wait; the words with which the host ended the walk, if any."""
        by_host: list[int] | None = None
        self._mark(0)
        self._upload(sized, layout, roots)
        self._mark(1)
        for _ in range(self._launches):
            by_host = self._walker.walk(sized, roots)
        self._mark(2)
        self._download(sized, layout, roots)
        self._mark(3)
        self._walker.wait()
        return by_host

    # Calls that nobody waits for ------------------------------------------------------------------

    def name_kernels(self, names: Sequence[str]) -> None:
        """Tell profilers what to call the kernel of each op."""
        self._names = names
        self._walker.name_kernels(names)

    def move_to(self, stream: int) -> None:
        """Do all work in a stream of the caller's from now on."""
        self._driver.destroy_stream(self.stream)
        self.stream, self._owns_stream = stream, False
        self._walker = Walker(self._gpu, self._steps, stream)
        self._walker.name_kernels(self._names)
        self._staging = Staging(self._driver, stream)

    def start(self, sized: SizedProgram, devices: tuple[int, ...]) -> list[int] | None:
        """Put a call into the stream, all of whose arrays lie on the device, and do not wait for it.

        Returns the words with which the host has ended the walk, if it has. Raises as `run` does.
        """
        with self._driver as driver:
            self._devices, self._hosts = devices, self._all_on_host
            layout = self._layout(sized)
            if self._must_grow(sized, layout) and not self.is_captured:
                driver.synchronize(self.stream)  # earlier calls use the memory that is replaced
            roots = self._roots(sized, layout)
            if self._reports != self._pinned.address:
                self._reports = self._pinned.address
                ctypes.memset(self._reports, 0, self._steps.fault_bytes)
            walker = self._walker
            by_host = (walker.launch_each if self.is_captured else walker.walk)(sized, roots)
            driver.download(self._reports, roots[-1], self._steps.fault_bytes, self.stream)
        return by_host

    def _must_grow(self, sized: SizedProgram, layout: Layout) -> bool:
        return (
            sized.arena > self._arena.size
            or sized.scratch > self._scratch.size
            or layout.size > min(self._block.size, self._pinned.size)
        )

    def reported(self) -> list[int] | None:
        """The words of a call that was started and has failed, if that is known by now.

        Then all that was started is over, and the next call begins without its failures.
        """
        if not self._reports or self._found() == self._no_faults:
            return None
        with self._driver as driver:
            driver.synchronize(self.stream)
            words = self.outcome(self._found())
            driver.memset_zero(self._faults, self._steps.fault_bytes, self.stream)
            driver.synchronize(self.stream)
        ctypes.memset(self._reports, 0, self._steps.fault_bytes)
        return words

    def _found(self) -> bytes:
        return bytes_at(self._reports, len(self._no_faults))

    def wait(self, event: Handle | None = None) -> None:
        """Wait until an event, or all that was launched, is done."""
        if event is None:
            self._walker.wait()
        else:
            with with_wait_hint:
                self._driver.synchronize_event(event)

    def abandon(self) -> None:
        """Wait for the work in flight, whose memory will be reused. Its faults belong to no call."""
        self._clean = 0
        with suppress(CallError):  # the first failure is reported
            self._driver.synchronize(self.stream)

    # Memory ---------------------------------------------------------------------------------------

    def _layout(self, sized: SizedProgram) -> Layout:
        layout = self._layouts.get(sized.tensors)
        if layout is None:
            layout = _laid_out(sized.tensors, self._inputs, self._steps.fault_bytes)
            self._layouts[sized.tensors] = layout
        return layout

    def _roots(self, sized: SizedProgram, layout: Layout) -> list[int]:
        """The addresses of the roots on the device; the last one holds the faults.

        An output that shares the memory of an input on the host shares it on the device.
        """
        base = self._block.of(layout.size)
        self._pinned.of(layout.size)
        arena, scratch = self._arena.of(sized.arena), self._scratch.of(sized.scratch)
        weights = self._weights
        roots = [arena, weights.weights, weights.sources, scratch, self._gpu.constants]
        device_address: dict[int, int] = {}
        for index, size in enumerate(sized.tensors):
            host, device = self._hosts[index], self._devices[index]
            offset = layout.offsets[index]
            if device:
                pass  # it is used where it is
            elif host in device_address:
                device = device_address[host]
            elif offset is None:
                device = self._large[index].of(size)
            else:
                device = base + offset
            if size and host:
                device_address[host] = device
            roots.append(device)
        self._forget_moved(roots)
        self._faults = faults = base + layout.inputs
        self.clear_faults(faults)
        return [*roots, faults]

    def clear_faults(self, address: int) -> None:
        """Let the faults at an address be zero, if it is not known that they are."""
        if self._clean != address:
            self._driver.memset_zero(address, self._steps.fault_bytes, self.stream)
            self._clean = address

    def _upload(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        end = 0
        for index in range(self._inputs):
            host, size = self._hosts[index], sized.tensors[index]
            offset = layout.offsets[index]
            if self._devices[index] or not size:
                continue
            if offset is None:
                self._staging.upload(roots[Root.INPUTS + index], host, size)
            else:
                ctypes.memmove(self._pinned.address + offset, host, size)
                end = offset + size
        base = roots[-1] - layout.inputs
        self._driver.upload(base, self._pinned.address, end, self.stream)

    def _download(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        """Download the faults and the results, the small ones to pinned memory.

        What overwrites an input waits until it is known that the call has not failed.
        """
        end = layout.inputs + self._steps.fault_bytes
        inputs = self._input_addresses()
        separate: list[tuple[int, int, int]] = []
        self._overwritten.clear()
        for index in range(self._inputs, len(sized.tensors)):
            device, size = roots[Root.INPUTS + index], sized.tensors[index]
            offset, host = layout.offsets[index], self._hosts[index]
            if self._devices[index] or not size:
                continue
            if offset is not None and self._is_in_block(offset, device, layout, roots):
                end = offset + size
            elif host in inputs:
                self._overwritten.append((host, device, size))
            else:
                separate.append((host, device, size))
        pinned, size = self._pinned.address + layout.inputs, end - layout.inputs
        self._driver.download(pinned, roots[-1], size, self.stream)
        self._to_host(separate)

    def _to_host(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy from the device to the caller's arrays."""
        with with_wait_hint:  # downloads to memory that is not pinned wait
            for host, device, size in copies:
                self._staging.download(host, device, size)

    def _note_ready(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        """Keep the call ready for the next one like it, if one graph is all of it."""
        graph = self._walker.whole_graph(sized)
        copies = self._copies(sized, layout, roots)
        if graph is None or copies is None:
            return
        known = self._walker.ready(sized)
        if len(known) >= MOST:
            known.clear()
        self._ready = known[tuple(self._devices)] = ReadyCall(
            self._driver, self.stream, self._staging, graph, roots, copies, self._no_faults
        )

    def _copies(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> Copies | None:
        """What the next call like this one copies; None for results that are copied separately.

        Also where two arrays of the host were the same one: in the next call they may be two.
        """
        sizes = enumerate(sized.tensors)
        own = [k for k, size in sizes if size and not self._devices[k]]
        if len({self._hosts[k] for k in own}) < len(own):
            return None
        inputs, large, outputs = list[HostArray](), list[HostArray](), list[HostArray]()
        for k in own:
            offset, size = layout.offsets[k], sized.tensors[k]
            if offset is not None:
                (inputs if k < self._inputs else outputs).append(HostArray(k, offset, size))
            elif k < self._inputs:
                large.append(HostArray(k, roots[Root.INPUTS + k], size))
            else:
                return None
        uploaded = max((place + size for _, place, size in inputs), default=0)
        ends = (place + size for _, place, size in outputs)
        end = max(ends, default=layout.inputs + self._steps.fault_bytes)
        base = roots[-1] - layout.inputs
        return Copies(inputs, large, outputs, base, uploaded, layout.inputs, end - layout.inputs)

    def _forget_moved(self, roots: Sequence[int]) -> None:
        """Drop the calls that are ready if memory of the frame lies elsewhere than it did for them."""
        large = [each.address for each in self._large]
        own = [*roots[: Root.INPUTS], self._block.address, *large]
        if own != self._own:
            self.forget_ready()
            self._own = own

    def forget_ready(self) -> None:
        """Drop the calls that are ready."""
        self._walker.cache.forget_ready()
        self._own = []

    def _input_addresses(self) -> set[int]:
        return {self._hosts[index] for index in range(self._inputs)}

    def _is_in_block(self, offset: int, device: int, layout: Layout, roots: Sequence[int]) -> bool:
        """Whether an output lies at its offset in the block, and does not overwrite an input."""
        return device - roots[-1] == offset - layout.inputs

    def _hand_over(self, sized: SizedProgram, layout: Layout, roots: Sequence[int]) -> None:
        """Copy the small results from pinned memory to the caller's arrays."""
        for index in range(self._inputs, len(sized.tensors)):
            device, size = roots[Root.INPUTS + index], sized.tensors[index]
            offset = layout.offsets[index]
            if offset is None or self._devices[index] or not size:
                continue
            if self._is_in_block(offset, device, layout, roots):
                host = self._hosts[index]
                ctypes.memmove(host, self._pinned.address + offset, size)
        if self._overwritten:
            self._to_host(self._overwritten)
            self._walker.wait()

    def outcome(self, faults: bytes, by_host: list[int] | None = None) -> list[int]:
        """The first failure in program order: what ended the walk, or a fault of a kernel."""
        if faults == self._no_faults:
            return by_host or SUCCESS
        self._clean = 0
        return call_outcome(np.frombuffer(faults, np.int64), self._steps, by_host)

    # Times and the rest of the interface ----------------------------------------------------------

    def run_timed(
        self,
        sized: SizedProgram,
        devices: tuple[int, ...],
        hosts: Sequence[int],
        launches: int = 1,
    ) -> tuple[int, CallTimes]:
        """`run_placed`, with the times of its parts; the program runs `launches` times in a row."""
        self._events = [self._driver.create_event() for _ in range(4)]
        self._launches = launches
        try:
            with self._driver as driver:
                status = self.run_placed(sized, devices, hosts)
                pairs = zip(self._events, self._events[1:], strict=False)
                return status, CallTimes(*[driver.elapsed_ms(*pair) for pair in pairs])
        finally:
            for event in self._events:
                self._driver.destroy_event(event)
            self._events, self._launches = [], 1

    def run_profiled(
        self, sized: SizedProgram, devices: tuple[int, ...], hosts: Sequence[int]
    ) -> tuple[int, KernelTimer]:
        """`run_placed`, with the times of its kernels, which run one after the other."""
        timer = self._walker.timer = self._walker.new_timer()
        try:
            with self._driver:
                self._devices, self._hosts = devices, hosts
                return self._run(sized), timer
        finally:
            self._walker.timer = None
            timer.close()

    def _mark(self, index: int) -> None:
        """Record an event here, if times are asked for."""
        if self._events:
            self._driver.record(self._events[index], self.stream)

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None:
        """Nothing: calls on a GPU are not traced."""

    @property
    def traced(self) -> int:
        """No records were to be written."""
        return 0

    def status_words(self) -> list[int]:
        """The words that say how the last call ended, as `CallWord` names them."""
        return self._status

    def cancel(self) -> None:
        """Ask the call that this frame is running to end soon."""
        self._walker.cancel()

    def reset(self) -> None:
        """Forget a request to cancel."""
        self._walker.reset()

    def __del__(self) -> None:
        if hasattr(self, "_walker"):  # else it has no stream yet
            self._walker.forget()
            if self._owns_stream:
                self._driver.destroy_stream(self.stream)


def _laid_out(tensors: Sequence[int], inputs: int, faults: int) -> Layout:
    """The layout of arrays of these numbers of bytes; the first `inputs` of them are inputs."""
    offsets: list[int | None] = []
    end = 0
    for size in tensors[:inputs]:
        offsets.append(end if size < LARGE else None)
        end = _aligned(end + size) if size < LARGE else end
    first, end = end, _aligned(end + faults)
    for size in tensors[inputs:]:
        offsets.append(end if size < LARGE else None)
        end = _aligned(end + size) if size < LARGE else end
    return Layout(tuple(offsets), first, end)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
