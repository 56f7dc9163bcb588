"""Pinned (page-locked) memory of the host, which a GPU copies from and to asynchronously."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlc.errors import CallError, UsageError
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import aligned_array

Array = NDArray[np.generic]

LARGE = 1 << 20
"""Bytes from which an array is copied separately; smaller ones are packed into one block."""


_NUMBERS = "biufcV"
"""NumPy's kinds of dtypes that are numbers; bf16 of ml_dtypes is a V."""


class PinnedBytes:
    """A block of pinned memory, alive as long as this object; then it returns to the pool of its driver."""

    __slots__ = ("_driver", "address", "size")

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the system cannot pin `size` bytes."""
        self._driver = driver
        self.address = driver.pinned_pool.take(size)
        self.size = size

    def __del__(self) -> None:
        if hasattr(self, "size"):  # else it was never made
            self._driver.pinned_pool.give_back(self.size, self.address)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """NumPy's array interface: arrays made from it keep the block alive."""
        return {
            "data": (self.address, False),
            "shape": (self.size,),
            "typestr": "|u1",
            "version": 3,
        }

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """A C-contiguous array on this memory, of the same number of bytes."""
        return np.ndarray(shape, dtype, np.asarray(self))


class GrowablePinnedBytes:
    """A block of pinned memory that grows on demand."""

    __slots__ = ("_driver", "address", "size")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.address = self.size = 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes; the old contents may be lost."""
        if size > self.size or not self.address:
            self._close()
            self.address = self._driver.pin(size)
            self.size = size
        return self.address

    def _close(self) -> None:
        if self.address:
            self._driver.unpin(self.address)
            self.address = self.size = 0

    def __del__(self) -> None:
        self._close()


def new_result(
    driver: Driver, shape: tuple[int, ...], dtype: np.dtype[np.generic], length: int
) -> Array:
    """An uninitialized array of `length` bytes for a result that is downloaded from a GPU.

    A large one is pinned, up to the limit of the pool. Raises MemoryError.
    """
    if length >= LARGE and driver.pinned_pool.has_room(length):
        try:
            return PinnedBytes(driver, length).array(shape, dtype)
        except CallError:
            pass  # the system cannot pin more: use pageable memory
    return aligned_array(shape, dtype, length)


def pinned(array: ArrayLike, device: str = "cuda") -> Array:
    """A copy of an array of the host in pinned memory, from which calls on a GPU take it without another.

    `device` is the GPU that it is for. Raises Unsupported (D0702) where there is none, UsageError for an
    array of anything but numbers, CallError (D0613) if the system cannot pin that much memory.
    """
    driver = driver_of(device)
    values = np.asarray(array)
    if values.dtype.hasobject or values.dtype.kind not in _NUMBERS:
        raise UsageError(f"an array of {values.dtype} cannot be pinned: a GPU knows only numbers")
    copy = PinnedBytes(driver, values.nbytes).array(values.shape, values.dtype)
    copy[...] = values
    return copy
