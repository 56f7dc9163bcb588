"""The code of an artifact on a GPU: its kernels, and the memory that all calls read."""

from __future__ import annotations

from typing import NamedTuple

from dlc.runtime.artifact import Artifact
from dlc.runtime.buffers import Bytes, address, as_bytes
from dlc.runtime.cuda.driver import Driver, Handle, NoGpu, open_driver
from dlc.runtime.manifest import GpuCode
from dlc.runtime.weights import Preparation, WeightStore


class GpuKernel(NamedTuple):
    """A kernel that was loaded, and the threads of its blocks."""

    function: Handle
    threads: int


class Gpu:
    """Kernels by their numbers, and where the constants are."""

    def __init__(self, artifact: Artifact, code: GpuCode) -> None:
        self.driver = open_driver()
        fits = code.cubin and _is_for(code.architecture, self.driver.capability)
        # The driver makes machine code of PTX, which ends with a zero, where there is none that fits.
        image = bytes(artifact.section(code.cubin if fits else code.ptx)) + b"\0"
        module = self.driver.load(image)
        self.kernels = [
            GpuKernel(self.driver.function(module, kernel.name), kernel.threads)
            for kernel in code.kernels
        ]
        self.constants = on_device(self.driver, artifact.section("constants"))


def misfit(code: GpuCode) -> str | None:
    """Why code for a GPU does not run here, or None if it does."""
    try:
        found = open_driver().capability
    except NoGpu as error:
        return f"needs {error}"
    wanted = _capability(code.architecture)
    if found < wanted or (code.architecture.endswith("a") and found != wanted):
        return f"needs a GPU of the kind {code.architecture}, this is sm_{found[0]}{found[1]}"
    return None


def _capability(architecture: str) -> tuple[int, int]:
    """The numbers in a name such as `sm_90a`."""
    digits = architecture.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])


def _is_for(architecture: str, found: tuple[int, int]) -> bool:
    """Whether machine code runs: within one generation, newer processors run what is for older ones."""
    wanted = _capability(architecture)
    return (
        found == wanted if architecture.endswith("a") else found[0] == wanted[0] and found >= wanted
    )


def on_device(driver: Driver, data: memoryview) -> int:
    """A copy of bytes on the device: its address."""
    place = driver.allocate(len(data))
    if len(data):
        driver.upload(place, address(as_bytes(data)), len(data))
    return place


class GpuWeights(WeightStore):
    """The weights on a device, where the first call brings them."""

    def __init__(
        self,
        driver: Driver,
        sources: Bytes,
        prepared: Bytes | None,
        preparation: Preparation | None,
    ) -> None:
        super().__init__(sources, prepared, preparation)
        self._driver = driver
        self._ready = prepared

    def _placed(self) -> tuple[int, int]:
        sources = on_device(self._driver, self.sources.data)
        if self.preparation is not None:
            made = self._driver.allocate(self.preparation.bytes)
            self.prepare(self.preparation, made, sources)
            return made, sources
        return (
            (on_device(self._driver, self._ready.data), sources)
            if self._ready is not None
            else (sources, sources)
        )
