"""Layered graph layout: rows from top to bottom, each edge leading down, few crossings.

After K. Sugiyama, S. Tagawa and M. Toda (1981): a node's row is its longest path from a source; an edge
over several rows passes through an empty place in each; rows are ordered by the mean position of
neighbours, up and down a few times, where it counts at which place of a box an edge ends, and the order
with the fewest crossings is taken; then every node moves towards its neighbours as far as its row allows.
Rows and their order do not depend on the sizes of nodes: a node that grows moves its neighbours aside and
nothing else, so the page of `dlc show --html` keeps them and does the last step alone.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SWEEPS = 8
SOURCE_WEIGHT = 0.02
"""The weight of a node without predecessors in the placement of a crowded row."""
GAP = 24.0
"""Least distance between neighbours of a row."""


@dataclass(frozen=True, slots=True)
class Edge:
    """From a node to a later one, by their numbers; the value is operand `port` of the one, and result
    `result` of the other, both counted from the left."""

    source: int
    target: int
    port: int = 0
    result: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The row and the centre of each node, and through which (row, x) each edge passes.

    `order` has the numbers of each row from left to right; those after the last node are the places
    through which edges pass, and `places` names those of each edge.
    """

    rows: tuple[int, ...]
    centres: tuple[float, ...]
    routes: tuple[tuple[tuple[int, float], ...], ...]
    width: float
    order: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], ...]

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.order)


@dataclass(slots=True, eq=False)
class _Node:
    number: int
    row: int
    left: float
    right: float
    x: float = 0.0
    above: list[_Link] = field(default_factory=list["_Link"])
    below: list[_Link] = field(default_factory=list["_Link"])


@dataclass(slots=True, eq=False)
class _Link:
    """A piece of an edge from one row to the next, with the places on its ends: -0.5 is left, 0.5 right."""

    upper: _Node
    lower: _Node
    leaves: float
    arrives: float


def lay_out(
    extents: Sequence[tuple[float, float]],
    edges: Sequence[Edge],
    first: Collection[int] = (),
    last: Collection[int] = (),
) -> Layout:
    """Places for nodes that reach so far to the left and to the right of their centres.

    Edges lead from lower to higher numbers; nodes of `first` are in the top row, of `last` in the bottom
    row.

    >>> layout = lay_out([(5, 5), (5, 5), (5, 5)], [Edge(0, 2), Edge(1, 2)])
    >>> layout.rows, layout.centres
    ((0, 0, 1), (5.0, 39.0, 22.0))
    """
    rows = _rows(len(extents), edges, first, last)
    nodes = [
        _Node(number, row, *extent)
        for number, (row, extent) in enumerate(zip(rows, extents, strict=True))
    ]
    table: list[list[_Node]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node in nodes:
        table[node.row].append(node)
    numbers = itertools.count(len(nodes))
    between = [_route(edge, ends, table, nodes, numbers) for edge, ends in _ends(nodes, edges)]
    _order(table)
    _spread(table)
    _lean(table)
    left = min((node.x - node.left for row in table for node in row), default=0.0)
    right = max((node.x + node.right for row in table for node in row), default=0.0)
    return Layout(
        tuple(rows),
        tuple(node.x - left for node in nodes),
        tuple(tuple((node.row, node.x - left) for node in route) for route in between),
        right - left,
        tuple(tuple(node.number for node in row) for row in table),
        tuple(tuple(node.number for node in route) for route in between),
    )


def _rows(
    count: int, edges: Sequence[Edge], first: Collection[int], last: Collection[int]
) -> list[int]:
    """The longest path to each node; a source stands just above the first that needs it."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        above[edge.target].append(edge.source)
        below[edge.source].append(edge.target)
    rows = [0] * count
    top = 1 if first else 0
    for node in range(count):
        if node not in first:
            rows[node] = max([rows[other] + 1 for other in above[node]], default=top)
    for node in range(count):
        if node not in first and not above[node] and below[node]:
            rows[node] = max(top, min(rows[other] for other in below[node]) - 1)
    bottom = max([rows[node] for node in range(count) if node not in last], default=-1) + 1
    for node in last:
        rows[node] = bottom
    return rows


def _ends(
    nodes: Sequence[_Node], edges: Sequence[Edge]
) -> Iterator[tuple[Edge, tuple[float, float]]]:
    """Each edge with where it leaves its source and arrives at its target."""
    ports, results = [0] * len(nodes), [0] * len(nodes)
    for edge in edges:
        ports[edge.target] = max(ports[edge.target], edge.port + 1)
        results[edge.source] = max(results[edge.source], edge.result + 1)
    for edge in edges:
        leaves = (edge.result + 1) / (results[edge.source] + 1) - 0.5
        yield edge, (leaves, (edge.port + 1) / (ports[edge.target] + 1) - 0.5)


def _route(
    edge: Edge,
    ends: tuple[float, float],
    table: list[list[_Node]],
    nodes: Sequence[_Node],
    numbers: Iterator[int],
) -> list[_Node]:
    """The empty places through which an edge passes, linked to each other."""
    source, target = nodes[edge.source], nodes[edge.target]
    places = [_Node(next(numbers), row, 0.0, 0.0) for row in range(source.row + 1, target.row)]
    for place in places:
        table[place.row].append(place)
    for upper, lower in itertools.pairwise([source, *places, target]):
        leaves, arrives = ends
        link = _Link(
            upper, lower, leaves if upper is source else 0.0, arrives if lower is target else 0.0
        )
        upper.below.append(link)
        lower.above.append(link)
    return places


def _order(table: list[list[_Node]]) -> None:
    """Order each row by the mean position of its neighbours in the row before, then in the one after."""
    position: dict[_Node, int] = {}

    def sort(row: list[_Node], key: Callable[[_Node], float]) -> None:
        row.sort(key=key)
        position.update((node, index) for index, node in enumerate(row))

    def from_above(node: _Node) -> float:
        return _mean([position[link.upper] + link.leaves for link in node.above], position[node])

    def from_below(node: _Node) -> float:
        return _mean([position[link.lower] + link.arrives for link in node.below], position[node])

    for row in table:
        position.update((node, index) for index, node in enumerate(row))
    fewest, best = _crossings(table, position), [list(row) for row in table]
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for row in table[1:] if down else reversed(table[:-1]):
            sort(row, from_above if down else from_below)
        crossings = _crossings(table, position)
        if crossings < fewest:
            fewest, best = crossings, [list(row) for row in table]
    table[:] = best


def _mean(positions: Sequence[float], own: float) -> float:
    return sum(positions) / len(positions) if positions else own


def _crossings(table: Sequence[Sequence[_Node]], position: Mapping[_Node, int]) -> int:
    """How many pairs of edges from one row to the next end in another order than they begin."""
    count = 0
    for row in table:
        ends = sorted(
            (position[link.upper] + link.leaves, position[link.lower] + link.arrives)
            for node in row
            for link in node.below
        )
        seen: list[float] = []
        for _, end in ends:
            count += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    return count


def _spread(table: list[list[_Node]]) -> None:
    """Give each node an x: in order and apart, near the middle of its neighbours."""
    for row in table:
        x = 0.0
        for node in row:
            node.x = x + node.left
            x += node.left + node.right + GAP
    for sweep in range(2 * SWEEPS):
        for row in table if sweep % 2 == 0 else reversed(table):
            wanted = [_middle(node, sweep % 2 == 0) for node in row]
            _settle(row, wanted)


def _lean(table: list[list[_Node]]) -> None:
    """Put a title, the first of its row and without edges, above the left end of everything else."""
    linked = [node for row in table for node in row if node.above or node.below]
    left = min([node.x - node.left for node in linked], default=0.0)
    for row in table if linked else ():
        if not (row[0].above or row[0].below):
            free = row[1].x - row[1].left - GAP - row[0].right if len(row) > 1 else math.inf
            row[0].x = min(left + row[0].left, free)


def _middle(node: _Node, from_above: bool) -> float:
    # What only feeds in (a weight, a constant) stands beside the way through and does not bend it.
    every = [link.upper for link in node.above]
    above, below = (
        [other for other in every if other.above] or every,
        [link.lower for link in node.below],
    )
    near = (above or below) if from_above else (below or above)
    return sum(other.x for other in near) / len(near) if near else node.x


@dataclass(frozen=True, slots=True)
class _Block:
    """Neighbours that move as one: the weighted sum of what they want, their weight, and their number."""

    total: float
    weight: float
    members: int

    @property
    def place(self) -> float:
        return self.total / self.weight

    def joined(self, other: _Block) -> _Block:
        """Both as one."""
        return _Block(
            self.total + other.total, self.weight + other.weight, self.members + other.members
        )


def _settle(row: Sequence[_Node], centres: Sequence[float]) -> None:
    """The places nearest to the wanted ones (least squares) that keep order and distance.

    Nodes that would collide form a block that moves as one, to the mean of what its members want.
    """
    blocks: list[_Block] = []
    offsets: list[float] = []
    for index, node in enumerate(row):
        step = 0.0 if index == 0 else row[index - 1].right + node.left + GAP
        offsets.append(step + (offsets[-1] if offsets else 0.0))
        weight = 1.0 if node.above else SOURCE_WEIGHT
        block = _Block(weight * (centres[index] - offsets[index]), weight, 1)
        while blocks and blocks[-1].place >= block.place:
            block = blocks.pop().joined(block)
        blocks.append(block)
    index = 0
    for block in blocks:
        for _ in range(block.members):
            row[index].x = block.place + offsets[index]
            index += 1
