"""The weights that a trainer updates: on the host, or on the GPU that its steps run on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import Bytes, aligned_bytes, as_bytes
from dlc.runtime.weights.model_weights import WeightViews


class TrainedWeights:
    """The weights of an artifact in one block of memory.

    On a GPU, steps update a second block in its memory; the block of the host is copied from there when
    it is read.
    """

    def __init__(self, artifact: Artifact, driver: Driver | None) -> None:
        self._table = artifact.manifest.weights
        self._block = aligned_bytes(len(artifact.section("weights")))
        self._block[:] = as_bytes(artifact.section("weights"))
        views = WeightViews(self._table, self._block)
        self._tensors = {name: views.tensor(name) for name in views}
        self._there = None if driver is None else DeviceArray.copied(driver, self._block)
        self._is_stale = False
        self.passed: Mapping[str, Tensor] = self._passed()
        """The weights by name, as arguments of a step."""

    def _passed(self) -> Mapping[str, Tensor]:
        there = self._there
        if there is None:
            return self._tensors
        return {row.name: _on_device(there, row) for row in self._table}

    def changed(self) -> None:
        """Note that a step has updated the weights that it was passed."""
        self._is_stale = self._there is not None

    @property
    def block(self) -> Bytes:
        """The current weights in the memory of the host."""
        if self._is_stale:
            assert self._there is not None
            self._block[:] = self._there.download()
            self._is_stale = False
        return self._block

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The current weights by name, in the memory of the host."""
        assert self.block.size == self._block.size
        return self._tensors

    def replace(self, values: Mapping[str, Tensor]) -> None:
        """Replace all weights by values of the same dtypes and shapes."""
        for name, tensor in self._tensors.items():
            tensor.bits[...] = values[name].bits
        if self._there is not None:
            self._there.upload(self._block)
        self._is_stale = False


def _on_device(block: DeviceArray, row: Weight) -> Tensor:
    part = block.part(row.offset, row.shape, np.dtype(DTYPES[row.dtype].numpy))
    return Tensor.on_device(part, row.dtype)
