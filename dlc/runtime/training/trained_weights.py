"""The weights that trainers update: on the host, or on the GPU that their steps run on.

A rank of a mesh may have a part of a weight only: then `table`, `block` and `tensors` are of its parts, and
`whole` brings those of all ranks together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.container import padded
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.artifact.weight_splits import rank_table
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.ranks.parts import ALONE, Parts
from dlc.runtime.system.buffers import Bytes, aligned_bytes, as_bytes
from dlc.runtime.training.checkpoint import AVERAGE, SCALE, block_of, kept_for
from dlc.runtime.weights.model_weights import WeightViews, fill


class _Alone:
    """Holds the weights for one step or measurement; raises CallError (D0813) if another thread does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise CallError(
                "the trainer is at work on another call",
                code="D0813",
                help="a trainer makes one step at a time: make another one, or wait",
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class TrainedWeights:
    """The weights of the artifacts of one model in one block of memory, each name once.

    Of a weight that several have, the first one's numbers count. On a GPU, steps update a second block in
    its memory; the block of the host is copied from there when it is read.
    """

    def __init__(
        self, artifacts: Sequence[Artifact], driver: Driver | None, parts: Parts = ALONE
    ) -> None:
        rows = {row.name: row for artifact in artifacts for row in artifact.manifest.weights}
        self.declared: Mapping[str, Weight] = rows
        """The dtypes and shapes of the whole weights."""
        self.parts = parts
        present = [row for row in rows.values() if parts.has(row.name)]
        self.table = rank_table(present, parts.mesh.axes, parts.splits)
        """The weights with their places in the block."""
        self._block = aligned_bytes(padded(sum(padded(row.bytes) for row in self.table)))
        views = WeightViews(self.table, self._block)
        self._tensors = {name: views.tensor(name) for name in views}
        for artifact in reversed(artifacts):
            self._fill(artifact)
        self._there = None if driver is None else DeviceArray.copied(driver, self._block)
        self._is_stale = False
        self._settle: Callable[[], None] | None = None
        """Waits for the steps that were started."""
        self.alone = _Alone()
        self.passed: Mapping[str, Tensor] = self._passed()
        """The weights by name, as arguments of a step."""

    def _fill(self, artifact: Artifact) -> None:
        """Take the numbers of an artifact."""
        source = WeightViews(artifact.manifest.weights, as_bytes(artifact.section("weights")))
        for name in self._tensors.keys() & set(source):
            self._tensors[name].bits[...] = self.parts.of(name, source.tensor(name).bits)

    def _passed(self) -> Mapping[str, Tensor]:
        there = self._there
        if there is None:
            return self._tensors
        return {row.name: _on_device(there, row) for row in self.table}

    def changing(self, settle: Callable[[], None]) -> None:
        """Note that a step is going to update the weights; `settle` waits for it and those before it.

        Waits for steps of another trainer, which are in no order with it.
        """
        self._is_stale = self._there is not None
        if self._settle != settle:
            self.settle()
            self._settle = settle

    def settle(self) -> None:
        """Wait for the steps that were started."""
        if self._settle is not None:
            self._settle()

    @property
    def are_on_gpu(self) -> bool:
        """Whether steps update them in the memory of a GPU."""
        return self._there is not None

    @property
    def block(self) -> Bytes:
        """The current weights in the memory of the host."""
        if self._is_stale:
            assert self._there is not None
            self.settle()
            self._block[:] = self._there.download()
            self._is_stale = False
        return self._block

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The current weights by name, in the memory of the host."""
        assert self.block.size == self._block.size
        return self._tensors

    def whole(self) -> Mapping[str, Tensor]:
        """The current whole weights by name, on the first of the ranks; nothing on the others.

        All ranks that have parts call it together.
        """
        tensors = self.tensors
        if not self.parts.are_divided:
            return tensors
        found: dict[str, Tensor] = {}
        for name, row in self.declared.items():
            own = tensors[name].bits if name in tensors else None
            bits = self.parts.whole(name, own, row.shape)
            if bits is not None:
                found[name] = Tensor.from_bits(bits, row.dtype)
        return found

    def begin_averages(self) -> None:
        """Let the averages of weights begin as the weights are."""
        tensors = self.tensors
        for name, tensor in tensors.items():
            if name.startswith(AVERAGE):
                weight = kept_for(name)
                start = self.parts.more_of(name, weight, tensors[weight].values())
                tensor.bits[...] = Tensor(start, tensor.dtype).bits
        self._upload()

    def loss_scale(self, block: str) -> float:
        """The dynamic scale of the loss of a `train` block that has one."""
        name = f"{SCALE}{block}:value" if block else f"{SCALE}value"
        return float(self.tensors[name].values())

    def replace(self, values: Mapping[str, Tensor]) -> None:
        """Replace weights by values of the same dtypes, and of the shapes of the whole weights."""
        self.settle()
        tensors = self.tensors
        for name, value in values.items():
            if name in tensors:
                tensors[name].bits[...] = self.parts.of(name, value.bits)
        self._upload()

    def _upload(self) -> None:
        if self._there is not None:
            self._there.upload(self._block)
        self._is_stale = False


def averages(tensors: Mapping[str, Tensor], block: str) -> dict[str, NDArray[np.generic]]:
    """Copies of the averages that a `train` block keeps, with the names and dtypes of the weights."""
    return {
        kept_for(name): Tensor(tensor.values(), tensors[kept_for(name)].dtype).bits.copy()
        for name, tensor in tensors.items()
        if name.startswith(AVERAGE) and block_of(name) == block
    }


def section(tensors: Mapping[str, Tensor], table: Sequence[Weight]) -> memoryview:
    """Whole weights as the section of an artifact that has this table."""
    return fill(table, lambda row: tensors[row.name]).data


def _on_device(block: DeviceArray, row: Weight) -> Tensor:
    part = block.part(row.offset, row.shape, np.dtype(DTYPES[row.dtype].numpy))
    return Tensor.on_device(part, row.dtype)
