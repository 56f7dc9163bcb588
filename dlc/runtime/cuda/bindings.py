"""What `dlc.runtime.cuda.nvidia` uses of `cuda.bindings.driver`: its functions and parameters, as types."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlc.runtime.cuda.driver import Handle


class Bindings(Protocol):
    """The part of `cuda.bindings.driver` that is used; each function gives a status first."""

    def __getattr__(self, name: str) -> Function: ...


class Function(Protocol):
    def __call__(self, *arguments: object) -> tuple[object, ...]: ...


class KernelNode(Protocol):
    """`CUDA_KERNEL_NODE_PARAMS`."""

    func: object
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    kernelParams: int


class Condition(Protocol):
    """`CUDA_CONDITIONAL_NODE_PARAMS`."""

    handle: object
    type: object
    size: int
    ctx: object
    phGraph_out: Sequence[object]


class AnyNode(Protocol):
    """`CUgraphNodeParams`."""

    type: object
    conditional: Condition


@dataclass(slots=True)
class SourceGraph:
    """A graph, and what can be launched of it, whose nodes go by the names of those of the graph."""

    source: Handle
    executable: Handle | None = None


class Words:
    """The arguments of a kernel as the driver reads them: an array of the addresses of each."""

    def __init__(self, words: Sequence[int]) -> None:
        count = len(words)
        self._held = (ctypes.c_int64 * count)(*words)
        first = ctypes.addressof(self._held)
        self._places = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.address = ctypes.addressof(self._places)
