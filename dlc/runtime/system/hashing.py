"""SHA-256 of byte ranges, in chunks of 4 MiB or as a whole, by several threads."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

CHUNK = 4 << 20
_WORTH_THREADS = 2 * CHUNK
_MAX_THREADS = 8


def chunk_count(length: int) -> int:
    """The number of chunks of a section of `length` bytes."""
    return -(-length // CHUNK)


def digests(views: Sequence[memoryview]) -> list[tuple[str, ...]]:
    """For each range of bytes the SHA-256 of its chunks, in lower-case hexadecimal."""
    chunks = [view[at : at + CHUNK] for view in views for at in range(0, len(view), CHUNK)]
    hashes = iter(_hash_all(chunks, sum(map(len, chunks)) >= _WORTH_THREADS))
    return [tuple(islice(hashes, chunk_count(len(view)))) for view in views]


def whole_digests(views: Sequence[memoryview]) -> list[str]:
    """For each range of bytes its SHA-256 as a whole, in lower-case hexadecimal."""
    return _hash_all(views, sum(map(len, views)) >= _WORTH_THREADS)


def _hash_all(chunks: Sequence[memoryview], in_parallel: bool) -> list[str]:
    hashes = [""] * len(chunks)
    # The threads share the iterator of a list, which is safe: `next` on it holds the interpreter lock.
    pending = iter(list(enumerate(chunks)))

    def work() -> None:
        for index, chunk in pending:
            hashes[index] = hashlib.sha256(chunk).hexdigest()

    threads = _started(work, _helpers() if in_parallel else 0)
    work()
    for thread in threads:
        thread.join()
    return hashes


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """Start `count` threads, or fewer if the system has no more."""
    threads: list[threading.Thread] = []
    with suppress(RuntimeError):
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            threads.append(thread)
    return threads


def _helpers() -> int:
    return min(_MAX_THREADS, len(os.sched_getaffinity(0))) - 1
