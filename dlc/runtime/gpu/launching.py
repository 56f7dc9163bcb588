"""Launching segments: kernel by kernel the first time, as one CUDA graph from then on.

The graphs of the last eight tuples of sizes are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.errors import CallError
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.cuda.driver import Driver, Kernel
from dlc.runtime.gpu.errors import attributed_to, waits_for_each_kernel
from dlc.runtime.gpu.graphs import Graph, GraphMaker, at_roots
from dlc.runtime.gpu.walk import Launch, Segment

MAX_KEPT = 8
"""Tuples of sizes whose graphs are kept."""
MAX_SEGMENTS = 64
"""Segments that are kept for each; there are more only where a loop runs by the device's word."""


@dataclass(slots=True)
class CachedSegment:
    """A segment that was gathered, with its graph if it was launched more than once."""

    segment: Segment
    graph: Graph | None = None
    is_longest: bool = False
    """Whether it was tried to let it go on over conditions."""


@dataclass(slots=True)
class SizeSegments:
    """What is known of a program at one tuple of sizes."""

    sized: SizedProgram
    numbers: list[int]
    """The sizes themselves."""
    segments: dict[tuple[int, ...], CachedSegment]
    """By what they depend on."""
    whole: CachedSegment | None = None
    """The segment that is the whole program, where there is one."""

    def forget(self) -> None:
        """Drop the segments."""
        self.segments.clear()
        self.whole = None


class SegmentCache:
    """The segments of a program at the sizes that were used last."""

    def __init__(self) -> None:
        # By the identity of the sizes, which are kept: nothing else has their number meanwhile.
        self._kept: OrderedDict[int, SizeSegments] = OrderedDict()

    def of(self, sized: SizedProgram) -> SizeSegments:
        """What is known at these sizes."""
        found = self._kept.get(id(sized))
        if found is None:
            found = self._kept[id(sized)] = SizeSegments(sized, sized.sizes.tolist(), {})
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(id(sized))
        return found

    def forget(self) -> None:
        """Drop all of it."""
        self._kept.clear()


class Launcher:
    """Launches segments in a stream. Raises KernelFailed where the driver refuses a kernel."""

    def __init__(
        self, driver: Driver, kernels: Sequence[Kernel], stream: int, stop: int = 0
    ) -> None:
        """`stop` is the address of the word with which the host asks loops on the device to end."""
        self._driver = driver
        self._kernels = kernels
        self._stream = stream
        self._waits = waits_for_each_kernel()
        self._maker = GraphMaker(driver, kernels, stop)

    @property
    def supports_conditions(self) -> bool:
        """Whether conditional segments can be made graphs, as far as is known."""
        return not self._waits and self._driver.supports_conditions

    def launch(self, known: CachedSegment, roots: Sequence[int], again: bool) -> None:
        """Launch a segment with these addresses; `again` says that it was launched before."""
        segment = known.segment
        if known.graph is None and again and not self._waits and segment.items:
            known.graph = self._maker.graph(segment.items, roots)
        if known.graph is not None:
            known.graph.launch(roots, self._stream)
            return
        for item in segment.items:
            assert isinstance(item, Launch), "only a graph reads conditions"
            self.one(item, roots)

    def launch_conditional(self, known: CachedSegment, roots: Sequence[int]) -> bool:
        """Launch a segment that has conditions, unless the driver refuses anything of it.

        Then nothing was launched, and the driver is not asked again. What it refused for another reason
        it refuses once more where the host reads the conditions, and that is told.
        """
        try:
            if known.graph is None:
                known.graph = self._maker.graph(known.segment.items, roots)
            known.graph.launch(roots, self._stream)
        except CallError:
            self._driver.supports_conditions = False
            return False
        return True

    def one(self, launch: Launch, roots: Sequence[int]) -> None:
        """Launch a kernel."""
        kernel = self._kernels[launch.kernel]
        with attributed_to(launch.op):
            self._driver.launch(kernel, launch.tiles, at_roots(launch.words, roots), self._stream)
            if self._waits:
                self._driver.synchronize(self._stream)
