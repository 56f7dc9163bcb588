"""A CPU with a GPU as the machine that a model runs on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.calling.frames import Frame
from dlc.runtime.calling.shared_entry import EntryPointKinds
from dlc.runtime.cuda.pinned import new_result
from dlc.runtime.hetero.code import HeteroCode, HeteroRoots, HeteroWeights
from dlc.runtime.hetero.entry import (
    HeteroEntryPoint,
    HeteroRankEntryPoint,
    HeteroSharedEntryPoint,
)
from dlc.runtime.hetero.frame import HeteroFrame
from dlc.runtime.system.buffers import Bytes
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore


class HeteroMachine(HeteroCode):
    """Implements `dlc.runtime.machines.Machine`."""

    entry_points = EntryPointKinds(HeteroEntryPoint, HeteroRankEntryPoint, HeteroSharedEntryPoint)
    gpu_alone = None

    @property
    def device(self) -> str:
        return f"cpu+cuda:{self.gpu.driver.number}"

    def threads(self, allowed: int) -> int:
        return allowed

    def frame(
        self,
        program: Bytes,
        threads: int,
        weights: WeightRoots,
        inputs: int = 0,
        outputs: int = 0,
    ) -> HeteroFrame:
        assert isinstance(weights, HeteroRoots)
        return HeteroFrame(self, program, threads, weights, inputs, inputs + outputs)

    def new_array(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], length: int
    ) -> NDArray[np.generic]:
        return new_result(self.gpu.driver, shape, dtype, length)

    def preparing_frame(self, program: Bytes, threads: int, weights: WeightRoots) -> Frame:
        # Weights are prepared on the CPU alone.
        return Frame(self.native, program, threads, weights, 0)

    def weights(
        self, sources: Bytes, prepared: Bytes | None, preparation: Preparation | None
    ) -> WeightStore:
        return HeteroWeights(self, sources, prepared, preparation)
