"""Pinned memory of the host in blocks, kept for later: to make some takes milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

MOST_KEPT = 4
"""Blocks of one size that are kept."""
MOST = 1 << 30
"""Bytes of all blocks, in use or kept, up to which there are more of them: the system cannot page them."""


class PinnedPool:
    """The blocks of one GPU. Any thread may use it, and so may the collector of Python, at any moment."""

    def __init__(self, pin: Callable[[int], int], unpin: Callable[[int], None]) -> None:
        """`pin` makes a block of so many bytes and gives its address, `unpin` ends it."""
        self._pin = pin
        self._unpin = unpin
        # The collector may give a block back while its thread takes one: the same thread may enter again.
        self._lock = threading.RLock()
        self._kept: list[tuple[int, int]] = []
        """The size and the address of each block that nobody has, the oldest first."""
        self.bytes = 0
        """Those of all blocks."""

    def has_room(self, size: int) -> bool:
        """Whether a block of so many bytes is kept, or can be made within the limit."""
        with self._lock:
            kept = [other for other, _ in self._kept]
            return size in kept or self.bytes - sum(kept) + size <= MOST

    def take(self, size: int) -> int:
        """The address of a block of so many bytes. Raises CallError (D0613) if the system has no more."""
        with self._lock:
            for place, (other, address) in enumerate(self._kept):
                if other == size:
                    del self._kept[place]
                    return address
            while self._kept and self.bytes + size > MOST:
                self._end(*self._kept.pop(0))
            found = self._pin(size)
            self.bytes += size
            return found

    def give_back(self, size: int, address: int) -> None:
        """Keep a block for the next of its size, or end it where enough of them are kept."""
        with self._lock:
            if sum(other == size for other, _ in self._kept) < MOST_KEPT:
                self._kept.append((size, address))
            else:
                self._end(size, address)

    def _end(self, size: int, address: int) -> None:
        self.bytes -= size
        self._unpin(address)
