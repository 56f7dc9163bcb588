"""Arena allocation: best fit, then branch and bound for the least capacity that holds all buffers.

Where best fit reaches the lower bound it is optimal. Otherwise buffers that are sure to fit are set aside,
the rest is split into components whose lifetimes do not overlap, and each is searched for a placement at
its lower bound, then at capacities between that and the best so far, with budgets that grow from round to
round. A search gives up soon and restarts with another order of buffers: MiniMalloc's three, then random
perturbations of them. A search that begins badly seldom recovers, and a restart may succeed at once
(Gomes, Selman and Kautz, AAAI 1998).

Only the steps are limited, never the time, and the random orders have a fixed seed: the same buffers always
get the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena import exact
from dlc.planning.arena.buffers import Buffer, height, lower_bound
from dlc.planning.arena.exact import FOUND, IMPOSSIBLE, STEPS, UNKNOWN, Search
from dlc.planning.arena.greedy import best_fit, first_fit, sure_to_fit
from dlc.planning.arena.problem import Problem

STEPS_FOR_EACH, MOST_STEPS = 200_000, 100_000_000
"""Steps of searches by default, per buffer and at most: some tenths of a second."""
MAX_SEARCHED = 2_000
"""The most buffers for a search: its tables grow with the pairs of them."""
MAX_TOTAL = 1 << 62
"""Buffers of larger total size are not searched: offsets are 64-bit integers."""
FIRST_LIMIT = 32
"""The first budget, in multiples of the steps that place all buffers without backtracking."""
COARSENESS = 256
"""Capacities that differ by less than this fraction (1/n) are not both tried in one round."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """An offset for each buffer, the height, and `least`, a lower bound on every height; all in bytes."""

    offsets: tuple[int, ...]
    height: int
    least: int


def place(
    buffers: Sequence[Buffer],
    *,
    effort: int = 1,
    steps: int | None = None,
    compiler: Compiler = interpreted,
) -> Placement:
    """An offset for each buffer such that no two that are live together overlap.

    `effort` multiplies the `steps` of the searches, which the `compiler` turns into machine code. Up to 12
    buffers without alignment get an optimal placement.

    >>> place([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)]).height
    192
    """
    bound = lower_bound(buffers)
    offsets = best_fit(buffers)
    greedy = Placement(tuple(offsets), height(buffers, offsets), bound)
    is_skipped = len(buffers) > MAX_SEARCHED or sum(b.size for b in buffers) >= MAX_TOTAL
    if greedy.height == bound or is_skipped:
        return greedy
    if steps is None:
        steps = min(MOST_STEPS, STEPS_FOR_EACH * len(buffers))
    search = compiler(exact.search, exact.Tables)
    improved = _search_components(buffers, greedy, Work(effort * steps, search))
    return improved if improved.height <= greedy.height else replace(greedy, least=improved.least)


def _search_components(buffers: Sequence[Buffer], greedy: Placement, work: Work) -> Placement:
    """Search each component, and add the buffers that are sure to fit."""
    postponed = sure_to_fit(buffers, greedy.least)
    members = list(_components(buffers, set(postponed)))
    components = [
        Component.of(
            [buffers[index] for index in component],
            [greedy.offsets[index] for index in component],
            work,
        )
        for component in members
    ]
    least = _lower_the_highest(components, greedy.least, work)
    offsets = [-1] * len(buffers)
    for indices, component in zip(members, components, strict=True):
        for index, offset in zip(indices, component.offsets, strict=True):
            offsets[index] = offset
    first_fit(buffers, offsets, reversed(postponed))
    return Placement(tuple(offsets), height(buffers, offsets), least)


def _lower_the_highest(components: Sequence[Component], lower_bound_bytes: int, work: Work) -> int:
    """Improve the highest component again and again; returns a lower bound on the height of all."""
    least = lower_bound_bytes
    while components and work.left > 0:
        highest = max(components, key=lambda component: component.height)
        if highest.height <= least:
            break
        highest.improve(least, work)
        least = max(least, highest.least)
    return least


def _components(buffers: Sequence[Buffer], left_out: set[int]) -> Iterator[list[int]]:
    """The indices of buffers, split at the moments that no lifetime crosses."""
    indices: list[int] = []
    last = -1
    for index in sorted(set(range(len(buffers))) - left_out, key=lambda i: buffers[i].first):
        if indices and buffers[index].first > last:
            yield indices
            indices = []
        indices.append(index)
        last = max(last, buffers[index].last)
    if indices:
        yield indices


@dataclass(slots=True)
class Work:
    """The steps left, and the search that takes them."""

    left: int
    search: Search


@dataclass(slots=True)
class Budget:
    """The steps of the next turn for one kind of capacity, the steps spent, and the searches begun."""

    limit: int = 0
    spent: int = 0
    tries: int = 0


@dataclass(slots=True)
class Component:
    """Buffers with connected lifetimes, their best placement, and the least height not ruled out."""

    problem: Problem
    offsets: list[int]
    height: int
    least: int
    once: int = 0
    """The steps that place all buffers without backtracking."""
    failed: int = 0
    """The last capacity at which a search gave up."""
    at_goal: Budget = field(default_factory=Budget)
    between: Budget = field(default_factory=Budget)
    random: Random = field(default_factory=lambda: Random(SEED))

    @classmethod
    def of(cls, buffers: Sequence[Buffer], offsets: Sequence[int], work: Work) -> Component:
        """Buffers with these offsets, or those of a search with unlimited capacity if they are lower."""
        part = cls(
            Problem.of(buffers), list(offsets), height(buffers, offsets), lower_bound(buffers)
        )
        for order in part.problem.orders:
            part._search(order, MAX_TOTAL, MAX_TOTAL, work)
            part.once = max(part.once, part.problem.tables.words[STEPS])
        part.at_goal.limit = part.between.limit = FIRST_LIMIT * part.once
        return part

    def improve(self, needed: int, work: Work) -> None:
        """Try `needed` bytes, or bisect between the last failure and the best height.

        Each gets half of the steps: the optimum may be near, or out of reach.
        """
        goal = max(self.least, needed)
        if self.at_goal.spent <= self.between.spent:
            self._attempt(goal, self.at_goal, work)
            self.at_goal.limit *= 2
            return
        unit = self.problem.unit
        self.failed = max(self.failed, goal)
        if self.height - self.failed <= max(unit, self.failed // COARSENESS):
            self.failed = goal
            self.between.limit *= 2
        middle = self.failed + (self.height - self.failed) // (2 * unit) * unit
        if self._attempt(middle, self.between, work) != FOUND:
            self.failed = middle

    def _attempt(self, capacity: int, budget: Budget, work: Work) -> int:
        """Search below a capacity, with restarts in other orders, for the steps of a turn."""
        before = work.left
        stop_at = max(0, before - budget.limit)
        outcome = UNKNOWN
        while outcome == UNKNOWN and work.left > stop_at:
            limit = min(self.once * luby(budget.tries), work.left - stop_at)
            outcome = self._search(self._order(budget.tries), capacity, limit, work)
            budget.tries += 1
        if outcome == IMPOSSIBLE:
            self.least = (capacity // self.problem.unit + 1) * self.problem.unit
        budget.spent += before - work.left
        return outcome

    def _order(self, index: int) -> Sequence[int]:
        """The order of the search with this index."""
        orders = self.problem.orders
        if index < len(orders):
            return orders[index]
        return self.problem.perturbed_order(self.random)

    def _search(self, order: Sequence[int], capacity: int, limit: int, work: Work) -> int:
        """One search; its placement is kept if it is the lowest so far."""
        tables, unit = self.problem.tables, self.problem.unit
        self.problem.put_in_order(order)
        outcome = work.search(tables, capacity // unit, limit)
        work.left -= max(1, tables.words[STEPS])
        if outcome == FOUND:
            ends = [offset + size for offset, size in zip(tables.offset, tables.size, strict=True)]
            if max(ends) * unit < self.height:
                self.height = max(ends) * unit
                self.offsets = [offset * unit for offset in tables.offset]
        return outcome


def luby(number: int) -> int:
    """The Luby sequence of restart limits: 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 1 ..

    It is within a logarithmic factor of the optimal limits (Luby, Sinclair and Zuckerman 1993).

    >>> [luby(number) for number in range(7)]
    [1, 1, 2, 1, 1, 2, 4]
    """
    number += 1
    while number & (number + 1):
        number -= (1 << number.bit_length() - 1) - 1
    return (number + 1) // 2
