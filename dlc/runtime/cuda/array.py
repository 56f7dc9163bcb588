"""Dense arrays on a device, of a NumPy dtype, in memory of this or another library."""

from __future__ import annotations

from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.cuda import staging
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.memory import DeviceBytes, SpareBytes
from dlc.runtime.system.buffers import address

Array = NDArray[np.generic]

ALIGNED = 16
"""Bytes; the alignment of an array, as wide as the widest load of a kernel."""


class DeviceArray:
    """A C-contiguous array on a device; `owner` keeps its memory alive."""

    __slots__ = ("address", "driver", "dtype", "owner", "shape")

    def __init__(
        self,
        driver: Driver,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        owner: object,
    ) -> None:
        self.driver = driver
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.owner = owner

    @classmethod
    def new(cls, driver: Driver, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Self:
        """An uninitialized array for a result. Raises CallError (D0613) when out of memory."""
        block = SpareBytes(driver, prod(shape) * dtype.itemsize)
        return cls(driver, block.address, shape, dtype, block)

    @classmethod
    def copied(cls, driver: Driver, array: Array) -> Self:
        """A copy of an array of the host. Raises CallError (D0613) when out of memory."""
        dense = np.ascontiguousarray(array)
        block = DeviceBytes.of(driver, dense.reshape(-1).view(np.uint8))
        return cls(driver, block.address, array.shape, array.dtype, block)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        """The device's name, such as `cuda:0`."""
        return f"cuda:{self.driver.number}"

    def download(self) -> Array:
        """A copy on the host."""
        copy = np.empty(self.shape, self.dtype)
        staging.download(self.driver, address(copy), self.address, self.nbytes)
        return copy

    def copy(self) -> Self:
        """The same elements in memory of their own. Raises CallError (D0613) when out of memory."""
        made = self.new(self.driver, self.shape, self.dtype)
        with self.driver as driver:
            driver.copy(made.address, self.address, self.nbytes, driver.shared_stream)
            driver.synchronize(driver.shared_stream)
        return made

    def upload(self, array: Array) -> None:
        """Overwrite its elements with those of an array of the host."""
        dense = np.ascontiguousarray(array)
        staging.upload(self.driver, self.address, address(dense), self.nbytes)

    def part(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Self:
        """A view of the same memory that begins `offset` bytes later."""
        return type(self)(self.driver, self.address + offset, shape, dtype, self.owner)

    def reshape(self, shape: tuple[int, ...]) -> Self:
        """The same elements in another shape; one size may be -1."""
        # NumPy resolves the -1; a stride of 0 makes an array of any size from one byte.
        resolved = np.broadcast_to(np.empty((), np.bool_), (self.size,)).reshape(shape).shape
        return self.part(0, resolved, self.dtype)
