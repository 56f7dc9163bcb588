"""Segments as CUDA graphs.

Kernels without a barrier between them run concurrently. A loop or branch that the device decides on is a
conditional node, whose body is a graph of its own. If addresses change, because a caller passes other
arrays on the device, only the kernel nodes that take these addresses are updated in the instantiated graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple
from weakref import WeakSet

from dlc.errors import CallError
from dlc.runtime.abi import MOST_NUMBERED, Root
from dlc.runtime.cuda.driver import Driver, Handle, Kernel
from dlc.runtime.gpu.conditions import condition_kernels_of
from dlc.runtime.gpu.errors import attributed_to
from dlc.runtime.gpu.segments import IfNode, Item, Launch, WhileNode
from dlc.runtime.gpu.steps import IMMEDIATE, Word

MOST_COPIES = 3
"""The most further graphs of a segment, for calls whose arrays lie elsewhere: each takes memory."""
_NOWHERE = -1


class GraphKernel(NamedTuple):
    """A kernel node of a graph or body, and its arguments."""

    node: Handle
    kernel: Kernel
    tiles: int
    words: tuple[Word, ...]


class Graph:
    """A segment as an instantiated graph."""

    def __init__(
        self,
        driver: Driver,
        graph: Handle,
        nodes: Sequence[GraphKernel],
        roots: Sequence[int],
        make: Callable[[Sequence[int]], Graph],
    ) -> None:
        """`nodes` are all its kernel nodes, `roots` the addresses of roots that they were given.

        `make` makes another graph of the segment, for other addresses.
        """
        self._driver = driver
        self._make = make
        self._copies: WeakSet[Graph] = WeakSet()
        self._graph = graph
        self._nodes = nodes
        self._roots: Sequence[int] = roots
        self._users: dict[int, list[int]] = {}
        """The indices of the nodes that take an address in each root."""
        for index, kernel_node in enumerate(nodes):
            for root in {root for root, _ in kernel_node.words}:
                self._users.setdefault(root, []).append(index)

    def is_at(self, roots: Sequence[int]) -> bool:
        """Whether its kernels have these addresses of roots."""
        return self._roots is roots or self._roots == roots

    def copy_at(self, roots: Sequence[int]) -> Graph:
        """A graph of the same segment with these addresses; this one if there are enough of them.

        Raises CallError as `GraphMaker.graph` does.
        """
        if len(self._copies) >= MOST_COPIES:
            return self
        copy = self._make(roots)
        self._copies.add(copy)
        return copy

    def launch(self, roots: Sequence[int], stream: int) -> None:
        """Launch it with these addresses of roots, which stay as they are."""
        if not self.is_at(roots):
            moved = [root for root, base in enumerate(roots) if base != self._roots[root]]
            self._roots = [_NOWHERE] * len(roots)  # until every node has been updated
            for index in sorted({user for root in moved for user in self._users.get(root, ())}):
                node, kernel, tiles, words = self._nodes[index]
                arguments = at_roots(words, roots)
                self._driver.set_kernel_arguments(self._graph, node, kernel, tiles, arguments)
            self._roots = roots
        self._driver.launch_graph(self._graph, stream)

    def __del__(self) -> None:
        self._driver.destroy_graph(self._graph)


class GraphMaker:
    """Instantiates graphs of segments."""

    def __init__(self, driver: Driver, kernels: Sequence[Kernel], stop: int) -> None:
        """`stop` is the address of the word with which the host asks loops on the device to end."""
        self._driver = driver
        self._kernels = kernels
        self._stop = stop

    def graph(self, items: Sequence[Item], roots: Sequence[int]) -> Graph:
        """The graph of a segment. Raises KernelFailed for a refused kernel, CallError for another node."""
        graph = self._driver.create_graph()
        try:
            builder = _GraphBuilder(self._driver, self._kernels, self._stop, roots)
            builder.fill(graph, items, ())
            self._driver.instantiate(graph)
        except CallError:
            self._driver.destroy_graph(graph)
            raise
        return Graph(self._driver, graph, builder.nodes, roots, partial(self.graph, items))


class _GraphBuilder:
    """Builds a graph. Its methods take the nodes to run after, and return the last nodes that they add."""

    def __init__(
        self, driver: Driver, kernels: Sequence[Kernel], stop: int, roots: Sequence[int]
    ) -> None:
        self._driver = driver
        self._kernels = kernels
        self._stop = stop
        self._roots = roots
        self.nodes: list[GraphKernel] = []

    def fill(
        self, graph: Handle, items: Sequence[Item], before: Sequence[Handle]
    ) -> Sequence[Handle]:
        """Add items to a graph or body, after these nodes."""
        for _, wave_items in groupby(items, key=lambda item: item.wave):
            match list(wave_items):
                case [WhileNode() as node]:
                    before = self._while(graph, node, before)
                case [IfNode() as node]:
                    before = self._if(graph, node, before)
                case wave:
                    launches = [item for item in wave if isinstance(item, Launch)]
                    before = self._wave(graph, launches, before)
        return before

    def _wave(
        self, graph: Handle, wave: Sequence[Launch], before: Sequence[Handle]
    ) -> Sequence[Handle]:
        """Add the kernels of a wave, concurrent except for those that share the scratch memory."""
        if len(before) > 1 and len(wave) > 1:
            before = [self._driver.add_empty_node(graph, before)]
        nodes: list[Handle] = []
        last_with_scratch: list[Handle] = []
        for launch in wave:
            uses_scratch = any(root == Root.SCRATCH for root, _ in launch.words)
            after = [*before, *(last_with_scratch if uses_scratch else ())]
            with attributed_to(launch.op):
                kernel = self._kernels[launch.kernel]
                node = self._add(graph, kernel, launch.tiles, launch.words, after)
            nodes.append(node)
            if uses_scratch:
                last_with_scratch = [node]
        return nodes

    def _while(self, graph: Handle, loop: WhileNode, before: Sequence[Handle]) -> Sequence[Handle]:
        """Add the test, and a conditional node that repeats the body and the test."""
        condition = self._driver.create_condition(graph)
        words = ((IMMEDIATE, condition), (IMMEDIATE, self._stop), *loop.words)

        def test(graph: Handle, before: Sequence[Handle]) -> Sequence[Handle]:
            before = self.fill(graph, loop.test, before)
            return [self._add(graph, condition_kernels_of(self._driver).round, 1, words, before)]

        ready = test(graph, before)
        node, body = self._driver.add_conditional_node(graph, condition, again=True, after=ready)
        test(body, self.fill(body, loop.body, ()))
        return [node]

    def _if(self, graph: Handle, choice: IfNode, before: Sequence[Handle]) -> Sequence[Handle]:
        """Add a conditional node for each side that has items.

        Both conditions are set before a side begins, since that may overwrite what they are read from.
        """
        sides = [(1, choice.then), (0, choice.otherwise)]
        conditions: list[tuple[int, Sequence[Item]]] = []
        ready: list[Handle] = []
        for side, items in sides:
            if items:
                condition = self._driver.create_condition(graph)
                conditions.append((condition, items))
                words = ((IMMEDIATE, condition), choice.condition, (IMMEDIATE, side))
                setter = condition_kernels_of(self._driver).branch
                ready.append(self._add(graph, setter, 1, words, before))
        nodes: list[Handle] = []
        for condition, items in conditions:
            node, body = self._driver.add_conditional_node(
                graph, condition, again=False, after=ready
            )
            self.fill(body, items, ())
            nodes.append(node)
        return nodes or before

    def _add(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: tuple[Word, ...],
        after: Sequence[Handle],
    ) -> Handle:
        arguments = arguments_of(kernel, words, self._roots)
        node = self._driver.add_kernel_node(graph, kernel, tiles, arguments, after)
        self.nodes.append(GraphKernel(node, kernel, tiles, words))
        return node


def arguments_of(kernel: Kernel, words: Sequence[Word], roots: Sequence[int]) -> list[int]:
    """`at_roots` for a launch. Raises CallError (D0818) for more elements than the kernel numbers."""
    found = at_roots(words, roots)
    for place in kernel.narrow:
        if found[place] > MOST_NUMBERED:
            raise CallError(
                f"a kernel would number {found[place]} elements, and it has 32 bits for that",
                code="D0818",
                help="call with fewer at a time; or compile for calls that all have more, such as with "
                f"`dim B = {found[place]}..{found[place]}`: then it has 64 bits",
            )
    return found


def at_roots(words: Sequence[Word], roots: Sequence[int]) -> list[int]:
    """The arguments of a kernel, with the roots at these addresses."""
    return [value if root == IMMEDIATE else roots[root] + value for root, value in words]
