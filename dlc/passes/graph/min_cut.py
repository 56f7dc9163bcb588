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
from dataclasses import dataclass, field

_FIRST, _SECOND = "\0first", "\0second"


@dataclass(slots=True)
class Cut:
    """A cut problem: the cost of each node on either side, and of pairs of nodes on different sides."""

    _capacities: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def apart(self, name: str, *, first: int, second: int) -> None:
        """Add the costs of a node on the first and on the second side."""
        self._add(_FIRST, name, second, 0)
        self._add(name, _SECOND, first, 0)

    def together(self, one: str, other: str, cost: int) -> None:
        """Add a cost for two nodes on different sides."""
        self._add(one, other, cost, cost)

    def follows(self, one: str, other: str, cost: int) -> None:
        """Add a cost for `one` on the first side with `other` on the second."""
        self._add(one, other, cost, 0)

    def _add(self, one: str, other: str, there: int, back: int) -> None:
        for start, end, capacity in ((one, other, there), (other, one, back)):
            row = self._capacities.setdefault(start, {})
            row[end] = row.get(end, 0) + capacity

    @property
    def capacities(self) -> dict[str, dict[str, int]]:
        """The capacities of the flow network, as a copy."""
        return {name: dict(row) for name, row in self._capacities.items()}


def smallest_cut(cut: Cut) -> tuple[set[str], int]:
    """The smallest second side of all minimum cuts, and the cost of such a cut."""
    residual = cut.capacities
    total = 0
    while (path_to := _reached(residual, _FIRST)).get(_SECOND) is not None:
        path = [_SECOND]
        while path[-1] != _FIRST:
            path.append(path_to[path[-1]])
        edges = list(zip(path[1:], path, strict=False))
        flow = min(residual[source][target] for source, target in edges)
        for source, target in edges:
            residual[source][target] -= flow
            residual[target][source] += flow
        total += flow
    backward: dict[str, dict[str, int]] = {name: {} for name in residual}
    for source, row in residual.items():
        for target, capacity in row.items():
            backward[target][source] = capacity
    second = set(_reached(backward, _SECOND)) - {_SECOND}
    return second, total


def _reached(residual: dict[str, dict[str, int]], start: str) -> dict[str, str]:
    """The nodes reachable from `start` in the residual network, breadth first, with their predecessors."""
    previous = {start: start}
    pending = deque([start])
    while pending:
        name = pending.popleft()
        for other, capacity in residual.get(name, {}).items():
            if capacity and other not in previous:
                previous[other] = name
                pending.append(other)
    return previous
