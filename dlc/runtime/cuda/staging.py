"""Copies between host and device, staged through pinned memory by double buffering.

Pinned memory of the host is copied directly. Pageable memory is copied in pieces through two pinned chunks:
while the device copies one, the CPU fills or empties the other.
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
_ALIGNMENT = 256
"""Bytes; the alignment of a piece in a chunk."""


class _Chunk:
    """A pinned buffer; the copies of its first `used` bytes are done when the event has happened."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.block = PinnedBytes(driver, CHUNK)
        self.event = driver.create_event()
        self.used = 0

    def __del__(self) -> None:
        if hasattr(self, "event"):
            self._driver.destroy_event(self.event)


class Staging:
    """Copies in one stream, for one thread at a time. They must be done before this object goes."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver = driver
        self._stream = stream
        self._chunks: deque[_Chunk] = deque()
        """The chunk in use is the first."""

    def upload(self, address: int, source: int, count: int) -> None:
        """Copy bytes to the device. Pinned memory is read when the stream gets there, other memory now."""
        if self._driver.is_pinned(source, count):
            self._driver.upload(address, source, count, self._stream)
            return
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            if not self._chunks or self._chunks[0].used + size > CHUNK:
                self._switch_chunk()
            chunk = self._chunks[0]
            piece = chunk.block.address + chunk.used
            ctypes.memmove(piece, source + first, size)
            self._driver.upload(address + first, piece, size, self._stream)
            self._note(chunk, size)

    def download(self, target: int, address: int, count: int) -> None:
        """Copy bytes to the host. Pinned memory is written when the stream gets there, other memory now."""
        if self._driver.is_pinned(target, count):
            self._driver.download(target, address, count, self._stream)
            return
        pending: deque[tuple[_Chunk, int, int]] = deque()
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            if len(pending) == CHUNKS:
                self._unload(*pending.popleft())
            self._switch_chunk()
            chunk = self._chunks[0]
            self._driver.download(chunk.block.address, address + first, size, self._stream)
            self._note(chunk, size)
            pending.append((chunk, target + first, size))
        for piece in pending:
            self._unload(*piece)

    def _switch_chunk(self) -> None:
        """Switch to the other chunk, once its copies are done."""
        if len(self._chunks) < CHUNKS:
            self._chunks.appendleft(_Chunk(self._driver))
            return
        self._chunks.rotate()
        chunk = self._chunks[0]
        if chunk.used:
            self._driver.synchronize_event(chunk.event)
            chunk.used = 0

    def _note(self, chunk: _Chunk, size: int) -> None:
        """Mark `size` more bytes of a chunk as used by a copy that was put into the stream."""
        chunk.used += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._driver.record(chunk.event, self._stream)

    def _unload(self, chunk: _Chunk, target: int, size: int) -> None:
        """Wait for a downloaded piece, and copy it to its target."""
        self._driver.synchronize_event(chunk.event)
        ctypes.memmove(target, chunk.block.address, size)


def upload(driver: Driver, address: int, source: int, count: int) -> None:
    """Copy bytes of the host to the device, and wait."""
    with _synchronous_staging(driver) as staging:
        staging.upload(address, source, count)


def download(driver: Driver, target: int, address: int, count: int) -> None:
    """Copy bytes of the device to the host, and wait."""
    with _synchronous_staging(driver) as staging:
        staging.download(target, address, count)


@contextmanager
def _synchronous_staging(driver: Driver) -> Generator[Staging]:
    """Copies that belong to no call, all done at the end."""
    with driver:
        try:
            yield Staging(driver, driver.shared_stream)
        finally:
            driver.synchronize(driver.shared_stream)
