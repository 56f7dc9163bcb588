"""Times of each kernel by the GPU's clock: launches in a row, with an event before and after each.

Launches and events are nodes of one graph, so the host's time between two launches is in none of the times.
Kernels that a call runs side by side run one after the other here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from dlc.runtime.cuda.driver import Driver, Handle, Kernel
from dlc.runtime.gpu.errors import attributed_to, with_wait_hint
from dlc.runtime.gpu.graphs import arguments_of
from dlc.runtime.gpu.segments import Launch

TOGETHER = 1024
"""The most kernels of a graph."""


class KernelTime(NamedTuple):
    """A kernel that ran: its op id, and milliseconds from the start of the first one."""

    op: int
    start: float
    end: float


class KernelTimer:
    """Launches kernels in a stream, waits for them, and notes their times."""

    def __init__(self, driver: Driver, kernels: Sequence[Kernel], stream: int) -> None:
        self._driver, self._kernels, self._stream = driver, kernels, stream
        self._events: list[Handle] = []
        self._now = 0.0
        self.times: list[KernelTime] = []
        self.events_ms = 0.0
        """What the events took, which is in no time."""

    def launch(self, launches: Sequence[Launch], roots: Sequence[int]) -> None:
        """Launch kernels one after the other. Raises KernelFailed if the driver refuses one."""
        for first in range(0, len(launches), TOGETHER):
            self._launch(launches[first : first + TOGETHER], roots)

    def _launch(self, launches: Sequence[Launch], roots: Sequence[int]) -> None:
        driver = self._driver
        while len(self._events) < len(launches) + 2:
            self._events.append(driver.create_event())
        events = self._events[: len(launches) + 2]
        graph = driver.create_graph()
        try:
            self._fill(graph, launches, events, roots)
            driver.instantiate(graph)
            driver.launch_graph(graph, self._stream)
            with with_wait_hint:
                driver.synchronize(self._stream)
        finally:
            driver.destroy_graph(graph)
        self._note(launches, [driver.elapsed_ms(*pair) for pair in pairwise(events)])

    def around(self, op: int, work: Callable[[], None]) -> None:
        """Do what is put into the stream otherwise than by a launch, and note its time as that of an op."""
        driver = self._driver
        while len(self._events) < 2:
            self._events.append(driver.create_event())
        begin, end = self._events[:2]
        driver.record(begin, self._stream)
        work()
        driver.record(end, self._stream)
        with with_wait_hint:
            driver.synchronize(self._stream)
        spent = driver.elapsed_ms(begin, end)
        self.times.append(KernelTime(op, self._now, self._now + spent))
        self._now += spent

    def _fill(
        self,
        graph: Handle,
        launches: Sequence[Launch],
        events: Sequence[Handle],
        roots: Sequence[int],
    ) -> None:
        """Add an event, each kernel with an event behind it, and one event more."""
        driver = self._driver
        last = driver.add_event_node(graph, events[0], ())
        for launch, event in zip(launches, events[1:], strict=False):
            kernel = self._kernels[launch.kernel]
            with attributed_to(launch.op):
                words = arguments_of(kernel, launch.words, roots)
                last = driver.add_kernel_node(graph, kernel, launch.tiles, words, [last])
            last = driver.add_event_node(graph, event, [last])
        driver.add_event_node(graph, events[-1], [last])

    def _note(self, launches: Sequence[Launch], between: Sequence[float]) -> None:
        """Note the times from those between events; the last two have nothing between them.

        No event takes longer than the shortest time between two, whatever has delayed the last ones.
        """
        times, event = between[:-1], min(between)
        for launch, time in zip(launches, times, strict=True):
            end = self._now + time - event
            self.times.append(KernelTime(launch.op, self._now, end))
            self.events_ms += event
            self._now = end

    def close(self) -> None:
        """Give the events back."""
        for event in self._events:
            self._driver.destroy_event(event)
        self._events.clear()
