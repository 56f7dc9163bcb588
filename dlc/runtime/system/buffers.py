"""Memory for native code: blocks aligned to 64 bytes, and the addresses of arrays.

>>> block = aligned_bytes(100)
>>> block.size, address(block) % 64
(100, 0)
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""A flat block of memory."""

Scalar = TypeVar("Scalar", bound=np.generic)

ALIGNMENT = 64
"""A cache line, and the widest vector register."""

POPULATED = 1 << 20
"""Blocks of this many bytes and more get a mapping of their own."""

_ALL_WORDS = 1 << 59
"""More words than there is memory: an index into them is an address."""
_BLOCK = 64 * ALIGNMENT
"""Bytes of a block that is cut into the smallest arrays."""
_UINT8 = np.dtype(np.uint8)
# Looked up once, since every call of a model uses them.
_empty, _ndarray = np.empty, np.ndarray


def _slow_address(array: NDArray[np.generic]) -> int:
    return int(array.__array_interface__["data"][0])


def _address_reader() -> Callable[[NDArray[np.generic]], int]:
    """The function that reads the address of the first element of an array.

    NumPy's C API fixes that the header of an array object is followed by this pointer. Reading it there
    takes a fiftieth of the time of `__array_interface__`, which would be most of the time of a call of a
    tiny model, and a quarter of what it takes to make a ctypes object for the place. If a probe shows
    another layout, `__array_interface__` is used.
    """
    header = object.__basicsize__
    memory = (ctypes.c_int64 * _ALL_WORDS).from_address(0)

    def fast(array: NDArray[np.generic]) -> int:
        return memory[(id(array) + header) >> 3]

    probes = [np.empty(1), np.empty((2, 3), np.uint8)[1:, 1:]]
    agrees = all(fast(probe) == _slow_address(probe) for probe in probes)
    return fast if agrees else _slow_address


address: Callable[[NDArray[np.generic]], int] = _address_reader()
"""The address of the first element of an array. The array must outlive every use of the address."""


_ALL_BYTES = (ctypes.c_char * (8 * _ALL_WORDS)).from_address(0)
_MEMORY = memoryview(_ALL_BYTES).cast("B")


def bytes_at(address: int, length: int) -> bytes:
    """A copy of memory at an address; `ctypes.string_at` takes eight times as long for a few bytes."""
    return _ALL_BYTES[address : address + length]  # pyright: ignore[reportReturnType] - characters


def copy_bytes(target: int, source: int, length: int) -> None:
    """Copy a small piece of memory from one address to another.

    `ctypes.memmove` takes twice as long for it, but lets other threads run while it copies a large one.
    """
    _MEMORY[target : target + length] = _MEMORY[source : source + length]


def aligned_bytes(length: int) -> Bytes:
    """A new aligned block with undefined contents. Raises MemoryError."""
    return aligned_array((length,), _UINT8, length)


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Scalar], length: int) -> NDArray[Scalar]:
    """A new C-contiguous aligned array with undefined contents; `length` is its size in bytes.

    Arrays of up to `ALIGNMENT` bytes are pieces of a common block: finding its aligned addresses once
    takes a third of the time.
    """
    if length <= ALIGNMENT:
        try:
            block, offset = _pieces.pop()
        except IndexError:
            block, offset = _new_piece()
        return _ndarray(shape, dtype, block, offset)
    block = _empty(length + ALIGNMENT, _UINT8)
    return _ndarray(shape, dtype, block, -address(block) % ALIGNMENT)


_pieces: list[tuple[Bytes, int]] = []
"""Free pieces of `ALIGNMENT` bytes: block, and offset in it. Any thread takes one at a time."""


def _new_piece() -> tuple[Bytes, int]:
    """A piece of a new block, whose other pieces are free."""
    block = _empty(_BLOCK + ALIGNMENT, _UINT8)
    start = -address(block) % ALIGNMENT
    first, *others = [(block, start + offset) for offset in range(0, _BLOCK, ALIGNMENT)]
    _pieces.extend(others)
    return first


def aligned_copy(data: bytes | memoryview | Bytes) -> Bytes:
    """A new aligned block with the same contents."""
    view = memoryview(data).cast("B") if not isinstance(data, np.ndarray) else data
    block = aligned_bytes(len(view))
    block[:] = np.frombuffer(view, np.uint8)
    return block


def zeros(length: int, *, at_once: bool = True) -> Bytes:
    """A new aligned block of zeros that the caller will write completely.

    If possible its pages are populated at once (`MAP_POPULATE`), which avoids a fault for each. NumPy's
    use of huge pages instead took five times as long on a virtual machine that had not touched them
    before (290 ms for 100 MB). With `at_once=False` a page takes memory when it is written.
    """
    if length < POPULATED or not hasattr(mmap, "MAP_POPULATE"):
        return _zeros(length)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (mmap.MAP_POPULATE if at_once else 0)
    return np.frombuffer(mmap.mmap(-1, length, flags), np.uint8)


def _zeros(length: int) -> Bytes:
    block = aligned_bytes(length)
    block[:] = 0
    return block


def as_bytes(data: memoryview) -> Bytes:
    """The same memory as a flat array if it is aligned, else an aligned copy; read-only either way."""
    block = np.frombuffer(data, np.uint8)
    if address(block) % ALIGNMENT or not len(block):
        block = aligned_copy(data)
        block.flags.writeable = False
    return block
