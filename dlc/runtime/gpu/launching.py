"""Launching segments: kernel by kernel the first time, as a CUDA graph from then on.

The graphs of the last eight tuples of sizes are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.errors import CallError
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.cuda.driver import Driver, Kernel
from dlc.runtime.gpu.errors import attributed_to, waits_for_each_kernel
from dlc.runtime.gpu.fitting import Key
from dlc.runtime.gpu.graphs import Graph, GraphMaker, arguments_of
from dlc.runtime.gpu.ranges import annotate
from dlc.runtime.gpu.ready import MOST_PLANS, Plan, ReadyCall
from dlc.runtime.gpu.segments import Launch, Segment

MAX_KEPT = 8
"""The most tuples of sizes whose graphs are cached."""
MAX_SEGMENTS = 64
"""The most segments cached for each; only loops whose trip count the device computes have more."""


@dataclass(slots=True)
class CachedSegment:
    """A segment, with its graph if it was launched more than once."""

    segment: Segment
    graph: Graph | None = None
    is_longest: bool = False
    """Whether a longer segment, with conditional nodes, was looked for."""


@dataclass(slots=True)
class SizeSegments:
    """The cached segments of a program at one tuple of sizes."""

    sized: SizedProgram
    sizes: list[int]
    segments: dict[tuple[int, ...], CachedSegment]
    """By `StepTable.key`."""
    whole: CachedSegment | None = None
    """The segment that is the whole program, if there is one."""
    ready: dict[tuple[int, ...], ReadyCall] = field(
        default_factory=dict[tuple[int, ...], ReadyCall]
    )
    """By the addresses of the arrays on the device, the calls that launch that segment as a graph."""

    def forget(self) -> None:
        """Drop the segments."""
        self.segments.clear()
        self.ready.clear()
        self.whole = None


class SegmentCache:
    """The cached segments of a program, at the sizes that were used last (LRU)."""

    def __init__(self) -> None:
        # By the identity of the sizes, which the entry keeps alive, so that no other object has it.
        self._at_sizes: OrderedDict[int, SizeSegments] = OrderedDict()
        self._latest: SizeSegments | None = None
        """Those that were used last."""
        self._plans: dict[Key, Plan] = {}

    def of(self, sized: SizedProgram) -> SizeSegments:
        """The cached segments at these sizes."""
        if self._latest is not None and self._latest.sized is sized:
            return self._latest
        segments = self._at_sizes.get(id(sized))
        if segments is None:
            segments = self._at_sizes[id(sized)] = SizeSegments(sized, sized.sizes.tolist(), {})
            if len(self._at_sizes) > MAX_KEPT:
                self._at_sizes.popitem(last=False)
                self._plans.clear()  # some have its graphs
        else:
            self._at_sizes.move_to_end(id(sized))
        self._latest = segments
        return segments

    def plan(self, key: Key) -> Plan | None:
        """What is known of calls with arguments of this key."""
        plan = self._plans.get(key)
        if plan is not None and (self._latest is None or plan.sized is not self._latest.sized):
            self.of(plan.sized)  # they are in use
        return plan

    def note(self, key: Key, plan: Plan) -> None:
        """Note what is known of calls with arguments of this key."""
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan

    def forget_ready(self) -> None:
        """Drop the calls that are ready, at all sizes."""
        self._plans.clear()
        for segments in self._at_sizes.values():
            segments.ready.clear()

    def forget(self) -> None:
        """Drop all segments."""
        self._plans.clear()
        self._at_sizes.clear()
        self._latest = None


class Launcher:
    """Launches segments in a stream. Raises KernelFailed if the driver refuses a kernel."""

    def __init__(
        self, driver: Driver, kernels: Sequence[Kernel], stream: int, stop: int = 0
    ) -> None:
        """`stop` is the address of the word with which the host asks loops on the device to end."""
        self._driver = driver
        self._kernels = kernels
        self._stream = stream
        self._synchronous = waits_for_each_kernel()
        self._annotate = annotate()
        self.names: Sequence[str] = ()
        """What profilers call the kernel of each op, if it is known."""
        self._is_refused = False
        """Whether the driver has refused a graph with conditional nodes."""
        self._maker = GraphMaker(driver, kernels, stop)

    @property
    def supports_conditions(self) -> bool:
        """Whether segments with conditional nodes can be launched, as far as is cached."""
        is_tried = not self._synchronous and not self._is_refused
        return is_tried and self._driver.supports_conditions

    def launch(self, cached: CachedSegment, roots: Sequence[int], again: bool) -> None:
        """Launch a segment with these addresses of roots; `again`: it was launched before."""
        segment = cached.segment
        if cached.graph is None and again and not self._synchronous and segment.items:
            cached.graph = self._maker.graph(segment.items, roots)
        if cached.graph is not None:
            cached.graph.launch(roots, self._stream)
            return
        for item in segment.items:
            assert isinstance(item, Launch), "only a graph has conditional nodes"
            self.one(item, roots)

    def launch_conditional(self, cached: CachedSegment, roots: Sequence[int]) -> bool:
        """Launch a segment with conditional nodes; returns False if the driver refuses.

        Then nothing was launched, and this launcher asks for no conditional nodes again. Others do: a
        device that is full for a moment is not a reason to do without. What the conditions did not
        cause is refused again when the host decides on them, and is reported then.
        """
        try:
            if cached.graph is None:
                cached.graph = self._maker.graph(cached.segment.items, roots)
            cached.graph.launch(roots, self._stream)
        except CallError as error:
            self._is_refused = True
            self._driver.condition_refusal = error.diagnostics[0].message
            return False
        return True

    def one(self, launch: Launch, roots: Sequence[int]) -> None:
        """Launch a kernel."""
        kernel = self._kernels[launch.kernel]
        name = self.names[launch.op] if launch.op < len(self.names) else f"op {launch.op}"
        with attributed_to(launch.op), self._annotate(name):
            words = arguments_of(kernel, launch.words, roots)
            self._driver.launch(kernel, launch.tiles, words, self._stream)
            if self._synchronous:
                self._driver.synchronize(self._stream)
