"""The code of an artifact on a GPU: its kernels, and the memory that all calls read."""

from __future__ import annotations

import time

from dlc.errors import Unsupported
from dlc.runtime.artifact import Artifact
from dlc.runtime.buffers import Bytes, as_bytes
from dlc.runtime.cuda.driver import Driver, Kernel, NoGpu
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.cuda.nvidia import open_driver
from dlc.runtime.manifest import GpuCode
from dlc.runtime.weights import Preparation, WeightStore


class Gpu:
    """Kernels by their numbers, and where the constants are."""

    def __init__(self, artifact: Artifact, code: GpuCode) -> None:
        self.driver = open_driver()
        fits = code.cubin and _is_for(code.architecture, self.driver.capability)
        # The driver makes machine code of PTX, which ends with a zero, where there is none that fits.
        image = bytes(artifact.section(code.cubin if fits else code.ptx)) + b"\0"
        self._module = self.driver.load(image)
        self.kernels = [
            Kernel(self.driver.function(self._module, kernel.name), kernel.threads)
            for kernel in code.kernels
        ]
        self._constants = DeviceBytes.of(self.driver, as_bytes(artifact.section("constants")))
        self.constants = self._constants.address

    def __del__(self) -> None:
        if hasattr(self, "_module"):
            self.driver.unload(self._module)


def driver_of(device: str) -> Driver:
    """The GPU of a name: `cuda`, or `cuda:0`. Raises Unsupported (D0702) if there is none."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise Unsupported(
            f"there is no device {device!r}",
            code="D0702",
            help="there are cpu, and cuda:0 and so on",
        )
    try:
        return open_driver(int(number or 0))
    except NoGpu as error:
        raise Unsupported(f"{device} needs {error}", code="D0702") from None


def lacking(architecture: str) -> str | None:
    """Why code for GPUs such as `sm_80` does not run here, or None if it does."""
    try:
        found = open_driver().capability
    except NoGpu as error:
        return f"needs {error}"
    wanted = _capability(architecture)
    if found < wanted or (architecture.endswith("a") and found != wanted):
        return f"needs a GPU of the kind {architecture}, this is sm_{found[0]}{found[1]}"
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
        self._blocks: list[DeviceBytes] = []

    def _placed(self) -> tuple[int, int]:
        began = time.perf_counter()
        blocks = [DeviceBytes.of(self._driver, self.sources)]
        if self._ready is not None:
            blocks.append(DeviceBytes.of(self._driver, self._ready))
        self.upload_ms = (time.perf_counter() - began) * 1e3
        if self.preparation is not None:
            blocks.append(DeviceBytes(self._driver, self.preparation.bytes))
            self.prepare(self.preparation, blocks[1].address, blocks[0].address)
        self._blocks = blocks
        return blocks[-1].address, blocks[0].address
