"""Types for the part of `cuda.bindings.driver` that `dlc.runtime.cuda.nvidia` uses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlc.runtime.cuda.driver import Handle


class Bindings(Protocol):
    """The module `cuda.bindings.driver`; each function returns a status and its results."""

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
    sharedMemBytes: int
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
    """A graph, and its executable form once it is instantiated; both share their node handles."""

    source: Handle
    executable: Handle | None = None


class Words:
    """The 64-bit arguments of a kernel as the driver reads them: an array of pointers to them."""

    def __init__(self, words: Sequence[int]) -> None:
        count = len(words)
        self._held = (ctypes.c_int64 * count)(*words)
        first = ctypes.addressof(self._held)
        self._pointers = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.address = ctypes.addressof(self._pointers)
