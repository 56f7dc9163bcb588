"""Code for a processor and for a GPU together, and the weights on both."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.runtime.abi import (
    ARG_WORDS,
    HEADER_WORDS,
    STEP_WORDS,
    ArgKind,
    ArgWord,
    Opcode,
    Root,
    StepWord,
)
from dlc.runtime.artifact.manifest import Program, Weight
from dlc.runtime.calling.device_partition import is_on_gpu
from dlc.runtime.calling.frames import Words
from dlc.runtime.cpu.native import Native
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.system.buffers import Bytes
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore

_ALIGNMENT = 256
"""What a copy of a part of the weights begins at a multiple of, as memory of the device does."""


class DeviceRoots:
    """Weights on the device: `weights` and `sources` are where the first bytes of the roots would be."""

    def __init__(self, weights: _DeviceCopy, sources: _DeviceCopy) -> None:
        self._held = weights, sources
        self.weights = weights.base
        self.sources = sources.base


@dataclass(frozen=True, slots=True)
class HeteroRoots(WeightRoots):
    """Where the weights are on the host, and what the GPU reads of them on the device."""

    on_gpu: DeviceRoots


class HeteroCode:
    """A processor's code and a GPU's, for programs that use both."""

    def __init__(
        self,
        native: Native,
        gpu: Gpu,
        programs: Iterable[tuple[Program, Bytes]],
        table: Sequence[Weight],
    ) -> None:
        """`programs` come with their tables, `table` has the weights as stored."""
        self.native = native
        self.gpu = gpu
        self.ends = [weight.offset + weight.bytes for weight in table]
        read = {place for each in programs for place in _read_on_gpu(*each)}
        self.reads = {root: sorted(at for of, at in read if of == root) for root in _WEIGHTS}
        """Where in the weights the GPU reads, by root."""


_WEIGHTS = (Root.WEIGHTS, Root.SOURCES)


def _read_on_gpu(program: Program, table: Bytes) -> Iterable[tuple[int, int]]:
    """The roots of weights that kernels of the GPU read, and where in them."""
    words: Words = table.view(np.dtype("<i8"))
    end = HEADER_WORDS + int(words[0]) * STEP_WORDS
    steps: list[list[int]] = words[HEADER_WORDS:end].reshape(-1, STEP_WORDS).tolist()
    arguments: list[list[int]] = words[end:].reshape(-1, ARG_WORDS).tolist()
    for step in steps:
        if step[StepWord.OPCODE] == Opcode.CALL and is_on_gpu(step):
            first = step[StepWord.B]
            for argument in arguments[first : first + step[StepWord.C]]:
                kind, root, offset = argument[: ArgWord.COUNTER]
                if kind == ArgKind.POINTER and root in _WEIGHTS:
                    yield root, int(program.sizes[offset])


class _DeviceCopy:
    """The part of a block that the GPU reads, on the device."""

    def __init__(self, gpu: Gpu, block: Bytes, first: int, end: int) -> None:
        first -= first % _ALIGNMENT
        self._held = DeviceBytes.of(gpu.driver, block[first:end])
        self.base = self._held.address - first
        """Where the first byte of the whole block would be."""


class HeteroWeights(WeightStore):
    """The weights on the host, and those that the GPU reads on the device, which the first call brings."""

    def __init__(
        self,
        machine: HeteroCode,
        sources: Bytes,
        prepared: Bytes | None,
        preparation: Preparation | None,
    ) -> None:
        super().__init__(sources, prepared, preparation)
        self._machine = machine

    def _placed(self) -> HeteroRoots:
        host = super()._placed()
        began = time.perf_counter()
        block = self._prepared
        assert block is not None
        made, stored = (self._machine.reads[root] for root in _WEIGHTS)
        if self.preparation is None:
            made, stored = [], sorted({*made, *stored})
        sources = self._copied(self.sources, stored, self._end_of(stored))
        # What only the GPU reads lies at the end of what is prepared.
        weights = self._copied(block, made, len(block)) if self.preparation else sources
        self.upload_ms = (time.perf_counter() - began) * 1e3
        on_gpu = DeviceRoots(weights, sources)
        return HeteroRoots(host.weights, host.sources, host.memory, on_gpu)

    def _end_of(self, places: Sequence[int]) -> int:
        """Where the last of these weights ends."""
        last = max(places, default=0)
        return min([end for end in self._machine.ends if end > last], default=0)

    def _copied(self, block: Bytes, places: Sequence[int], end: int) -> _DeviceCopy:
        first = min(places, default=0)
        return _DeviceCopy(self._machine.gpu, block, first, end if places else first)
