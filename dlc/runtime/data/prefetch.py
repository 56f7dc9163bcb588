"""Prefetching: a thread computes the next items of an iterator while the caller uses the current one."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of the items, by exhaustion or by an error."""

    error: BaseException | None = None


def made_ahead(things: Iterator[T], ahead: int) -> Generator[T]:
    """The same items; a thread computes up to `ahead` of them in advance.

    The caller may use an item until it requests the next one, so at most `ahead + 1` items are in use at
    any time. Exceptions of the iterator are raised here. Closing the generator ends the thread. If the
    system cannot start a thread, items are computed on request.
    """
    slots = threading.Semaphore(ahead + 1)
    ready: SimpleQueue[_Made[T] | _Ended] = SimpleQueue()
    left = threading.Event()

    def work() -> None:
        error: BaseException | None = None
        try:
            slots.acquire()
            for thing in things:
                if left.is_set():
                    return
                ready.put(_Made(thing))
                slots.acquire()
                if left.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller's thread raises it
            error = raised
        finally:
            ready.put(_Ended(error))

    worker = threading.Thread(target=work, name="dlc-data", daemon=True)
    try:
        worker.start()
    except RuntimeError:  # the system has no thread for it
        yield from things
        return
    try:
        while isinstance(item := ready.get(), _Made):
            yield item.value
            slots.release()
        if item.error is not None:
            raise item.error
    finally:
        left.set()
        slots.release()
        worker.join()
