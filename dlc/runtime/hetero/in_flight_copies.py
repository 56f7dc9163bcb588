"""Kernels and copies in flight in one call of a heterogeneous program, ordered by data dependences.

Kernels go into one CUDA stream, uploads into a second, downloads into a third, and the CPU computes
meanwhile. There are no barriers between waves here: a kernel or copy waits, by events, only for earlier
ones that touch the same memory, so copies overlap with all other work that the plan allows beside them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import NamedTuple

from dlc.runtime.cuda.driver import Driver, Handle, Kernel
from dlc.runtime.cuda.pinned import GrowablePinnedBytes
from dlc.runtime.cuda.staging import Staging
from dlc.runtime.gpu.frame import CallTimes


class AddressRange(NamedTuple):
    """The addresses from `first` up to `end`, of the host or of the device."""

    first: int
    end: int


class _Copy(NamedTuple):
    """The last copy between two ranges; it is done when its event is."""

    host: AddressRange
    device: AddressRange
    event: Handle


class _CopyStream:
    """A stream of copies in one direction, with those that may be in flight."""

    def __init__(self, driver: Driver) -> None:
        self.stream = driver.create_stream()
        self.staging = Staging(driver, self.stream)
        self.copies: dict[tuple[AddressRange, AddressRange], _Copy] = {}
        self.kernels_waited_for = 0
        """All later copies run after this many kernels."""
        self.joined: set[tuple[AddressRange, AddressRange]] = set()
        """The copies that all later kernels run after."""

    def forget(self, ranges: Iterable[tuple[AddressRange, AddressRange]]) -> list[Handle]:
        """Drop copies that are done; returns their events, for reuse."""
        self.joined.difference_update(ranges := tuple(ranges))
        return [self.copies.pop(key).event for key in ranges]


class InFlightCopies:
    """The kernels and copies in flight of one call. `close` destroys the streams and events."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kernels = driver.create_stream()
        self._up, self._down = _CopyStream(driver), _CopyStream(driver)
        self._mark = driver.create_event()
        self._fetched = GrowablePinnedBytes(driver)
        self._launched = 0
        self._last_access: dict[AddressRange, int] = {}
        """The number of the last kernel that reads or writes each range of the device's memory."""
        self._last_write: dict[AddressRange, int] = {}
        self._free_events: list[Handle] = []
        self._timed: list[tuple[int, Handle, Handle]] | None = None
        """Stream, begin and end of each kernel and copy, if times are asked for."""

    # Times ----------------------------------------------------------------------------------------

    def begin_times(self) -> None:
        """Record from now on when each kernel and copy begins and ends."""
        self._timed = []

    def end_times(self) -> CallTimes:
        """The sums of their times since `begin_times`; all of them must be done."""
        timed, self._timed = self._timed or [], None
        spent = dict.fromkeys((self._up.stream, self._kernels, self._down.stream), 0.0)
        for stream, begin, end in timed:
            spent[stream] += self._driver.elapsed_ms(begin, end)
            self._free_events += begin, end
        return CallTimes(*spent.values())

    @contextmanager
    def _time(self, stream: int) -> Generator[None]:
        """Record when the work that is put into a stream meanwhile begins and ends."""
        if self._timed is None:
            yield
            return
        begin, end = self._event(), self._event()
        self._driver.record(begin, stream)
        yield
        self._driver.record(end, stream)
        self._timed.append((stream, begin, end))

    @property
    def kernel_stream(self) -> int:
        """The stream of the kernels."""
        return self._kernels

    # The device -----------------------------------------------------------------------------------

    def clear(self, address: int, count: int) -> None:
        """Fill bytes on the device with zeros, before the kernels to come."""
        self._driver.memset_zero(address, count, self._kernels)

    def launch(
        self,
        kernel: Kernel,
        tiles: int,
        words: list[int],
        reads: Iterable[AddressRange],
        writes: Iterable[AddressRange],
    ) -> None:
        """Launch a kernel after the uploads of what it reads and the downloads of what it overwrites."""
        reads, writes = tuple(reads), tuple(writes)
        self._join(self._up, (*reads, *writes))
        self._join(self._down, writes)
        self._launched += 1
        self._last_access.update(dict.fromkeys(reads, self._launched))
        self._last_write.update(dict.fromkeys(writes, self._launched))
        with self._time(self._kernels):
            self._driver.launch(kernel, tiles, words, self._kernels)

    def _join(self, copy_stream: _CopyStream, ranges: tuple[AddressRange, ...]) -> None:
        """Let the kernels to come wait for the copies that touch these ranges of the device."""
        for key, copy in copy_stream.copies.items():
            if key not in copy_stream.joined and _overlaps_any(copy.device, ranges):
                self._driver.stream_wait_event(self._kernels, copy.event)
                copy_stream.joined.add(key)

    def upload(self, device: AddressRange, host: AddressRange) -> None:
        """Copy to the device, after the work in flight that uses either range."""
        up = self._up
        self._wait_for_copies(up, self._down, host, device)
        self._wait_for_kernels(up, device, (self._last_access, self._last_write))
        with self._time(up.stream):
            up.staging.upload(device.first, host.first, host.end - host.first)
        self._add(up, host, device)

    def download(self, host: AddressRange, device: AddressRange) -> None:
        """Copy to the host, after the kernels that write the source and the work that uses the target."""
        down = self._down
        self._wait_for_copies(down, self._up, host, device)
        self._wait_for_kernels(down, device, (self._last_write,))
        with self._time(down.stream):
            down.staging.download(host.first, device.first, host.end - host.first)
        self._add(down, host, device)

    def fetch(self, target: int, device: AddressRange) -> None:
        """Copy to memory of the host that is in no plan, and wait for it."""
        self._join(self._up, (device,))
        count = device.end - device.first
        pinned = self._fetched.of(count)
        self._driver.download(pinned, device.first, count, self._kernels)
        self._driver.synchronize(self._kernels)
        ctypes.memmove(target, pinned, count)

    def _wait_for_copies(
        self, waiting: _CopyStream, other: _CopyStream, host: AddressRange, device: AddressRange
    ) -> None:
        """Let the copies to come wait for those in the other direction that touch either range."""
        for copy in other.copies.values():
            if _overlaps_any(copy.host, (host,)) or _overlaps_any(copy.device, (device,)):
                self._driver.stream_wait_event(waiting.stream, copy.event)

    def _wait_for_kernels(
        self,
        waiting: _CopyStream,
        device: AddressRange,
        accesses: Iterable[dict[AddressRange, int]],
    ) -> None:
        """Let the copies to come wait for the kernels so far, if one of them accessed this range."""
        last = max(
            [
                kernel
                for kernel_of in accesses
                for accessed, kernel in kernel_of.items()
                if _overlaps_any(accessed, (device,))
            ],
            default=0,
        )
        if last > waiting.kernels_waited_for:
            self._driver.record(self._mark, self._kernels)
            self._driver.stream_wait_event(waiting.stream, self._mark)
            waiting.kernels_waited_for = self._launched

    def _add(self, copy_stream: _CopyStream, host: AddressRange, device: AddressRange) -> None:
        """Note the copy that was just put into a stream, in place of an earlier one of the same ranges."""
        earlier = [(host, device)] if (host, device) in copy_stream.copies else []
        self._free_events += copy_stream.forget(earlier)
        event = self._event()
        self._driver.record(event, copy_stream.stream)
        copy_stream.copies[host, device] = _Copy(host, device, event)

    def _event(self) -> Handle:
        """An event that nothing waits for."""
        return self._free_events.pop() if self._free_events else self._driver.create_event()

    # The host -------------------------------------------------------------------------------------

    def settle(self, reads: Iterable[AddressRange], writes: Iterable[AddressRange]) -> None:
        """Wait until the host may read, and write, these ranges."""
        reads, writes = tuple(reads), tuple(writes)
        self._settle(self._down, (*reads, *writes))
        self._settle(self._up, writes)

    def _settle(self, copy_stream: _CopyStream, ranges: tuple[AddressRange, ...]) -> None:
        """Wait for the copies that touch these ranges, and so for all before them in their stream."""
        copies = list(copy_stream.copies.values())
        touching = [k for k, copy in enumerate(copies) if _overlaps_any(copy.host, ranges)]
        if touching:
            self._driver.synchronize_event(copies[touching[-1]].event)
            done = list(copy_stream.copies)[: touching[-1] + 1]
            self._free_events += copy_stream.forget(done)

    def wait_for_kernels(self) -> None:
        """Wait until the kernels so far are done."""
        self._driver.synchronize(self._kernels)

    def wait(self) -> None:
        """Wait until nothing is in flight; nothing is afterwards, even where this raises."""
        try:
            for stream in (self._up.stream, self._kernels, self._down.stream):
                self._driver.synchronize(stream)
        finally:
            self._forget()

    def _forget(self) -> None:
        for copy_stream in (self._up, self._down):
            self._free_events += copy_stream.forget(list(copy_stream.copies))
            copy_stream.kernels_waited_for = 0
        self._launched = 0
        self._last_access.clear()
        self._last_write.clear()

    def close(self) -> None:
        """Destroy events and streams, when nothing is in flight."""
        for event in (*self._free_events, self._mark):
            self._driver.destroy_event(event)
        for stream in (self._up.stream, self._kernels, self._down.stream):
            self._driver.destroy_stream(stream)


def _overlaps_any(one: AddressRange, others: Iterable[AddressRange]) -> bool:
    """Whether a range shares a byte with one of the others."""
    return any(one.first < other.end and other.first < one.end for other in others)
