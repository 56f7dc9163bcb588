"""The weights that a trainer changes: here, or on the GPU that its steps run on."""

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
    """A block with the weights of an artifact, and on a GPU a second one, which steps change.

    Then the block here is brought up to date when somebody looks at it.
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
        """The weights as steps are given them, by name."""

    def _passed(self) -> Mapping[str, Tensor]:
        there = self._there
        if there is None:
            return self._tensors
        return {row.name: _on_device(there, row) for row in self._table}

    def changed(self) -> None:
        """A step has changed what it was passed."""
        self._is_stale = self._there is not None

    @property
    def block(self) -> Bytes:
        """All weights as they are now, here."""
        if self._is_stale:
            assert self._there is not None
            self._block[:] = self._there.download()
            self._is_stale = False
        return self._block

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The weights as they are now, here, by name."""
        assert self.block.size == self._block.size
        return self._tensors

    def replace(self, values: Mapping[str, Tensor]) -> None:
        """Take other numbers for all of them, of the same dtypes and shapes."""
        for name, tensor in self._tensors.items():
            tensor.bits[...] = values[name].bits
        if self._there is not None:
            self._there.upload(self._block)
        self._is_stale = False


def _on_device(block: DeviceArray, row: Weight) -> Tensor:
    part = block.part(row.offset, row.shape, np.dtype(DTYPES[row.dtype].numpy))
    return Tensor.on_device(part, row.dtype)
