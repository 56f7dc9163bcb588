"""Memory of the host that a GPU reads and writes by itself, while the processor does other things."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlc.errors import CallError, UsageError
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import aligned_array

Array = NDArray[np.generic]

LARGE = 1 << 20
"""Bytes from which an array travels alone; smaller ones are gathered to one block."""


class PinnedBytes:
    """A block of pinned memory. Whoever has it keeps it alive; then it is kept for the next of its size."""

    __slots__ = ("_driver", "address", "size")

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the system does not have so much."""
        self._driver = driver
        self.address = driver.pinned_pool.take(size)
        self.size = size

    def __del__(self) -> None:
        if hasattr(self, "size"):  # else it was never made
            self._driver.pinned_pool.give_back(self.size, self.address)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """What NumPy makes an array of; that keeps the block."""
        return {
            "data": (self.address, False),
            "shape": (self.size,),
            "typestr": "|u1",
            "version": 3,
        }

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """A C-contiguous array on it, of as many bytes."""
        return np.ndarray(shape, dtype, np.asarray(self))


class GrowablePinnedBytes:
    """Pinned memory that grows as it is needed."""

    __slots__ = ("_driver", "address", "size")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.address = self.size = 0

    def of(self, size: int) -> int:
        """The address of so many bytes; what was there before may be lost."""
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
    """An array of so many bytes for what comes from a GPU, of undefined contents.

    A large one is pinned, as long as there is room for it. Raises MemoryError.
    """
    if length >= LARGE and driver.pinned_pool.has_room(length):
        try:
            return PinnedBytes(driver, length).array(shape, dtype)
        except CallError:
            pass  # the system pins no more: usual memory does as well
    return aligned_array(shape, dtype, length)


def pinned(array: ArrayLike, device: str = "cuda") -> Array:
    """A copy of an array of the host in pinned memory, from which calls on a GPU take it without another.

    `device` is the GPU that it is for. Raises Unsupported (D0702) where there is none, UsageError for an
    array of objects, CallError (D0613) if the system does not have so much pinned memory.
    """
    driver = driver_of(device)
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise UsageError("an array of objects cannot be pinned: a GPU knows only numbers")
    found = PinnedBytes(driver, values.nbytes).array(values.shape, values.dtype)
    found[...] = values
    return found
