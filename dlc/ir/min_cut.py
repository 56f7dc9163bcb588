"""Minimum cut: the cheapest partition of nodes into two sides, with costs of nodes and of separated pairs.

A maximum flow finds it (Edmonds and Karp 1972): exact, and the same in every run.

>>> cut = Cut()
>>> cut.apart("a", first=5, second=1)
>>> cut.apart("b", first=2, second=3)
>>> cut.together("a", "b", 1)
>>> smallest_cut(cut)
({'a'}, 4)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

NodeT = TypeVar("NodeT", bound=Hashable)

_FIRST: Final = "\0first"
_SECOND: Final = "\0second"
"""The source and the target of the flow."""


@dataclass(slots=True)
class Cut(Generic[NodeT]):
    """A cut problem: the cost of each node on either side, and of pairs of nodes on different sides."""

    _capacities: dict[Hashable, dict[Hashable, int]] = field(
        default_factory=dict[Hashable, dict[Hashable, int]]
    )
    nodes: dict[NodeT, None] = field(default_factory=dict)

    def apart(self, node: NodeT, *, first: int, second: int) -> None:
        """Add the costs of a node on the first and on the second side."""
        self.nodes[node] = None
        self._add(_FIRST, node, second, 0)
        self._add(node, _SECOND, first, 0)

    def together(self, one: NodeT, other: NodeT, cost: int) -> None:
        """Add a cost for two nodes on different sides."""
        self.nodes |= {one: None, other: None}
        self._add(one, other, cost, cost)

    def follows(self, one: NodeT, other: NodeT, cost: int) -> None:
        """Add a cost for `one` on the first side with `other` on the second."""
        self.nodes |= {one: None, other: None}
        self._add(one, other, cost, 0)

    def _add(self, one: Hashable, other: Hashable, there: int, back: int) -> None:
        for start, end, capacity in ((one, other, there), (other, one, back)):
            row = self._capacities.setdefault(start, {})
            row[end] = row.get(end, 0) + capacity

    @property
    def capacities(self) -> dict[Hashable, dict[Hashable, int]]:
        """The capacities of the flow network, as a copy."""
        return {node: dict(row) for node, row in self._capacities.items()}


def smallest_cut(cut: Cut[NodeT]) -> tuple[set[NodeT], int]:
    """The smallest second side of all minimum cuts, and the cost of such a cut."""
    residual = cut.capacities
    total = 0
    while (previous := _reached(residual, _FIRST, _SECOND)).get(_SECOND) is not None:
        path: list[Hashable] = [_SECOND]
        while path[-1] != _FIRST:
            path.append(previous[path[-1]])
        edges = list(zip(path[1:], path, strict=False))
        flow = min(residual[source][target] for source, target in edges)
        for source, target in edges:
            residual[source][target] -= flow
            residual[target][source] += flow
        total += flow
    backward: dict[Hashable, dict[Hashable, int]] = {node: {} for node in residual}
    for source, row in residual.items():
        for target, capacity in row.items():
            backward[target][source] = capacity
    behind = _reached(backward, _SECOND)
    return {node for node in cut.nodes if node in behind}, total


def _reached(
    residual: dict[Hashable, dict[Hashable, int]], start: Hashable, end: Hashable = None
) -> dict[Hashable, Hashable]:
    """The nodes reachable from `start` in the residual network, breadth first, with their predecessors.

    The search stops at `end`.
    """
    previous = {start: start}
    pending = deque([start])
    while pending and end not in previous:
        node = pending.popleft()
        for other, capacity in residual.get(node, {}).items():
            if capacity and other not in previous:
                previous[other] = node
                pending.append(other)
    return previous
