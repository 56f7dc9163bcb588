"""The interface of a GPU driver: memory, streams, events, kernels and graphs, in the terms of CUDA.

`dlc.runtime.cuda.nvidia` implements it with NVIDIA's driver. Device addresses and streams are integers. The
work in a stream is done in order, asynchronously unless the docstring of a function says that it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, Self, TypeAlias

from dlc.runtime.cuda.memory_use import MemoryUse
from dlc.runtime.cuda.pinned_pool import PinnedPool

Handle: TypeAlias = object


class NoGpu(Exception):
    """No GPU can be used; the message says what is missing."""


class Kernel(NamedTuple):
    """A loaded kernel, the threads of its blocks, and the bytes of shared memory that a launch asks for.

    `narrow` are the positions of arguments that are at most `MOST_NUMBERED`.
    """

    function: Handle
    threads: int
    shared: int = 0
    narrow: Sequence[int] = ()


class ConditionKernels(NamedTuple):
    """The kernels that set conditions of graph nodes (`dlc.runtime.gpu.conditions`), of one thread each."""

    branch: Kernel
    round: Kernel


class Driver(Protocol):
    """One GPU. Functions that take a stream, an event or a graph are called within `with driver:`."""

    capability: tuple[int, int]
    """Its compute capability: (8, 0) is `sm_80`."""
    name: str
    """Its product name."""
    number: int
    """Its ordinal among the machine's GPUs, from 0 on."""
    count: int
    """How many GPUs the machine has."""
    shared_stream: int
    """A stream for work that belongs to no call."""
    free_blocks: dict[int, list[int]]
    """Addresses of free blocks of device memory, by size, for reuse."""
    retired: deque[object]
    """What work of other libraries may still use; see `dlc.runtime.cuda.memory.release_retired`."""
    captures: int
    """How many calls of this library are being captured: then nobody may wait for the device."""
    memory_use: MemoryUse
    """How much of its memory this library has."""
    pinned_pool: PinnedPool
    """Free blocks of pinned memory, likewise."""
    supports_conditions: bool
    """Whether the driver's version has conditional nodes of graphs."""
    condition_refusal: str
    """What it said of the last graph with conditional nodes that it refused; empty if it took all."""
    condition_kernels: ConditionKernels | None
    """The kernels that set conditions, once they are loaded."""

    def __enter__(self) -> Self:
        """Push its context as the current one of this thread, until the end of `with`."""
        ...

    def __exit__(self, *error: object) -> None: ...

    # Memory

    def allocate(self, count: int) -> int:
        """Allocate bytes on the device, 256-byte aligned. Raises CallError (D0613) when out of memory."""
        ...

    def free(self, address: int) -> None:
        """Free memory that no work in flight of this library uses."""
        ...

    def pin(self, count: int) -> int:
        """Allocate pinned (page-locked) bytes of the host. Raises CallError (D0613) when out of memory."""
        ...

    def unpin(self, address: int) -> None: ...

    def is_pinned(self, address: int, count: int) -> bool:
        """Whether bytes of the host are pinned, by this library or another."""
        ...

    def upload(self, address: int, source: int, count: int, stream: int) -> None:
        """Copy bytes from pinned memory of the host, read when the stream gets there."""
        ...

    def download(self, target: int, address: int, count: int, stream: int) -> None:
        """Copy bytes to pinned memory of the host, written when the stream gets there."""
        ...

    def copy(self, target: int, source: int, count: int, stream: int) -> None:
        """Copy bytes on the device."""
        ...

    def memset_zero(self, address: int, count: int, stream: int) -> None:
        """Fill bytes on the device with zeros."""
        ...

    # Streams and events

    def create_stream(self) -> int: ...

    def destroy_stream(self, stream: int) -> None: ...

    def synchronize(self, stream: int) -> None:
        """Wait until all work in a stream is done."""
        ...

    def synchronize_all(self) -> None:
        """Wait for all work of this process on the device, also that of other libraries.

        Not while a stream is captured, which that would end.
        """
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether another library captures what is put into a stream."""
        ...

    def allowing_allocations(self) -> AbstractContextManager[None]:
        """A context in which this thread may allocate and wait while a stream is captured."""
        ...

    def create_event(self) -> Handle: ...

    def destroy_event(self, event: Handle) -> None: ...

    def record(self, event: Handle, stream: int) -> None:
        """Record the event when the stream gets to this point."""
        ...

    def stream_wait_event(self, stream: int, event: Handle) -> None:
        """Let the later work of a stream wait for an event."""
        ...

    def synchronize_event(self, event: Handle) -> None:
        """Wait until an event has happened."""
        ...

    def elapsed_ms(self, begin: Handle, end: Handle) -> float:
        """Milliseconds between two events that have happened."""
        ...

    # Kernels

    def load_module(self, image: bytes) -> Handle:
        """Load a module of PTX or machine code.

        Raises CallError (D0818) with the log of the driver's compiler for PTX that it does not accept.
        """
        ...

    def unload_module(self, module: Handle) -> None: ...

    def get_function(self, module: Handle, name: str, shared: int = 0) -> Handle:
        """A function of a module, whose launches request these bytes of shared memory.

        Raises CallError (D0818) if the device has not as many for a block.
        """
        ...

    def launch(self, kernel: Kernel, tiles: int, words: Sequence[int], stream: int) -> None:
        """Launch a kernel with a block of threads for each tile; `words` are its 64-bit arguments.

        Raises CallError (D0818).
        """
        ...

    # Graphs

    def create_graph(self) -> Handle:
        """An empty graph, to be built."""
        ...

    def add_kernel_node(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: Sequence[int],
        after: Sequence[Handle],
    ) -> Handle:
        """Add a kernel node that runs after some other nodes; returns it."""
        ...

    def add_empty_node(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        """Add a node that does nothing, after some others."""
        ...

    def add_event_node(self, graph: Handle, event: Handle, after: Sequence[Handle]) -> Handle:
        """Add a node that records an event, after some others."""
        ...

    def create_condition(self, graph: Handle) -> int:
        """A condition for one conditional node. Raises CallError if the driver has none."""
        ...

    def add_conditional_node(
        self, graph: Handle, condition: int, again: bool, after: Sequence[Handle]
    ) -> tuple[Handle, Handle]:
        """Add a node that runs its body if the condition is true or, with `again`, as long as it is.

        Returns the node and its body, a graph to be built. Raises CallError if the driver has no
        such nodes.
        """
        ...

    def instantiate(self, graph: Handle) -> None:
        """Make a graph executable, with the nodes that it has."""
        ...

    def launch_graph(self, graph: Handle, stream: int) -> None: ...

    def set_kernel_arguments(
        self, graph: Handle, node: Handle, kernel: Kernel, tiles: int, words: Sequence[int]
    ) -> None:
        """Set the arguments of a kernel node for later launches; `graph` is the one that is launched."""
        ...

    def destroy_graph(self, graph: Handle) -> None:
        """Destroy a graph, instantiated or not."""
        ...
