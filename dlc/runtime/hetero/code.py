"""The code of a heterogeneous program, and its weights on the host and on the GPU."""

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
"""Bytes; a copy of a range of the weights is aligned as memory of the device is."""


class DeviceRoots:
    """The weights on the device.

    `weights` and `sources` are the addresses that byte 0 of these roots would have there.
    """

    def __init__(self, weights: _DeviceCopy, sources: _DeviceCopy) -> None:
        self._held = weights, sources
        self.weights = weights.base
        self.sources = sources.base


@dataclass(frozen=True, slots=True)
class HeteroRoots(WeightRoots):
    """The addresses of the weights on the host, and on the device of those that the GPU reads."""

    on_gpu: DeviceRoots


class HeteroCode:
    """The code for the CPU and the code for the GPU of one artifact."""

    def __init__(
        self,
        native: Native,
        gpu: Gpu,
        programs: Iterable[tuple[Program, Bytes]],
        table: Sequence[Weight],
    ) -> None:
        """`programs` come with their step tables; `table` lists the weights as stored."""
        self.native = native
        self.gpu = gpu
        self.ends = [weight.offset + weight.bytes for weight in table]
        gpu_reads = {pair for program in programs for pair in _gpu_reads(*program)}
        self.reads = {
            root: sorted(offset for of, offset in gpu_reads if of == root) for root in _WEIGHTS
        }
        """The offsets in the weights that the GPU reads, by root."""


_WEIGHTS = (Root.WEIGHTS, Root.SOURCES)


def _gpu_reads(program: Program, table: Bytes) -> Iterable[tuple[int, int]]:
    """Root and offset of each weight that a kernel on the GPU reads."""
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
    """A copy on the device of the bytes from `first` up to `end` of a block."""

    def __init__(self, gpu: Gpu, block: Bytes, first: int, end: int) -> None:
        first -= first % _ALIGNMENT
        self._held = DeviceBytes.of(gpu.driver, block[first:end])
        self.base = self._held.address - first
        """The address that byte 0 of the whole block would have."""


class HeteroWeights(WeightStore):
    """The weights on the host; the first call uploads those that the GPU reads."""

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
        prepared, stored = (self._machine.reads[root] for root in _WEIGHTS)
        if self.preparation is None:
            prepared, stored = [], sorted({*prepared, *stored})
        sources = self._copied(self.sources, stored, self._end_of(stored))
        # Prepared weights that only the GPU reads lie at the end of the block.
        weights = self._copied(block, prepared, len(block)) if self.preparation else sources
        self.upload_ms = (time.perf_counter() - began) * 1e3
        on_gpu = DeviceRoots(weights, sources)
        return HeteroRoots(host.weights, host.sources, host.memory, on_gpu)

    def _end_of(self, offsets: Sequence[int]) -> int:
        """The end of the last of the weights at these offsets."""
        last = max(offsets, default=0)
        return min([end for end in self._machine.ends if end > last], default=0)

    def _copied(self, block: Bytes, offsets: Sequence[int], end: int) -> _DeviceCopy:
        first = min(offsets, default=0)
        return _DeviceCopy(self._machine.gpu, block, first, end if offsets else first)
