"""A GPU made of the evaluator: kernels run warp by warp on memory of this process.

What is put into a stream is done when somebody waits for it, as late as a real one might: what forgets
to wait reads what was there before. Memory of the host is read and written then, and has to be pinned.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Self, cast

import numpy as np
import pytest

from dlc.codegen import kernels as assembling
from dlc.dialects import loop, simt
from dlc.dialects.builtin import Module
from dlc.dialects.loop.memory import POISON, AddressSpace, MemoryRange
from dlc.driver.compile import code_maker
from dlc.driver.compile import compile as compiling
from dlc.errors import CallError
from dlc.evaluation.gpu.warps import Launch
from dlc.ir.core import Op
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.driver import ConditionKernels, Driver, Handle, Kernel, NoGpu
from dlc.runtime.cuda.memory_use import MemoryUse
from dlc.runtime.cuda.pinned_pool import PinnedPool
from dlc.runtime.gpu.conditions import PTX
from dlc.runtime.system.buffers import address
from dlc.target.gpu import GpuTarget
from tests.runtime.gpu.fake_ptx import PtxKernel, Reach, kernels_of_ptx

PAGE = 4096
"""What pinned memory begins at a multiple of."""
MOST_BLOCKS = MOST_STREAMS = 10_000
"""What a GPU has of either, so that each has numbers of its own."""
NOBODY = simt.Barrier()
"""What stands for the host in messages about memory."""

Work = Callable[[], None]
Modules = dict[bytes, Mapping[str, simt.Func]]
"""The kernels of what was compiled for a GPU, by what stands for its machine code."""


@dataclass(eq=False)
class Node:
    """A launch in a graph, behind some others; without a kernel or a body it does nothing."""

    kernel: Kernel | None
    tiles: int
    words: list[int]
    after: Sequence[Node] = ()
    body: Graph | None = None
    """What is launched if the condition is true, or, with `again`, as long as it is."""
    condition: int = 0
    again: bool = False
    event: Event | None = None
    """What is recorded here."""


@dataclass(eq=False)
class Graph:
    """What is launched together. It is gone when it was freed."""

    nodes: list[Node] = field(default_factory=list[Node])
    conditions: list[int] = field(default_factory=list[int])
    """Those that were made for it and have no node yet."""
    inside: Graph | None = None
    """The graph that it is a body in."""
    launches: int = 0
    changes: int = 0
    is_complete: bool = False
    is_free: bool = False

    @property
    def whole(self) -> Graph:
        """The graph that is launched."""
        return self if self.inside is None else self.inside.whole

    def with_bodies(self) -> Iterator[Graph]:
        """It and all that it has a part in it."""
        yield self
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.with_bodies()

    def snapshot(self) -> Graph:
        """As it is now, its nodes in order."""
        return Graph(
            [
                replace(node, words=list(node.words), body=node.body and node.body.snapshot())
                for node in self.in_order()
            ]
        )

    def in_order(self) -> list[Node]:
        """The nodes, as late a one as its edges allow before those that were added earlier."""
        left, found = list(self.nodes), list[Node]()
        while left:
            ready = [node for node in left if not any(other in left for other in node.after)]
            left.remove(ready[-1])
            found.append(ready[-1])
        return found


@dataclass(frozen=True)
class Function:
    """A kernel that one GPU has loaded."""

    gpu: FakeGpu
    kernel: simt.Func | PtxKernel


@dataclass(eq=False)
class Mark:
    """A place in a stream."""

    stream: int
    is_past: bool = False


@dataclass(eq=False)
class Event:
    """A moment: which of all the pieces of work the device had done then, where it was recorded last."""

    gpu: FakeGpu
    moment: int = -1
    mark: Mark | None = None


class _Current(threading.local):
    """The GPUs that a thread has entered, the last one in force."""

    def __init__(self) -> None:
        self.entered: list[FakeGpu] = []


_CURRENT = _Current()


class FakeGpu:
    """A `Driver` for the kernels of the modules that it was told of, of as many GPUs as a test has.

    What takes a stream, an event, a graph or memory of another GPU, or is called while another is that of
    the thread, is a failure.
    """

    name = "evaluator"

    def __init__(self, number: int = 0, capability: tuple[int, int] = (8, 0)) -> None:
        self.number, self.count = number, 1
        self.capability = capability
        self.modules: Modules = {}
        self.memory = AddressSpace()
        for _ in range(number * MOST_BLOCKS):  # so no address is one of another GPU
            self.memory.add(MemoryRange("memory of another GPU", np.empty(0, np.uint8)))
        self.allocated: dict[int, int] = {}
        self.pinned: dict[int, tuple[int, object]] = {}
        """The sizes of pinned blocks, and what holds them; a test may have some of another library."""
        self.launched: list[str] = []
        self.graphs: list[Graph] = []
        self.transfers: list[tuple[str, int]] = []
        self.done: list[str] = []
        """What was done: kernels by their names, `up` and `down` for copies, `wait` where the host does."""
        self.refuses: str | None = None
        """The name of a kernel that the driver does not start."""
        self.fails: str | None = None
        """The name of a kernel that fails while it runs."""
        self.knows_conditions = True
        """Whether graphs may have conditions."""
        self.supports_conditions = True
        self.condition_refusal = ""
        self.condition_kernels: ConditionKernels | None = None
        self._conditions: dict[int, int] = {}
        """Their values while a graph runs."""
        self.in_rounds: Work = lambda: None
        """What happens in the host whenever a kernel has decided on a loop."""
        self._streams: dict[int, list[Work]] = {}
        self._numbers = count(1 + number * MOST_STREAMS)
        self.shared_stream = self.create_stream()
        self.free_blocks: dict[int, list[int]] = {}
        self.retired: deque[object] = deque()
        self.captures = 0
        self.memory_use = MemoryUse()
        self.pinned_pool = PinnedPool(self.pin, self.unpin)
        self.pins = True
        """Whether the system has more memory to pin."""
        self.events = 0
        """Those that were not given back."""
        self._done = 0
        self._working = threading.RLock()
        """Threads that wait do the work of streams one after the other."""

    def __enter__(self) -> Self:
        _CURRENT.entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert _CURRENT.entered.pop() is self

    def _check_entered(self) -> None:
        assert _CURRENT.entered, "no GPU is that of this thread"
        assert _CURRENT.entered[-1] is self, "another GPU is that of this thread"

    # Memory

    def allocate(self, count: int) -> int:
        place = self.memory.add(
            MemoryRange("device memory", np.full(max(count, 1), POISON, np.uint8))
        )
        assert len(self.allocated) < MOST_BLOCKS
        self.allocated[place] = count
        return place

    def free(self, address: int) -> None:
        del self.allocated[address]

    def pin(self, count: int) -> int:
        if not self.pins:
            raise CallError("the GPU's driver refuses cuMemHostAlloc: as told", code="D0613")
        held = ctypes.create_string_buffer(bytes([POISON]) * (max(count, 1) + PAGE))
        place = -(-ctypes.addressof(held) // PAGE) * PAGE
        self.pinned[place] = max(count, 1), held
        return place

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def upload(self, address: int, source: int, count: int, stream: int) -> None:
        self._check_pinned(source, count)
        self.transfers.append(("up", count))

        def move() -> None:
            self._check_pinned(source, count)
            self._move(self._host(address, count), source, count, "up")

        self._later(stream, move)

    def download(self, target: int, address: int, count: int, stream: int) -> None:
        self._check_pinned(target, count)
        self.transfers.append(("down", count))

        def move() -> None:
            self._check_pinned(target, count)
            self._move(target, self._host(address, count), count, "down")

        self._later(stream, move)

    def copy(self, target: int, source: int, count: int, stream: int) -> None:
        self._later(
            stream,
            lambda: self._move(self._host(target, count), self._host(source, count), count),
        )

    def memset_zero(self, address: int, count: int, stream: int) -> None:
        self._later(stream, lambda: self._move(self._host(address, count), bytes(count), count))

    def _move(self, target: int, source: int | bytes, count: int, what: str = "copy") -> None:
        self.done.append(what)
        ctypes.memmove(target, source, count)

    def is_pinned(self, address: int, count: int) -> bool:
        return any(
            start <= address and address + count <= start + size
            for start, (size, _) in list(self.pinned.items())
        )

    def _check_pinned(self, place: int, count: int) -> None:
        assert not count or self.is_pinned(place, count), (
            "memory that is not pinned, or not any more"
        )

    def _host(self, place: int, count: int) -> int:
        stretch, start = self.memory.at(NOBODY, place, count)
        return address(stretch.data) + start

    # Order

    def create_stream(self) -> int:
        number = next(self._numbers)
        self._streams[number] = []
        return number

    def destroy_stream(self, stream: int) -> None:
        del self._streams[stream]

    def _later(self, stream: int, work: Work) -> None:
        self._check_entered()
        self._streams[stream].append(work)

    def synchronize(self, stream: int) -> None:
        self._check_entered()
        works = self._streams[stream]
        with self._working:
            while works:
                works.pop(0)()
                self._done += 1

    @property
    def is_busy(self) -> bool:
        """Whether something that was put into a stream is not done."""
        return any(self._streams.values())

    def synchronize_all(self) -> None:
        with self:
            for stream in self._streams:
                self.synchronize(stream)

    def is_capturing(self, stream: int) -> bool:
        self._check_entered()
        return False

    def allowing_allocations(self) -> AbstractContextManager[None]:
        raise AssertionError("no stream is captured here")

    def create_event(self) -> Handle:
        self.events += 1
        return Event(self)

    def destroy_event(self, event: Handle) -> None:
        self._own(event)
        self.events -= 1

    def _own(self, event: Handle) -> Event:
        assert isinstance(event, Event)
        assert event.gpu is self
        return event

    def record(self, event: Handle, stream: int) -> None:
        event = self._own(event)
        mark = event.mark = Mark(stream)

        def happen() -> None:
            event.moment = self._done
            mark.is_past = True

        self._later(stream, happen)

    def stream_wait_event(self, stream: int, event: Handle) -> None:
        mark = self._own(event).mark
        assert mark is not None, "it was never recorded"
        self._later(stream, lambda: self._reach(mark))

    def synchronize_event(self, event: Handle) -> None:
        self._check_entered()
        mark = self._own(event).mark
        assert mark is not None, "it was never recorded"
        self.done.append("wait")
        self._reach(mark)

    def _reach(self, mark: Mark) -> None:
        """Do what stands before a place in a stream."""
        with self._working:
            while not mark.is_past:
                self._streams[mark.stream].pop(0)()
                self._done += 1

    def elapsed_ms(self, begin: Handle, end: Handle) -> float:
        self._check_entered()
        first, last = self._own(begin).moment, self._own(end).moment
        assert 0 <= first < last
        return float(last - first)

    # Kernels

    def load_module(self, image: bytes) -> Handle:
        if image == PTX.encode() + b"\0":
            self._need_conditions("cuModuleLoadData")
            return kernels_of_ptx(PTX)
        return self.modules[image.rstrip(b"\0")]

    def unload_module(self, module: Handle) -> None:
        assert isinstance(module, dict)

    def get_function(self, module: Handle, name: str, shared: int = 0) -> Handle:
        kernel = cast("Mapping[str, simt.Func | PtxKernel]", module)[name]
        assert shared == (kernel.dynamic_bytes if isinstance(kernel, simt.Func) else 0)
        return Function(self, kernel)

    def _function(self, kernel: Kernel) -> simt.Func | PtxKernel:
        assert isinstance(kernel.function, Function)
        assert kernel.function.gpu is self
        return kernel.function.kernel

    def launch(self, kernel: Kernel, tiles: int, words: Sequence[int], stream: int) -> None:
        node = self._node(kernel, tiles, words)
        self._later(stream, lambda: self._run(node))

    def _node(
        self, kernel: Kernel, tiles: int, words: Sequence[int], after: Sequence[Node] = ()
    ) -> Node:
        self._check_entered()
        function = self._function(kernel)
        assert kernel.threads == function.threads
        if isinstance(function, simt.Func):
            assert kernel.shared == function.dynamic_bytes
            assert tuple(kernel.narrow) == function.narrow
        if function.sym_name == self.refuses:
            raise CallError("the GPU's driver refuses cuLaunchKernel: as told", code="D0818")
        return Node(kernel, tiles, list(words), after)

    def _run(self, node: Node) -> None:
        if node.event is not None:
            node.event.moment = self._done
        if node.body is not None:
            self._run_body(node, node.body)
        if node.kernel is None:
            return
        function = self._function(node.kernel)
        if isinstance(function, PtxKernel):
            function.run(node.words, Reach(self._load, self._store, self._set))
            if function.sym_name == "round":
                self.in_rounds()
            return
        if function.sym_name == self.fails:
            raise CallError("the GPU's driver refuses cuStreamSynchronize: as told", code="D0818")
        self.launched.append(function.sym_name)
        self.done.append(function.sym_name)
        for place, note in run_kernel(function, self.memory, node.tiles, node.words):
            ctypes.memmove(self._host(place, len(note)), note, len(note))

    def _run_body(self, node: Node, body: Graph) -> None:
        while self._conditions[node.condition]:
            for inner in body.nodes:
                self._run(inner)
            if not node.again:
                return

    def _load(self, place: int, count: int) -> int:
        host = place if self.is_pinned(place, count) else self._host(place, count)
        return int.from_bytes(ctypes.string_at(host, count), "little")

    def _store(self, place: int, value: int, count: int) -> None:
        ctypes.memmove(self._host(place, count), value.to_bytes(count, "little"), count)

    def _set(self, condition: int, value: int) -> None:
        assert condition in self._conditions, "it is of no graph that runs"
        self._conditions[condition] = value

    # Graphs

    def _need_conditions(self, name: str) -> None:
        if not self.knows_conditions:
            raise CallError(f"the GPU's driver refuses {name}: as told", code="D0818")

    def create_graph(self) -> Handle:
        self._check_entered()
        self.graphs.append(Graph())
        return self.graphs[-1]

    def add_kernel_node(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: Sequence[int],
        after: Sequence[Handle],
    ) -> Handle:
        return self._added(graph, self._node(kernel, tiles, words, cast("Sequence[Node]", after)))

    def add_empty_node(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        return self._added(graph, Node(None, 0, [], cast("Sequence[Node]", after)))

    def add_event_node(self, graph: Handle, event: Handle, after: Sequence[Handle]) -> Handle:
        assert isinstance(graph, Graph)
        assert graph.inside is None, "no body of a condition records an event"
        node = Node(None, 0, [], cast("Sequence[Node]", after), event=self._own(event))
        return self._added(graph, node)

    def _added(self, graph: Handle, node: Node) -> Node:
        assert isinstance(graph, Graph)
        assert graph.whole in self.graphs
        assert not graph.whole.is_complete
        assert len({id(other) for other in node.after}) == len(node.after)
        assert all(other in graph.nodes for other in node.after)
        graph.nodes.append(node)
        return node

    def create_condition(self, graph: Handle) -> int:
        assert isinstance(graph, Graph)
        self._need_conditions("cuGraphConditionalHandleCreate")
        graph.conditions.append(next(self._numbers) << 40)
        return graph.conditions[-1]

    def add_conditional_node(
        self, graph: Handle, condition: int, again: bool, after: Sequence[Handle]
    ) -> tuple[Handle, Handle]:
        assert isinstance(graph, Graph)
        self._need_conditions("cuGraphAddNode")
        graph.conditions.remove(condition)
        body = Graph(inside=graph)
        node = Node(None, 0, [], cast("Sequence[Node]", after), body, condition, again)
        return self._added(graph, node), body

    def instantiate(self, graph: Handle) -> None:
        assert isinstance(graph, Graph)
        assert graph.inside is None
        assert not any(part.conditions for part in graph.with_bodies()), "conditions without nodes"
        graph.is_complete = True

    def launch_graph(self, graph: Handle, stream: int) -> None:
        assert graph in self.graphs
        assert isinstance(graph, Graph)
        assert graph.is_complete
        assert not graph.is_free
        graph.launches += 1
        # As they are now: changes hold for the launches to come.
        found = graph.snapshot()
        nodes = [node for part in found.with_bodies() for node in part.nodes]
        conditions = [node.condition for node in nodes if node.body is not None]
        self._later(stream, lambda: self._conditions.update(dict.fromkeys(conditions, 0)))
        for node in found.nodes:
            self._later(stream, lambda node=node: self._run(node))

    def set_kernel_arguments(
        self, graph: Handle, node: Handle, kernel: Kernel, tiles: int, words: Sequence[int]
    ) -> None:
        self._check_entered()
        assert graph in self.graphs
        assert isinstance(graph, Graph)
        assert isinstance(node, Node)
        assert graph.inside is None
        assert any(node in part.nodes for part in graph.with_bodies())
        assert node.kernel is kernel
        graph.changes += 1
        node.tiles, node.words = tiles, list(words)

    def destroy_graph(self, graph: Handle) -> None:
        assert isinstance(graph, Graph)
        assert not graph.is_free
        graph.is_free = True


def run_kernel(
    function: simt.Func, memory: AddressSpace, tiles: int, words: Sequence[int]
) -> list[tuple[int, bytes]]:
    """Evaluate a launch; what it notes of its failures, and where these notes belong."""
    # The last word is where a kernel notes that it fails.
    *arguments, notes = words
    launch = Launch.with_arguments(function, memory, arguments)
    for tile in reversed(range(tiles)):
        launch.run(tile)
    return [(notes, np.array(note, np.int64).tobytes()) for note in launch.failures or ()]


def kernels_of(module: Op) -> dict[str, simt.Func]:
    """The kernels of a lowered module."""
    return {op.sym_name: op for op in module.regions[0] if isinstance(op, simt.Func)}


@contextmanager
def no_gpu() -> Generator[None]:
    """Meanwhile this machine has no GPU, whatever it has."""

    def none(device: int) -> Driver:
        raise NoGpu("an NVIDIA GPU with its driver, and there is none here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "open_driver", none)
        yield


@contextmanager
def fake_gpu(modules: Modules | None = None) -> Generator[FakeGpu]:
    """Meanwhile this machine has a GPU: all that is compiled for one runs on the evaluator."""
    with fake_gpus((8, 0), modules=modules) as (fake,):
        yield fake


@contextmanager
def fake_gpus(
    *capabilities: tuple[int, int], modules: Modules | None = None
) -> Generator[Sequence[FakeGpu]]:
    """Meanwhile this machine has GPUs of these kinds: all that is compiled for one runs on the evaluator.

    With `modules` so does what was compiled before where they were given too. No program comes from the
    cache, where there are no kernels to evaluate, and no PTX is made.
    """
    fakes = [FakeGpu(number, kind) for number, kind in enumerate(capabilities)]
    compiled: Modules = {} if modules is None else modules
    for fake in fakes:
        fake.modules, fake.count = compiled, len(fakes)
    latest: dict[str, simt.Func] = {}

    def opened(device: int) -> Driver:
        if device >= len(fakes):
            raise NoGpu(f"GPU number {device}, and the last one here is number {len(fakes) - 1}")
        return fakes[device]

    def texts(module: Module) -> Mapping[str, str]:
        nonlocal latest
        latest = kernels_of(module)
        only = len(latest) == len(
            [op for op in module.body if isinstance(op, loop.Func | simt.Func)]
        )
        return dict.fromkeys(latest, "") if only else assembling.kernel_texts(module)

    def ptx(texts: object, kind: GpuTarget, cache: object) -> str:
        image = f"// module {len(compiled)} for {kind.name}"
        compiled[image.encode()] = latest
        return image

    def no_cubin(ptx: str, kind: GpuTarget, cache: object) -> bytes:
        return b""

    def nothing(*_: object) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "recall", nothing)
        patch.setattr(compiling, "remember", nothing)
        patch.setattr(devices, "open_driver", opened)
        patch.setattr(code_maker, "kernel_texts", texts)
        patch.setattr(code_maker, "compile_ptx", ptx)
        patch.setattr(code_maker, "assemble_ptx", no_cubin)
        yield fakes
