"""Makes the N-th request to the system fail: to open, read, write, sync, rename, map, start, allocate.

    with failing(at=3) as faults:
        ...  # the third request inside raises what the system would

As `faults.made` says what was asked for, an operation can be repeated with every N until nothing fails.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import mmap
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import TypeVar

import numpy as np
import pytest

from dlc.runtime.system import buffers, pages

R = TypeVar("R")


def _error(number: int) -> Callable[[], Exception]:
    return lambda: OSError(number, os.strerror(number))


ERRORS: dict[str, Callable[[], Exception]] = {
    "open": _error(errno.EMFILE),
    "read": _error(errno.EIO),
    "write": _error(errno.ENOSPC),
    "fsync": _error(errno.EIO),
    "rename": _error(errno.EIO),
    "folder": _error(errno.EACCES),
    "mmap": _error(errno.ENOMEM),
    "protect": _error(errno.ENOMEM),
    "thread": lambda: RuntimeError("can't start new thread"),  # what Python raises
    "memory": MemoryError,
}
"""What each kind of request fails with."""

ALLOCATIONS = (
    *("empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"),
    *("array", "ascontiguousarray", "concatenate", "stack", "copy"),
)
"""The functions of NumPy that ask for memory."""


@dataclass(slots=True)
class Faults:
    """The requests so far, and which one fails; with `onwards` all after it do, too."""

    at: int | None
    onwards: bool = False
    made: Counter[str] = field(default_factory=Counter[str])
    failed: str | None = None
    """The kind of the request that failed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, kind: str) -> None:
        """Another request, which may fail."""
        with self._lock:
            self.made[kind] += 1
            number = self.made.total()
            if self.at is None or number < self.at or (number > self.at and not self.onwards):
                return
            self.failed = self.failed or kind
        error = ERRORS[kind]()
        raise error

    def asking(self, kind: str, function: Callable[..., R]) -> Callable[..., R]:
        """A function of the system that may fail before it begins."""

        @wraps(function)
        def asked(*args: object, **named: object) -> R:
            self.ask(kind)
            return function(*args, **named)

        return asked

    def pages(self, *args: object) -> int | None:
        """`mmap` of the C library, which tells of a failure by what it gives."""
        try:
            self.ask("mmap")
        except OSError:
            ctypes.set_errno(errno.ENOMEM)
            return ctypes.c_void_p(-1).value
        return _map_pages(*args)

    def protect(self, *args: object) -> int:
        """`mprotect` of the C library, by which memory becomes executable."""
        try:
            self.ask("protect")
        except OSError:
            ctypes.set_errno(errno.ENOMEM)
            return -1
        return _protect_pages(*args)


_protect_pages: Callable[..., int] = pages._mprotect  # pyright: ignore[reportPrivateUsage]
_map_pages: Callable[..., int | None] = pages._mmap  # pyright: ignore[reportPrivateUsage]


@contextmanager
def failing(at: int | None = None, *, onwards: bool = False) -> Generator[Faults]:
    """Counts what is asked of the system inside; request number `at`, from 1 on, fails."""
    faults = Faults(at, onwards)
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in (
            ("open", "open"),
            ("read", "read"),
            ("write", "write"),
            ("fsync", "fsync"),
            ("rename", "replace"),
            ("rename", "rename"),
            ("folder", "mkdir"),
            ("folder", "scandir"),
        ):
            patch.setattr(os, name, faults.asking(kind, getattr(os, name)))
        # Files as Python wrote them once in Python: they open, read and write by the functions above.
        in_python = vars(import_module("_pyio"))["open"]
        patch.setattr(builtins, "open", in_python)
        patch.setattr(io, "open", in_python)
        patch.setattr(mmap, "mmap", faults.asking("mmap", mmap.mmap))
        patch.setattr(pages, "_mmap", faults.pages)
        patch.setattr(pages, "_mprotect", faults.protect)
        patch.setattr(threading.Thread, "start", faults.asking("thread", threading.Thread.start))
        for name in ALLOCATIONS:
            patch.setattr(np, name, faults.asking("memory", getattr(np, name)))
        patch.setattr(buffers, "_empty", np.empty)
        yield faults
