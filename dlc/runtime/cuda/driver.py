"""What dlc needs of a GPU: memory, streams, kernels, and graphs of kernels that are launched at once.

`dlc.runtime.cuda.nvidia` does it with NVIDIA's driver. Addresses on the device are numbers, and so are
streams: work in one is done in order, and asynchronously unless it is said that a function waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

from dlc.runtime.cuda.pinned_pool import PinnedPool

Handle: TypeAlias = object


class NoGpu(Exception):
    """There is no GPU to be used here; the message says what is missing."""


class Kernel(NamedTuple):
    """A kernel that was loaded, and the threads of its blocks."""

    function: Handle
    threads: int


class ConditionKernels(NamedTuple):
    """The kernels that set conditions of graphs (`dlc.runtime.gpu.conditions`), of one thread each."""

    branch: Kernel
    round: Kernel


class Driver(Protocol):
    """One GPU. What takes a stream, an event or a graph is done within `with driver:`."""

    capability: tuple[int, int]
    """What its processor can do, as NVIDIA counts: (8, 0) is `sm_80`."""
    name: str
    """What its maker calls it."""
    number: int
    """Which of the machine's GPUs it is, from 0 on."""
    shared_stream: int
    """A stream for what belongs to no call."""
    free_blocks: dict[int, list[int]]
    """Addresses of blocks that nobody has any more, by their sizes, for the next of the same size."""
    pinned_pool: PinnedPool
    """Blocks of pinned memory, likewise."""
    supports_conditions: bool
    """Whether graphs may have conditions: so it seems until the driver refuses something of them."""
    condition_kernels: ConditionKernels | None
    """What sets conditions, once it is loaded."""

    def __enter__(self) -> Self:
        """Make it the GPU of this thread until the end of `with`; then the one before is that again."""
        ...

    def __exit__(self, *error: object) -> None: ...

    # Memory

    def allocate(self, count: int) -> int:
        """So many bytes on the device, 256-byte aligned. Raises CallError (D0613) if there are not."""
        ...

    def free(self, address: int) -> None:
        """Give memory back that no work in flight of this library uses any more."""
        ...

    def pin(self, count: int) -> int:
        """So many bytes of the host that the device copies from and to by itself."""
        ...

    def unpin(self, address: int) -> None: ...

    def is_pinned(self, address: int, count: int) -> bool:
        """Whether bytes of the host are pinned, by this library or another."""
        ...

    def upload(self, address: int, source: int, count: int, stream: int) -> None:
        """Copy bytes from pinned memory of the host, which are read when the stream comes there."""
        ...

    def download(self, target: int, address: int, count: int, stream: int) -> None:
        """Copy bytes to pinned memory of the host, which are written when the stream comes there."""
        ...

    def copy(self, target: int, source: int, count: int, stream: int) -> None:
        """Copy bytes on the device."""
        ...

    def memset_zero(self, address: int, count: int, stream: int) -> None:
        """Make bytes on the device zero."""
        ...

    # Order

    def create_stream(self) -> int: ...

    def destroy_stream(self, stream: int) -> None: ...

    def synchronize(self, stream: int) -> None:
        """Wait until all that was begun in a stream is done."""
        ...

    def synchronize_all(self) -> None:
        """Wait for all the work of this process on the device, also that of other libraries."""
        ...

    def create_event(self) -> Handle: ...

    def destroy_event(self, event: Handle) -> None: ...

    def record(self, event: Handle, stream: int) -> None:
        """Let the event be when the stream comes to this point."""
        ...

    def stream_wait_event(self, stream: int, event: Handle) -> None:
        """Let what is put into a stream from now on come after an event."""
        ...

    def synchronize_event(self, event: Handle) -> None:
        """Wait until an event is past."""
        ...

    def elapsed_ms(self, begin: Handle, end: Handle) -> float:
        """The time between two events that are past."""
        ...

    # Kernels

    def load_module(self, image: bytes) -> Handle:
        """A module of PTX or machine code."""
        ...

    def unload_module(self, module: Handle) -> None: ...

    def get_function(self, module: Handle, name: str) -> Handle: ...

    def launch(self, kernel: Kernel, tiles: int, words: Sequence[int], stream: int) -> None:
        """Start a kernel with a block of threads for each tile. Raises CallError (D0818)."""
        ...

    # Graphs

    def create_graph(self) -> Handle:
        """A graph in the making, of no kernels yet."""
        ...

    def add_kernel_node(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: Sequence[int],
        after: Sequence[Handle],
    ) -> Handle:
        """Put a kernel into a graph in the making, behind some of its nodes; the new node."""
        ...

    def add_empty_node(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        """A node that does nothing, behind some others."""
        ...

    def create_condition(self, graph: Handle) -> int:
        """A condition for one node of a graph in the making. Raises CallError where there are none."""
        ...

    def add_conditional_node(
        self, graph: Handle, condition: int, again: bool, after: Sequence[Handle]
    ) -> tuple[Handle, Handle]:
        """A node, behind some others, that launches a graph if the condition is true, or, with `again`, as
        long as it is; and that graph, in the making, which is a part of the other.

        Raises CallError where there are no such nodes.
        """
        ...

    def instantiate(self, graph: Handle) -> None:
        """Make a graph ready to be launched, with the nodes that it has."""
        ...

    def launch_graph(self, graph: Handle, stream: int) -> None: ...

    def set_kernel_arguments(
        self, graph: Handle, node: Handle, kernel: Kernel, tiles: int, words: Sequence[int]
    ) -> None:
        """Give a node other arguments, for the launches to come; `graph` is the one that is launched."""
        ...

    def destroy_graph(self, graph: Handle) -> None:
        """Drop a graph, complete or not."""
        ...
