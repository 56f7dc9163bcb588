"""A pool of pinned memory: free blocks are kept for reuse, since pinning takes milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

MOST_KEPT = 4
"""The most free blocks of one size that are kept."""
MOST = 1 << 30
"""Bytes of all blocks, in use or free, beyond which results are not pinned: the system cannot page them."""


class PinnedPool:
    """The blocks of one GPU. Thread-safe, and reentrant for Python's garbage collector."""

    def __init__(self, pin: Callable[[int], int], unpin: Callable[[int], None]) -> None:
        """`pin` allocates a block and returns its address, `unpin` frees it."""
        self._pin = pin
        self._unpin = unpin
        # The collector may give a block back while its own thread takes one, so the lock is reentrant.
        self._lock = threading.RLock()
        self._free: list[tuple[int, int]] = []
        """Size and address of each free block, the oldest first."""
        self.bytes = 0
        """The sum of all blocks, in use or free."""

    def has_room(self, size: int) -> bool:
        """Whether a block of this size is free, or can be allocated within the limit."""
        with self._lock:
            free = [other for other, _ in self._free]
            return size in free or self.bytes - sum(free) + size <= MOST

    def take(self, size: int) -> int:
        """The address of a block of this size. Raises CallError (D0613) if the system cannot pin it."""
        with self._lock:
            for index, (other, address) in enumerate(self._free):
                if other == size:
                    del self._free[index]
                    return address
            while self._free and self.bytes + size > MOST:
                self._release(*self._free.pop(0))
            address = self._pin(size)
            self.bytes += size
            return address

    def give_back(self, size: int, address: int) -> None:
        """Keep a block for reuse, or free it if enough of its size are kept."""
        with self._lock:
            if sum(other == size for other, _ in self._free) < MOST_KEPT:
                self._free.append((size, address))
            else:
                self._release(size, address)

    def _release(self, size: int, address: int) -> None:
        self.bytes -= size
        self._unpin(address)
