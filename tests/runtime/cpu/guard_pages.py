"""Memory between pages that nobody may touch: what reads or writes outside an array ends the process.

>>> array = guarded_copy(np.arange(3), after=True)
>>> int(array.sum())
3
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast
from weakref import finalize

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.runtime.system import buffers

Array = NDArray[np.generic]

PAGE = mmap.PAGESIZE
POISON = 0xFF
"""What memory holds before it is written: NaN as floats, -1 as integers."""
_NONE, _READ_WRITE = 0, 3
_PRIVATE = 0x22  # and of no file

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(length: int, *, after: bool, reach: int = 0) -> Array:
    """A block of bytes, poisoned, with a page behind its end or in front of it that nobody may touch.

    The array says that it has `reach` bytes more, which lie in the guard page or beyond.
    """
    pages = -(-length // PAGE) * PAGE
    whole = pages + 2 * PAGE + -(-reach // PAGE) * PAGE
    start = cast("int", _libc.mmap(None, whole, _NONE, _PRIVATE, -1, 0))
    if pages and _libc.mprotect(start + PAGE, pages, _READ_WRITE):
        raise OSError(ctypes.get_errno(), "mprotect")
    if pages:
        ctypes.memset(start + PAGE, POISON, pages)
    first = start + PAGE + (pages - length if after else 0)
    memory = (ctypes.c_uint8 * (length + reach)).from_address(first)
    block = np.ndarray(length + reach, np.uint8, memoryview(memory))
    finalize(memory, _libc.munmap, start, whole)
    return block


def guarded_like(array: Array, *, after: bool) -> Array:
    """An array of the same dtype and shape, poisoned; its end is the end of a page, or its start.

    An empty one lies in a page that nobody may touch.
    """
    if not array.nbytes:
        nothing = guarded(0, after=after, reach=array.itemsize)
        return np.ndarray(array.shape, array.dtype, nothing.data)
    block = guarded(array.nbytes, after=after)
    return block.view(array.dtype).reshape(array.shape)


def guarded_copy(array: Array, *, after: bool) -> Array:
    """A copy whose end is the end of a page, or whose start is the start of one."""
    copy = guarded_like(array, after=after)
    copy[...] = array
    return copy


@contextmanager
def guarding(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> Generator[None]:
    """Blocks for native code are guarded meanwhile: arenas, results, prepared and other weights.

    They begin at multiples of 64, so up to 63 bytes behind an end are not guarded.
    """

    def empty(length: int, dtype: np.dtype[np.uint8]) -> Array:
        assert dtype == np.uint8
        aligned = -(-(length - buffers.ALIGNMENT) // buffers.ALIGNMENT) * buffers.ALIGNMENT
        return guarded(aligned, after=after, reach=buffers.ALIGNMENT)

    with monkeypatch.context() as patched:
        patched.setattr(buffers, "_empty", empty)
        patched.setattr(buffers, "_BLOCK", buffers.ALIGNMENT)
        patched.setattr(buffers, "_pieces", [])
        yield
