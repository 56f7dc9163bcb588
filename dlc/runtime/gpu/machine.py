"""A GPU as the machine that a model runs on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.calling.shared_entry import EntryPointKinds
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.pinned import LARGE, new_result
from dlc.runtime.gpu.code import Gpu, GpuWeights
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.runtime.gpu.frame import GpuFrame
from dlc.runtime.gpu.shared import GpuRankEntryPoint, GpuSharedEntryPoint
from dlc.runtime.system.buffers import Bytes
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore


class GpuMachine(Gpu):
    """Implements `dlc.runtime.machines.Machine`."""

    entry_points = EntryPointKinds(GpuEntryPoint, GpuRankEntryPoint, GpuSharedEntryPoint)

    @property
    def device(self) -> str:
        return f"cuda:{self.driver.number}"

    @property
    def gpu_alone(self) -> Driver:
        return self.driver

    def threads(self, allowed: int) -> int:
        # The host only waits; the GPU's scratch memory is allocated once for all of its threads.
        del allowed
        return 1

    def frame(
        self,
        program: Bytes,
        threads: int,
        weights: WeightRoots,
        inputs: int = 0,
        outputs: int = 0,
    ) -> GpuFrame:
        return GpuFrame(self, program, weights, inputs, inputs + outputs)

    def new_array(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], length: int
    ) -> NDArray[np.generic]:
        # No kernel writes to it, so a small one takes NumPy's alignment, in a third of the time.
        return (
            np.empty(shape, dtype)
            if length < LARGE
            else new_result(self.driver, shape, dtype, length)
        )

    def preparing_frame(self, program: Bytes, threads: int, weights: WeightRoots) -> GpuFrame:
        return self.frame(program, threads, weights)

    def weights(
        self, sources: Bytes, prepared: Bytes | None, preparation: Preparation | None
    ) -> WeightStore:
        return GpuWeights(self.driver, sources, prepared, preparation)
