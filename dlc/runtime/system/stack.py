"""Deep nesting: deep calls run in threads with stacks of their own, and JSON beyond a depth is refused.

Python counts nested calls to protect the C stack, which the system ends the process for if it is too small.
The limit of that count holds for all threads at once, so dlc never raises it: what nests deeper than usual
goes on in another thread, whose stack and count are new. A program may have raised the limit itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Final, TypeVar

import numpy as np

from dlc.errors import no_memory

__all__ = ["FEW_CALLS", "MAX_JSON_DEPTH", "check_json_depth", "is_deep", "with_room"]

T = TypeVar("T")

MANY_CALLS: Final = 300
"""Nested calls after which a thread has no room for what may nest: Python allows 1000, counting calls
through C as two or three."""

FEW_CALLS: Final = 150
"""The same for what nests up to 600 calls by itself."""

MAX_JSON_DEPTH: Final = 1_000
"""Levels of JSON that are read whatever Python's limit is: a level takes some 200 bytes of the C stack."""

_SAFE_LIMIT: Final = 10_000
"""Up to this limit of nested calls Python refuses deep JSON before the C stack ends."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS: Final = np.array(
    [(chr(byte) in "[{") - (chr(byte) in "]}") for byte in range(256)], np.int8
)


def is_deep(calls: int = MANY_CALLS) -> bool:
    """Whether more calls than these nest in this thread, so that what nests deep needs `with_room`."""
    try:
        sys._getframe(calls)  # pyright: ignore[reportPrivateUsage]  # half a microsecond
    except ValueError:
        return False
    return True


def with_room(run: Callable[[], T]) -> T:
    """What `run` gives or raises, called in a thread of its own while this one waits.

    Raises InternalError (D0998) where the system starts no thread.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(run())
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            errors.append(error)

    thread = Thread(target=copy_context().run, args=(work,), name="dlc deep call", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_memory() from error
    thread.join()
    if errors:
        raise errors.pop()
    return results.pop()


def check_json_depth(data: bytes) -> None:
    """Raises RecursionError for JSON in UTF-8 that would end the C stack of `json.loads`.

    Python does so itself unless the program has raised its limit of nested calls.
    """
    if sys.getrecursionlimit() <= _SAFE_LIMIT:
        return
    outside = np.frombuffer(_STRING.sub(b"", data), np.uint8)
    if outside.size and int(np.cumsum(_STEPS[outside], dtype=np.int32).max()) > MAX_JSON_DEPTH:
        raise RecursionError(f"JSON is nested more than {MAX_JSON_DEPTH} deep")
