"""The few functions of NVIDIA's driver that dlc uses, with its refusals as errors.

cuda-python is imported when the first model for a GPU is loaded, and not before. Addresses on the
device are numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, TypeAlias, cast

from dlc.errors import CallError

Handle: TypeAlias = object


class NoGpu(Exception):
    """There is no GPU to be used here; the message says what is missing."""


class Driver(Protocol):
    """One GPU."""

    capability: tuple[int, int]
    """What its processor can do, as NVIDIA counts: (8, 0) is `sm_80`."""

    def allocate(self, count: int) -> int:
        """So many bytes on the device, 256-byte aligned. Raises CallError (D0613) if there are not."""
        ...

    def free(self, address: int) -> None: ...

    def upload(self, address: int, source: int, count: int) -> None:
        """Copy bytes from the host to the device."""
        ...

    def download(self, target: int, address: int, count: int) -> None:
        """Copy bytes from the device to the host, after all that was launched."""
        ...

    def clear(self, address: int, count: int) -> None:
        """Make bytes on the device zero, in order with what is launched."""
        ...

    def load(self, image: bytes) -> Handle:
        """A module of PTX or machine code."""
        ...

    def function(self, module: Handle, name: str) -> Handle: ...

    def launch(self, function: Handle, tiles: int, threads: int, words: Sequence[int]) -> None:
        """Start a kernel with a block of threads for each tile, after what was launched before."""
        ...


@cache
def open_driver(device: int = 0) -> Driver:
    """The GPU of that number. Raises NoGpu."""
    return _CudaDriver(device)


class _Bindings(Protocol):
    """The part of `cuda.bindings.driver` that is used; each function gives a status first."""

    def __getattr__(self, name: str) -> _Function: ...


class _Function(Protocol):
    def __call__(self, *arguments: object) -> tuple[object, ...]: ...


class _CudaDriver:
    def __init__(self, device: int) -> None:
        try:
            self._cuda = cast(_Bindings, import_module("cuda.bindings.driver"))
        except ImportError:
            raise NoGpu("the package cuda-python, which is not installed") from None
        try:
            self._do("cuInit", 0)
            (count,) = self._do("cuDeviceGetCount")
        except (CallError, RuntimeError):  # the latter where there is no library of the driver
            raise NoGpu("an NVIDIA GPU with its driver, and there is none here") from None
        if not isinstance(count, int) or device >= count:
            raise NoGpu(f"GPU {device}, and there are {count} here")
        (self._device,) = self._do("cuDeviceGet", device)
        (self._context,) = self._do("cuDevicePrimaryCtxRetain", self._device)
        self.capability = self._attribute("MAJOR"), self._attribute("MINOR")

    def _attribute(self, name: str) -> int:
        attributes = self._cuda.CUdevice_attribute
        which = getattr(attributes, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{name}")
        (found,) = self._do("cuDeviceGetAttribute", which, self._device)
        assert isinstance(found, int)
        return found

    def _do(self, name: str, *arguments: object) -> tuple[object, ...]:
        """Call a function of the driver. Raises CallError (D0818) with its own words."""
        status, *results = getattr(self._cuda, name)(*arguments)
        if int(cast(int, status)):
            _, text = self._cuda.cuGetErrorString(status)
            said = text.decode() if isinstance(text, bytes) else str(status)
            code = "D0613" if "MEMORY" in str(status) else "D0818"
            raise CallError(f"the GPU's driver refuses {name}: {said}", code=code)
        return tuple(results)

    def _here(self, name: str, *arguments: object) -> tuple[object, ...]:
        """The same in this thread's context, which each thread has to be given."""
        self._do("cuCtxSetCurrent", self._context)
        return self._do(name, *arguments)

    def allocate(self, count: int) -> int:
        (found,) = self._here("cuMemAlloc", max(count, 1))
        return int(cast(int, found))

    def free(self, address: int) -> None:
        self._here("cuMemFree", address)

    def upload(self, address: int, source: int, count: int) -> None:
        if count:
            self._here("cuMemcpyHtoD", address, source, count)

    def download(self, target: int, address: int, count: int) -> None:
        if count:
            self._here("cuMemcpyDtoH", target, address, count)

    def clear(self, address: int, count: int) -> None:
        if count:
            self._here("cuMemsetD8", address, 0, count)

    def load(self, image: bytes) -> Handle:
        (module,) = self._here("cuModuleLoadData", image)
        return module

    def function(self, module: Handle, name: str) -> Handle:
        (found,) = self._here("cuModuleGetFunction", module, name.encode())
        return found

    def launch(self, function: Handle, tiles: int, threads: int, words: Sequence[int]) -> None:
        held = (ctypes.c_int64 * len(words))(*words)
        first = ctypes.addressof(held)
        places = (ctypes.c_void_p * len(words))(*[first + 8 * k for k in range(len(words))])
        grid, block = (tiles, 1, 1), (threads, 1, 1)
        arguments = ctypes.addressof(places)
        self._here("cuLaunchKernel", function, *grid, *block, 0, 0, arguments, 0)
