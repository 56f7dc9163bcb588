"""Accounting of the GPU memory that dlc has allocated."""

from __future__ import annotations

import threading
from typing import NamedTuple

from dlc.errors import CallError


class GpuMemory(NamedTuple):
    """Bytes of a GPU's memory that dlc has; that of other libraries does not count."""

    in_use: int
    """Weights, working memory, arrays, and free blocks that are kept for results."""
    peak: int
    """The most that was in use at a time."""
    limit: int | None
    """The most that may be in use; None without a limit."""


class MemoryUse:
    """The account of one GPU. Thread-safe, and reentrant for Python's garbage collector."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._in_use = self._peak = 0
        self._limit: int | None = None

    def take(self, size: int) -> None:
        """Enter a block that is going to be allocated. Raises CallError (D0613) beyond the limit."""
        with self._lock:
            if self._limit is not None and self._in_use + size > self._limit:
                raise CallError(
                    f"{size} bytes of the GPU's memory are asked for, {self._in_use} of {self._limit} "
                    "that are allowed are in use",
                    code="D0613",
                    help="use smaller sizes, close models, or raise the limit: "
                    "dlc.limit_gpu_memory(None) takes it away",
                )
            self._in_use += size
            self._peak = max(self._peak, self._in_use)

    def give_back(self, size: int) -> None:
        """Enter that a block was freed."""
        with self._lock:
            self._in_use -= size

    def limit(self, most: int | None) -> None:
        """Refuse later blocks beyond this number of bytes."""
        with self._lock:
            self._limit = most

    def shown(self) -> GpuMemory:
        """The figures as they are now."""
        with self._lock:
            return GpuMemory(self._in_use, self._peak, self._limit)
