"""Orders that may need less memory than program order: list scheduling from either end, and depth first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from dlc.planning.scheduling.tasks import Order, TaskGraph


def candidates(graph: TaskGraph) -> Iterator[tuple[str, Order]]:
    """Program order and the alternatives, each with its name."""
    yield "as written", range(len(graph.tasks))
    yield "forwards", forwards(graph)
    yield "backwards", backwards(graph)
    yield "depth first", depth_first(graph)


def forwards(graph: TaskGraph) -> Order:
    """List scheduling: always the ready task that frees most bytes, less those that it writes.

    >>> from dlc.planning.scheduling.tasks import Task
    >>> makes = [Task((), (k,), ()) for k in range(2)]
    >>> frees = [Task((k,), (k + 2,), (k,)) for k in range(2)]
    >>> list(forwards(TaskGraph([*makes, *frees], [8, 8, 1, 1])))
    [0, 2, 1, 3]
    """
    readers_left = [len(readers) for readers in graph.readers]
    gain = [-written for written in graph.written_bytes]
    for index, task in enumerate(graph.tasks):
        gain[index] += sum(graph.bytes[value] for value in task.reads if readers_left[value] == 1)
    queue = _Queue(graph.before, graph.after, gain, first=1)
    order: list[int] = []
    for index in queue:
        order.append(index)
        for value in graph.tasks[index].reads:
            readers_left[value] -= 1
            if readers_left[value] == 1:
                queue.add(graph.bytes[value], graph.readers[value])
    return order


def backwards(graph: TaskGraph) -> Order:
    """List scheduling from the end: always the ready task before which least is live."""
    live = [False] * len(graph.bytes)
    gain = [
        written - sum(graph.bytes[value] for value in task.reads)
        for written, task in zip(graph.written_bytes, graph.tasks, strict=True)
    ]
    queue = _Queue(graph.after, graph.before, gain, first=-1)
    order: list[int] = []
    for index in queue:
        order.append(index)
        for value in graph.tasks[index].reads:
            if not live[value]:
                live[value] = True
                queue.add(graph.bytes[value], graph.readers[value])
    return order[::-1]


class _Queue:
    """The ready list of a list scheduler: yields every task of a graph, always a ready one of highest gain.

    Among equal gains the lowest index comes first, or the highest where `first` is -1.
    """

    def __init__(
        self,
        needs: Sequence[Sequence[int]],
        followers: Sequence[Sequence[int]],
        gain: list[int],
        first: int,
    ) -> None:
        self._missing = [len(each) for each in needs]
        self._followers = followers
        self._gain = gain
        self._first = first
        self._ready: list[tuple[int, int]] = []
        for index, count in enumerate(self._missing):
            if not count:
                self._enter(index)

    def __iter__(self) -> Iterator[int]:
        while self._ready:
            negative_gain, ranked = heappop(self._ready)
            index = ranked * self._first
            if self._missing[index] or -negative_gain != self._gain[index]:
                continue  # scheduled already, or queued with an outdated gain
            self._missing[index] = -1
            yield index
            for follower in self._followers[index]:
                self._missing[follower] -= 1
                if not self._missing[follower]:
                    self._enter(follower)

    def add(self, amount: int, indices: Sequence[int]) -> None:
        """Raise the gain of some tasks."""
        for index in indices:
            self._gain[index] += amount
            if not self._missing[index]:
                self._enter(index)

    def _enter(self, index: int) -> None:
        heappush(self._ready, (-self._gain[index], index * self._first))


def depth_first(graph: TaskGraph) -> Order:
    """Each task right after its operands, of which the one comes first whose peak most exceeds its result.

    Sethi and Ullman number the operands of an expression so (JACM 1970).
    """
    peaks: list[int] = []
    operands: list[list[int]] = []
    for index, before in enumerate(graph.before):
        operands.append(sorted(before, key=lambda k: (graph.written_bytes[k] - peaks[k], k)))
        live = most = 0
        for operand in operands[-1]:
            most = max(most, live + peaks[operand])
            live += graph.written_bytes[operand]
        peaks.append(max(most, live + graph.written_bytes[index] + graph.tasks[index].inside))
    order: list[int] = []
    seen: set[int] = set()
    for index, after in enumerate(graph.after):
        if not after:
            order += _postorder(index, operands, seen)
    return order


def _postorder(root: int, operands: Sequence[Sequence[int]], seen: set[int]) -> Iterator[int]:
    """The unvisited tasks under `root`, in postorder."""
    pending = [(root, iter(operands[root]))]
    while pending:
        index, missing = pending[-1]
        operand = next((operand for operand in missing if operand not in seen), None)
        if operand is not None:
            seen.add(operand)
            pending.append((operand, iter(operands[operand])))
            continue
        yield index
        pending.pop()
