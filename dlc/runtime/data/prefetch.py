"""A thread that makes the next things while the caller is busy with this one."""

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
    """Nothing more comes, because of an error or because that was all."""

    error: BaseException | None = None


def made_ahead(things: Iterator[T], ahead: int) -> Generator[T]:
    """The same things, up to `ahead` of them made before they are asked for, in one thread.

    A thing is the caller's until the next one is asked for: no more than `ahead + 1` are in use at any
    time. What making them raises is raised here. Closing the generator ends the thread. Where the system
    has no thread, each is made when it is asked for.
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
