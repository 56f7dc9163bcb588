"""Launching segments: kernel by kernel the first time, as one CUDA graph from then on.

In a graph the kernels between two barriers of the program run side by side. The graphs of the last eight
tuples of sizes are kept. Where memory has moved, because a caller gives other arrays on the device, only
the kernels that are given such addresses are changed in the graph.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby

from dlc.errors import CallError, Diagnostic
from dlc.runtime.abi import Root
from dlc.runtime.cuda.driver import Driver, Handle, Kernel
from dlc.runtime.cuda.walk import NUMBER, Launch, Segment
from dlc.runtime.frames import Sized

MAX_KEPT = 8
"""Tuples of sizes whose graphs are kept."""
WAIT = "DLC_GPU_WAIT"
"""In the environment: wait for each kernel, so that the one that fails is known, and make no graphs."""
_NOWHERE = -1
MAX_SEGMENTS = 64
"""Segments that are kept for each; there are more only where a loop runs by the device's word."""


class Graph:
    """A segment as a graph of the driver."""

    def __init__(
        self,
        driver: Driver,
        graph: Handle,
        nodes: Sequence[tuple[Handle, Launch]],
        roots: Sequence[int],
    ) -> None:
        """`nodes` are those of the launches, `roots` the addresses that they were given."""
        self._driver = driver
        self._graph = graph
        self._nodes = nodes
        self._roots = list(roots)
        self._users: dict[int, list[int]] = {}
        for number, (_, launch) in enumerate(nodes):
            for root in {root for root, _ in launch.words}:
                self._users.setdefault(root, []).append(number)

    def launch(self, kernels: Sequence[Kernel], roots: Sequence[int], stream: int) -> None:
        """Launch it with these addresses."""
        if self._roots != roots:
            moved = [k for k, place in enumerate(roots) if place != self._roots[k]]
            self._roots = [_NOWHERE] * len(roots)  # until every node has been changed
            for number in sorted({user for root in moved for user in self._users.get(root, ())}):
                node, launch = self._nodes[number]
                kernel, words = kernels[launch.kernel], words_at(launch, roots)
                self._driver.change(self._graph, node, kernel, launch.tiles, words)
            self._roots = list(roots)
        self._driver.launch_graph(self._graph, stream)

    def __del__(self) -> None:
        self._driver.free_graph(self._graph)


@dataclass(slots=True)
class Known:
    """A segment that was gathered, with its graph if it was launched more than once."""

    segment: Segment
    graph: Graph | None = None


@dataclass(slots=True)
class Kept:
    """What is known of a program at one tuple of sizes."""

    sized: Sized
    numbers: list[int]
    """The sizes themselves."""
    segments: dict[tuple[int, ...], Known]
    """By what they depend on."""
    whole: Known | None = None
    """The segment that is the whole program, where there is but one."""


class KnownSegments:
    """The segments of a program at the sizes that were used last."""

    def __init__(self) -> None:
        # By the identity of the sizes, which are kept: nothing else has their number meanwhile.
        self._kept: OrderedDict[int, Kept] = OrderedDict()

    def of(self, sized: Sized) -> Kept:
        """What is known at these sizes."""
        found = self._kept.get(id(sized))
        if found is None:
            found = self._kept[id(sized)] = Kept(sized, sized.sizes.tolist(), {})
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(id(sized))
        return found

    def forget(self) -> None:
        """Drop all of it."""
        self._kept.clear()


class KernelFailed(CallError):
    """The driver refused a kernel, that of the operation `op` by its number, or it failed."""

    def __init__(self, message: str | Sequence[Diagnostic], op: int = 0) -> None:
        super().__init__(message)
        self.op = op


class Launcher:
    """Launches segments in a stream. Raises KernelFailed where the driver refuses one."""

    def __init__(self, driver: Driver, kernels: Sequence[Kernel], stream: int) -> None:
        self._driver = driver
        self._kernels = kernels
        self._stream = stream
        self._waits = waits_for_each()

    def launch(self, known: Known, roots: Sequence[int], again: bool) -> None:
        """Launch a segment with these addresses; `again` says that it was launched before."""
        if not known.segment.launches:
            return
        if known.graph is None and again and not self._waits:
            known.graph = self._made(known.segment, roots)
        if known.graph is None:
            for launch in known.segment.launches:
                self.one(launch, roots)
        else:
            known.graph.launch(self._kernels, roots, self._stream)

    def one(self, launch: Launch, roots: Sequence[int]) -> None:
        """Launch a kernel."""
        kernel = self._kernels[launch.kernel]
        with named(launch):
            self._driver.launch(kernel, launch.tiles, words_at(launch, roots), self._stream)
            if self._waits:
                self._driver.wait(self._stream)

    def _made(self, segment: Segment, roots: Sequence[int]) -> Graph:
        driver = self._driver
        graph = driver.new_graph()
        nodes: list[tuple[Handle, Launch]] = []
        before: list[Handle] = []
        try:
            for _, each in groupby(segment.launches, key=lambda launch: launch.epoch):
                epoch = list(each)
                if len(before) > 1 and len(epoch) > 1:
                    before = [driver.join(graph, before)]
                first = len(nodes)
                self._add(graph, epoch, roots, before, nodes)
                before = [node for node, _ in nodes[first:]]
            driver.complete(graph)
        except CallError:
            driver.free_graph(graph)
            raise
        return Graph(driver, graph, nodes, roots)

    def _add(
        self,
        graph: Handle,
        epoch: Sequence[Launch],
        roots: Sequence[int],
        before: Sequence[Handle],
        nodes: list[tuple[Handle, Launch]],
    ) -> None:
        """Put the kernels of an epoch into a graph: side by side, but for those that use scratch."""
        last_with_scratch: list[Handle] = []
        for launch in epoch:
            uses_scratch = any(root == Root.SCRATCH for root, _ in launch.words)
            after = [*before, *(last_with_scratch if uses_scratch else ())]
            words = words_at(launch, roots)
            with named(launch):
                kernel = self._kernels[launch.kernel]
                node = self._driver.add(graph, kernel, launch.tiles, words, after)
            nodes.append((node, launch))
            if uses_scratch:
                last_with_scratch = [node]


def waits_for_each() -> bool:
    """Whether each kernel is to be waited for before the next one."""
    return bool(os.environ.get(WAIT))


@contextmanager
def named(launch: Launch) -> Generator[None]:
    """Let what the driver refuses meanwhile be known as that of a kernel."""
    try:
        yield
    except CallError as error:
        raise KernelFailed(error.diagnostics, launch.op) from error


@contextmanager
def hinted() -> Generator[None]:
    """Let what the driver refuses meanwhile say how to find the kernel, where that is not known."""
    try:
        yield
    except KernelFailed:
        raise
    except CallError as error:
        help = f"with {WAIT}=1 in the environment it names the operation that failed"
        told = [replace(said, help=said.help or help) for said in error.diagnostics]
        raise CallError(told) from error


def words_at(launch: Launch, roots: Sequence[int]) -> list[int]:
    """What the kernel is given where the roots are at these addresses."""
    return [value if root == NUMBER else roots[root] + value for root, value in launch.words]
