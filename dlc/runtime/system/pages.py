"""Anonymous memory from the operating system: page-aligned, zeroed, with access protection."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

_MADV_WIPEONFORK = 18

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_madvise = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Pages:
    """`size` bytes of private memory at `address`, readable and writable until `make_executable`.

    The pages are released when the object is destroyed, unless `keep` was called. Raises `MemoryError`.
    """

    __slots__ = ("__weakref__", "_release", "address", "size")

    address: int
    size: int

    def __init__(self, size: int) -> None:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        address: int | None = _mmap(None, size, protection, flags, -1, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise MemoryError(f"the system has no {size} bytes: {_last_error()}")
        self.address = address
        self.size = size
        self._release = weakref.finalize(self, _munmap, address, size)
        # At the end of the process a daemon thread may still execute code in these pages.
        self._release.atexit = False

    def keep(self) -> None:
        """Never release the pages: daemon threads use them until the process ends."""
        self._release.detach()

    def view(self) -> memoryview:
        """The bytes; valid during the lifetime of this object."""
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.address)).cast("B")

    def make_executable(self) -> None:
        """Make the pages executable and read-only. Raises `PermissionError`."""
        if _mprotect(self.address, self.size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            raise PermissionError(f"memory cannot be made executable: {_last_error()}")

    def wipe_on_fork(self) -> bool:
        """Let a forked child find zeros in the pages; False if this system cannot do that."""
        return _madvise(self.address, self.size, _MADV_WIPEONFORK) == 0


def _last_error() -> str:
    return os.strerror(ctypes.get_errno())
