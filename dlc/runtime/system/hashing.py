"""SHA-256 of byte ranges, in chunks of 4 MiB or whole, several at a time: hashing leaves the GIL."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

CHUNK = 4 << 20
_WORTH_THREADS = 2 * CHUNK
_MAX_THREADS = 8


def chunk_count(length: int) -> int:
    """Chunks that a section of so many bytes has; none if it is empty."""
    return -(-length // CHUNK)


def digests(views: Sequence[memoryview]) -> list[tuple[str, ...]]:
    """For each range of bytes the SHA-256 of its chunks, in lower-case hexadecimal."""
    chunks = [view[at : at + CHUNK] for view in views for at in range(0, len(view), CHUNK)]
    found = _hash_all(chunks, sum(map(len, chunks)) >= _WORTH_THREADS)
    ends: list[tuple[str, ...]] = []
    position = 0
    for view in views:
        count = chunk_count(len(view))
        ends.append(tuple(found[position : position + count]))
        position += count
    return ends


def whole_digests(views: Sequence[memoryview]) -> list[str]:
    """For each range of bytes its SHA-256 as a whole, in lower-case hexadecimal."""
    return _hash_all(views, sum(map(len, views)) >= _WORTH_THREADS)


def _hash_all(chunks: Sequence[memoryview], in_parallel: bool) -> list[str]:
    found = [""] * len(chunks)
    # A list's iterator is safe to share: `next` on it holds the interpreter lock.
    todo = iter(list(enumerate(chunks)))

    def work() -> None:
        for index, chunk in todo:
            found[index] = hashlib.sha256(chunk).hexdigest()

    threads = _started(work, _helpers() if in_parallel else 0)
    work()
    for thread in threads:
        thread.join()
    return found


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """So many threads at work, or as many as the system has."""
    threads: list[threading.Thread] = []
    with suppress(RuntimeError):
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            threads.append(thread)
    return threads


def _helpers() -> int:
    return min(_MAX_THREADS, len(os.sched_getaffinity(0))) - 1
