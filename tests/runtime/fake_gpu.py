"""A GPU made of the evaluator: kernels run warp by warp on memory of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.dialects import simt
from dlc.dialects.machine import POISON, Memory, Stretch
from dlc.dialects.warps import Launch
from dlc.ir.core import Op
from dlc.runtime.buffers import address
from dlc.runtime.cuda.driver import Handle

NOBODY = simt.Barrier()
"""What stands for the host in messages about memory."""


class FakeGpu:
    """A `Driver` for the kernels of one module, by their names."""

    capability: tuple[int, int] = (8, 0)

    def __init__(self, kernels: Mapping[str, simt.Func]) -> None:
        self.kernels = kernels
        self.memory = Memory()
        self.allocated: dict[int, int] = {}
        self.launched: list[str] = []

    def allocate(self, count: int) -> int:
        place = self.memory.add(Stretch("device memory", np.full(max(count, 1), POISON, np.uint8)))
        self.allocated[place] = count
        return place

    def free(self, address: int) -> None:
        del self.allocated[address]

    def upload(self, address: int, source: int, count: int) -> None:
        ctypes.memmove(self._host(address, count), source, count)

    def download(self, target: int, address: int, count: int) -> None:
        ctypes.memmove(target, self._host(address, count), count)

    def clear(self, address: int, count: int) -> None:
        ctypes.memset(self._host(address, count), 0, count)

    def _host(self, place: int, count: int) -> int:
        stretch, start = self.memory.at(NOBODY, place, count)
        return address(stretch.data) + start

    def load(self, image: bytes) -> Handle:
        assert image
        return image

    def function(self, module: Handle, name: str) -> Handle:
        return self.kernels[name]

    def launch(self, function: Handle, tiles: int, threads: int, words: Sequence[int]) -> None:
        assert isinstance(function, simt.Func)
        assert threads == function.threads
        self.launched.append(function.sym_name)
        # The last word is where a kernel notes a failure; evaluated, it raises an error instead.
        launch = Launch.given(function, self.memory, words[:-1])
        for tile in reversed(range(tiles)):
            launch.run(tile)


def kernels_of(module: Op) -> dict[str, simt.Func]:
    """The kernels of a lowered module."""
    return {op.sym_name: op for op in module.regions[0] if isinstance(op, simt.Func)}
