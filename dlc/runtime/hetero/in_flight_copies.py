"""What is under way while a program runs on a processor and a GPU: kernels, and copies between the two.

Kernels go into one stream, copies to the GPU into another, copies back into a third; the processor works
meanwhile. Nobody waits for a barrier of the program: a piece of work waits for those before it that touch
the same memory, and for no others. So a copy overlaps with whatever else the plan lets run beside it.
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


class Bytes(NamedTuple):
    """Addresses from `first` up to `end`, of the host or of the device."""

    first: int
    end: int


class _Copy(NamedTuple):
    """The last copy between two places, which is done when its event is."""

    host: Bytes
    device: Bytes
    event: Handle


class _Way:
    """A stream of copies in one direction."""

    def __init__(self, driver: Driver) -> None:
        self.stream = driver.create_stream()
        self.staging = Staging(driver, self.stream)
        self.copies: dict[tuple[Bytes, Bytes], _Copy] = {}
        self.seen = 0
        """The kernels, by number, that all later copies come after."""
        self.joined: set[tuple[Bytes, Bytes]] = set()
        """The copies that all later kernels come after."""

    def forget(self, places: Iterable[tuple[Bytes, Bytes]]) -> list[Handle]:
        """Drop copies that are done; the events that are free now."""
        self.joined.difference_update(places := tuple(places))
        return [self.copies.pop(place).event for place in places]


class InFlightCopies:
    """The work of one call that is under way. `close` gives the streams back."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kernels = driver.create_stream()
        self._up, self._down = _Way(driver), _Way(driver)
        self._mark = driver.create_event()
        self._fetched = GrowablePinnedBytes(driver)
        self._launched = 0
        self._read: dict[Bytes, int] = {}
        """The last kernel that reads, or writes, each stretch of the device's memory."""
        self._written: dict[Bytes, int] = {}
        self._free: list[Handle] = []
        self._timed: list[tuple[int, Handle, Handle]] | None = None
        """The stream of each piece of work with when it began and ended, where times are asked for."""

    # Times ----------------------------------------------------------------------------------------

    def begin_times(self) -> None:
        """Note from now on when each piece of work begins and ends."""
        self._timed = []

    def end_times(self) -> CallTimes:
        """How long copies and kernels took since then, all of which are done."""
        timed, self._timed = self._timed or [], None
        spent = dict.fromkeys((self._up.stream, self._kernels, self._down.stream), 0.0)
        for stream, begin, end in timed:
            spent[stream] += self._driver.elapsed_ms(begin, end)
            self._free += begin, end
        return CallTimes(*spent.values())

    @contextmanager
    def _time(self, stream: int) -> Generator[None]:
        """Note when what is put into a stream meanwhile begins and ends."""
        if self._timed is None:
            yield
            return
        begin, end = self._event(), self._event()
        self._driver.record(begin, stream)
        yield
        self._driver.record(end, stream)
        self._timed.append((stream, begin, end))

    # The device -----------------------------------------------------------------------------------

    def clear(self, address: int, count: int) -> None:
        """Make bytes on the device zero, before the kernels to come."""
        self._driver.memset_zero(address, count, self._kernels)

    def launch(
        self,
        kernel: Kernel,
        tiles: int,
        words: list[int],
        reads: Iterable[Bytes],
        writes: Iterable[Bytes],
    ) -> None:
        """Start a kernel behind the copies that bring what it reads, or take what it writes over."""
        reads, writes = tuple(reads), tuple(writes)
        self._join(self._up, (*reads, *writes))
        self._join(self._down, writes)
        self._launched += 1
        self._read.update(dict.fromkeys(reads, self._launched))
        self._written.update(dict.fromkeys(writes, self._launched))
        with self._time(self._kernels):
            self._driver.launch(kernel, tiles, words, self._kernels)

    def _join(self, way: _Way, places: tuple[Bytes, ...]) -> None:
        """Let the kernels to come wait for the copies that touch these places of the device."""
        for place, copy in way.copies.items():
            if place not in way.joined and _meet(copy.device, places):
                self._driver.stream_wait_event(self._kernels, copy.event)
                way.joined.add(place)

    def upload(self, device: Bytes, host: Bytes) -> None:
        """Copy to the device, behind what still uses either place."""
        way = self._up
        for copy in self._down.copies.values():
            if _meet(copy.host, (host,)) or _meet(copy.device, (device,)):
                self._driver.stream_wait_event(way.stream, copy.event)
        self._after_kernels(way, device, (self._read, self._written))
        with self._time(way.stream):
            way.staging.upload(device.first, host.first, host.end - host.first)
        self._note(way, host, device)

    def download(self, host: Bytes, device: Bytes) -> None:
        """Copy to the host, behind what makes it and what still uses the place there."""
        way = self._down
        for copy in self._up.copies.values():
            if _meet(copy.host, (host,)) or _meet(copy.device, (device,)):
                self._driver.stream_wait_event(way.stream, copy.event)
        self._after_kernels(way, device, (self._written,))
        with self._time(way.stream):
            way.staging.download(host.first, device.first, host.end - host.first)
        self._note(way, host, device)

    def fetch(self, target: int, device: Bytes) -> None:
        """Copy to memory of the host that is in no plan, and wait for it."""
        self._join(self._up, (device,))
        count = device.end - device.first
        place = self._fetched.of(count)
        self._driver.download(place, device.first, count, self._kernels)
        self._driver.synchronize(self._kernels)
        ctypes.memmove(target, place, count)

    def _after_kernels(self, way: _Way, device: Bytes, used: Iterable[dict[Bytes, int]]) -> None:
        """Let the copies to come wait for the kernels so far, if one of them used this memory."""
        last = max(
            [n for each in used for there, n in each.items() if _meet(there, (device,))], default=0
        )
        if last > way.seen:
            self._driver.record(self._mark, self._kernels)
            self._driver.stream_wait_event(way.stream, self._mark)
            way.seen = self._launched

    def _note(self, way: _Way, host: Bytes, device: Bytes) -> None:
        known = [(host, device)] if (host, device) in way.copies else []
        self._free += way.forget(known)
        event = self._event()
        self._driver.record(event, way.stream)
        way.copies[host, device] = _Copy(host, device, event)

    def _event(self) -> Handle:
        """An event that nobody waits for."""
        return self._free.pop() if self._free else self._driver.create_event()

    # The host -------------------------------------------------------------------------------------

    def settle(self, reads: Iterable[Bytes], writes: Iterable[Bytes]) -> None:
        """Wait until the host may read, and write, these places."""
        reads, writes = tuple(reads), tuple(writes)
        self._settle(self._down, (*reads, *writes))
        self._settle(self._up, writes)

    def _settle(self, way: _Way, places: tuple[Bytes, ...]) -> None:
        """Wait for the copies that touch these places, and so for all before them in their stream."""
        copies = list(way.copies.values())
        touching = [k for k, copy in enumerate(copies) if _meet(copy.host, places)]
        if touching:
            self._driver.synchronize_event(copies[touching[-1]].event)
            self._free += way.forget(list(way.copies)[: touching[-1] + 1])

    def wait_for_kernels(self) -> None:
        """Wait until the kernels so far are done."""
        self._driver.synchronize(self._kernels)

    def wait(self) -> None:
        """Wait until nothing is under way any more; also where that ends with a failure, nothing is."""
        try:
            for stream in (self._up.stream, self._kernels, self._down.stream):
                self._driver.synchronize(stream)
        finally:
            self._forget()

    def _forget(self) -> None:
        for way in (self._up, self._down):
            self._free += way.forget(list(way.copies))
            way.seen = 0
        self._launched = 0
        self._read.clear()
        self._written.clear()

    def close(self) -> None:
        """Give events and streams back, when nothing is under way."""
        for event in (*self._free, self._mark):
            self._driver.destroy_event(event)
        for stream in (self._up.stream, self._kernels, self._down.stream):
            self._driver.destroy_stream(stream)


def _meet(one: Bytes, others: Iterable[Bytes]) -> bool:
    """Whether a stretch has bytes in common with one of others."""
    return any(one.first < other.end and other.first < one.end for other in others)
