"""Copies between the memory of a device and that of the host, all of them by pinned memory.

Where memory of the host is pinned, the device copies from it and to it by itself. Other memory is copied
piece by piece to one of two pinned chunks, or from it: while one chunk travels, the processor fills or
empties the other.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.pinned import PinnedBytes

CHUNK = 2 << 20
"""Bytes of a chunk, and of the largest piece."""
CHUNKS = 2
_ALIGNED = 256
"""What a piece in a chunk begins at a multiple of."""


class _Chunk:
    """Pinned memory, of which so many bytes are of copies that are done when the event is past."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.block = PinnedBytes(driver, CHUNK)
        self.event = driver.create_event()
        self.used = 0

    def __del__(self) -> None:
        if hasattr(self, "event"):
            self._driver.destroy_event(self.event)


class Staging:
    """Copies in one stream, for one thread at a time. Whoever drops it has waited for them."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver = driver
        self._stream = stream
        self._chunks: deque[_Chunk] = deque()
        """The one in use first."""

    def upload(self, address: int, source: int, count: int) -> None:
        """Copy bytes to the device: pinned ones when the stream comes there, others have been read."""
        if self._driver.is_pinned(source, count):
            self._driver.upload(address, source, count, self._stream)
            return
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            if not self._chunks or self._chunks[0].used + size > CHUNK:
                self._turn()
            chunk = self._chunks[0]
            place = chunk.block.address + chunk.used
            ctypes.memmove(place, source + first, size)
            self._driver.upload(address + first, place, size, self._stream)
            self._note(chunk, size)

    def download(self, target: int, address: int, count: int) -> None:
        """Copy bytes to the host: to pinned memory when the stream comes there, to other they are there."""
        if self._driver.is_pinned(target, count):
            self._driver.download(target, address, count, self._stream)
            return
        coming: deque[tuple[_Chunk, int, int]] = deque()
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            if len(coming) == CHUNKS:
                self._take(*coming.popleft())
            self._turn()
            chunk = self._chunks[0]
            self._driver.download(chunk.block.address, address + first, size, self._stream)
            self._note(chunk, size)
            coming.append((chunk, target + first, size))
        for each in coming:
            self._take(*each)

    def _turn(self) -> None:
        """Go on with the other chunk, once the copies from it and to it are done."""
        if len(self._chunks) < CHUNKS:
            self._chunks.appendleft(_Chunk(self._driver))
            return
        self._chunks.rotate()
        chunk = self._chunks[0]
        if chunk.used:
            self._driver.synchronize_event(chunk.event)
            chunk.used = 0

    def _note(self, chunk: _Chunk, size: int) -> None:
        """So many bytes more of a chunk belong to a copy that was put into the stream."""
        chunk.used += -(-size // _ALIGNED) * _ALIGNED
        self._driver.record(chunk.event, self._stream)

    def _take(self, chunk: _Chunk, target: int, size: int) -> None:
        """Copy what has come to where it goes."""
        self._driver.synchronize_event(chunk.event)
        ctypes.memmove(target, chunk.block.address, size)


def upload(driver: Driver, address: int, source: int, count: int) -> None:
    """Copy bytes of the host to the device, and wait for that."""
    with _alone(driver) as staging:
        staging.upload(address, source, count)


def download(driver: Driver, target: int, address: int, count: int) -> None:
    """Copy bytes of the device to the host, and wait for that."""
    with _alone(driver) as staging:
        staging.download(target, address, count)


@contextmanager
def _alone(driver: Driver) -> Generator[Staging]:
    """Copies that belong to no call, all done in the end."""
    with driver:
        try:
            yield Staging(driver, driver.shared_stream)
        finally:
            driver.synchronize(driver.shared_stream)
