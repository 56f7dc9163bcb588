"""The code of an artifact on a GPU: its kernels, and the memory that all calls read."""

from __future__ import annotations

import time
from contextlib import suppress

from dlc.errors import CallError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import GpuCode
from dlc.runtime.cuda.devices import capability_of
from dlc.runtime.cuda.driver import Driver, Handle, Kernel
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.ranks.on_gpus import Collectives
from dlc.runtime.system.buffers import Bytes, as_bytes
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore


class Gpu:
    """A loaded module: its kernels by index, and the address of the constants."""

    def __init__(
        self,
        artifact: Artifact,
        code: GpuCode,
        driver: Driver,
        ranks: Collectives | None = None,
    ) -> None:
        """`ranks` are the collectives of a rank of a mesh."""
        self.driver, self.ranks = driver, ranks
        first = len(code.kernels)
        self.collectives = {first + k: each for k, each in enumerate(code.collectives)}
        """What ranks do together, by the numbers of kernels that stand for it."""
        self._module = self._loaded(artifact, code)
        self.kernels = [
            Kernel(
                self.driver.get_function(self._module, kernel.name, kernel.shared),
                kernel.threads,
                kernel.shared,
                kernel.narrow,
            )
            for kernel in code.kernels
        ]
        self._constants = DeviceBytes.of(self.driver, as_bytes(artifact.section("constants")))
        self.constants = self._constants.address

    def _loaded(self, artifact: Artifact, code: GpuCode) -> Handle:
        """The module of the machine code if it is for this GPU, else of the PTX. Raises CallError (D0818).

        A driver also refuses machine code of a `ptxas` that is newer than it is.
        """
        if code.cubin and _is_for(code.architecture, self.driver.capability):
            with suppress(CallError):
                return self.driver.load_module(bytes(artifact.section(code.cubin)))
        # The driver compiles it, up to a zero byte.
        return self.driver.load_module(bytes(artifact.section(code.ptx)) + b"\0")

    def __del__(self) -> None:
        if hasattr(self, "_module"):
            self.driver.unload_module(self._module)


def _is_for(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether a cubin runs: it is compatible with newer GPUs of the same major compute capability."""
    required = capability_of(architecture)
    if architecture.endswith("a"):
        return capability == required
    return capability[0] == required[0] and capability >= required


class GpuWeights(WeightStore):
    """The weights on a device; the first call uploads them."""

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

    def _placed(self) -> WeightRoots:
        began = time.perf_counter()
        blocks = [DeviceBytes.of(self._driver, self.sources)]
        if self._ready is not None:
            blocks.append(DeviceBytes.of(self._driver, self._ready))
        self.upload_ms = (time.perf_counter() - began) * 1e3
        if self.preparation is not None:
            blocks.append(DeviceBytes(self._driver, self.preparation.bytes))
        roots = WeightRoots(blocks[-1].address, blocks[0].address, blocks)
        if self.preparation is not None:
            self.prepare(self.preparation, roots)
        return roots
