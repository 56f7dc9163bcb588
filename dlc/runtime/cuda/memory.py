"""Device memory, freed when its last owner goes."""

from __future__ import annotations

import threading
from typing import Self

from dlc.runtime.cuda import staging
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import Bytes, address

SMALL = 1 << 20
"""Bytes of a block up to which it is kept for reuse."""
MOST_KEPT = 8
"""The most free blocks of one size that are kept."""
_RELEASING = threading.Lock()


def release_retired(driver: Driver) -> None:
    """Drop what work of other libraries may have used, once the device is idle.

    Nothing while a stream is captured: waiting for the device would end the capture.
    """
    # Where another thread, or a finalizer within this one, is about it, the next call does the rest.
    if not driver.retired or driver.captures or not _RELEASING.acquire(blocking=False):
        return
    try:
        count = len(driver.retired)  # what is retired from now on may be in use
        driver.synchronize_all()
        for _ in range(count):
            driver.retired.popleft()
    finally:
        _RELEASING.release()


class DeviceBytes:
    """A block of memory on a device, alive as long as this object."""

    __slots__ = ("_driver", "address", "is_lent", "size")

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the device is out of memory, or its limit is reached."""
        self._driver = driver
        release_retired(driver)
        driver.memory_use.take(size)
        try:
            self.address = driver.allocate(size)
        except BaseException:
            driver.memory_use.give_back(size)
            raise
        self.size = size
        self.is_lent = False
        """Whether another library has its address, and may still work on it when it is freed."""

    @classmethod
    def _owning(cls, driver: Driver, address: int, size: int) -> Self:
        """The owner of a block that was allocated before."""
        block = cls.__new__(cls)
        block._driver, block.address, block.size, block.is_lent = driver, address, size, False
        return block

    @classmethod
    def of(cls, driver: Driver, data: Bytes) -> DeviceBytes:
        """A copy of bytes of the host."""
        block = cls(driver, data.nbytes)
        staging.upload(driver, block.address, address(data), data.nbytes)
        return block

    def __del__(self) -> None:
        if not hasattr(self, "address"):
            return  # it was never allocated
        driver = self._driver
        if self.is_lent:
            driver.retired.append(DeviceBytes._owning(driver, self.address, self.size))
            return
        driver.free(self.address)
        driver.memory_use.give_back(self.size)


class SpareBytes(DeviceBytes):
    """A block for results; small ones are reused by later calls, at the same address."""

    __slots__ = ()

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the device is out of memory."""
        try:  # another thread may take the last one
            address = driver.free_blocks[size].pop()
        except (KeyError, IndexError):
            super().__init__(driver, size)
            return
        self._driver, self.address, self.size, self.is_lent = driver, address, size, False

    def __del__(self) -> None:
        kept = (
            self._driver.free_blocks.setdefault(self.size, []) if hasattr(self, "address") else None
        )
        if kept is None or self.is_lent or self.size > SMALL or len(kept) >= MOST_KEPT:
            super().__del__()
        else:
            kept.append(self.address)


class GrowableDeviceBytes:
    """A block of device memory that grows on demand."""

    __slots__ = ("_block", "_driver")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._block: DeviceBytes | None = None

    @property
    def size(self) -> int:
        return 0 if self._block is None else self._block.size

    @property
    def address(self) -> int:
        """Where it is; 0 if nothing was asked for yet."""
        return 0 if self._block is None else self._block.address

    def of(self, size: int) -> int:
        """The address of at least `size` bytes; the old contents may be lost."""
        if self._block is None or size > self._block.size:
            self._block = None  # free the old block before allocating the new one
            self._block = DeviceBytes(self._driver, size)
        return self._block.address
