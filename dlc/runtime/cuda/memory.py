"""Memory on a device, given back when nobody has it."""

from __future__ import annotations

from dlc.runtime.cuda import staging
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import Bytes, address

SMALL = 1 << 20
"""Bytes of results up to which their memory is kept for others."""
MOST_KEPT = 8
"""Blocks of one size that are kept."""


class DeviceBytes:
    """A block of memory on a device. Whoever has it keeps it alive."""

    __slots__ = ("_driver", "address", "is_lent", "size")

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the device does not have so much."""
        self._driver = driver
        self.address = driver.allocate(size)
        self.size = size
        self.is_lent = False
        """Whether other libraries have been told where it is: their work may not be done."""

    @classmethod
    def of(cls, driver: Driver, data: Bytes) -> DeviceBytes:
        """A copy of bytes of the host."""
        block = cls(driver, data.nbytes)
        staging.upload(driver, block.address, address(data), data.nbytes)
        return block

    def __del__(self) -> None:
        if not hasattr(self, "address"):
            return  # it was never allocated
        if self.is_lent:
            self._driver.synchronize_all()
        self._driver.free(self.address)


class SpareBytes(DeviceBytes):
    """A block for results: small ones are kept for later calls, which find them at the same addresses."""

    __slots__ = ()

    def __init__(self, driver: Driver, size: int) -> None:
        """Raises CallError (D0613) if the device does not have so much."""
        try:  # of two threads one has the last
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
    """Memory on a device that grows as it is needed."""

    __slots__ = ("_block", "_driver")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._block: DeviceBytes | None = None

    @property
    def size(self) -> int:
        return 0 if self._block is None else self._block.size

    def of(self, size: int) -> int:
        """The address of so many bytes; what was there before may be lost."""
        if self._block is None or size > self._block.size:
            self._block = None  # the old one goes before the new one comes
            self._block = DeviceBytes(self._driver, size)
        return self._block.address
