"""The way from quick to thorough: best fit, then a search for the least capacity that holds all.

Where best fit reaches the lower bound there is nothing to gain. Else what is sure to fit is left out,
what is apart in time is looked at apart, and each part is searched for a placement at its bound, then
at capacities between that and the best so far. What is done for one of them before it is another's turn
grows from round to round. A search gives up soon, and begins again with another order of buffers: the
three that MiniMalloc has, then orders drawn at random around them; for one that begins badly seldom
recovers, and one that begins otherwise may end at once (Gomes, Selman and Kautz, AAAI 1998).

Only the work is limited, never the time, and the drawing begins at a fixed seed: the same buffers always
lie at the same offsets.
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
"""Steps of searches by default, for each buffer and altogether at most: some tenths of a second."""
MAX_SEARCHED = 2_000
"""So many buffers are searched for; the tables grow with the pairs of them."""
MAX_TOTAL = 1 << 62
"""The sizes of what is searched for sum up to less."""
FIRST_LIMIT = 32
"""How often the first searches together could place all buffers; the shortest one can once."""
COARSENESS = 256
"""Capacities closer to each other than this part of them are not both tried in one round."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """An offset for each buffer, and the least height known to be needed: at least the lower bound."""

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
    """An offset for each buffer such that no two alive together overlap.

    A larger `effort` allows so many times the usual `steps` of searches, which the `compiler` makes quick.
    At most 12 buffers without alignment are placed in the best way there is.

    >>> place([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)]).height
    192
    """
    bound = lower_bound(buffers)
    offsets = best_fit(buffers)
    found = Placement(tuple(offsets), height(buffers, offsets), bound)
    too_large = len(buffers) > MAX_SEARCHED or sum(b.size for b in buffers) >= MAX_TOTAL
    if found.height == bound or too_large:
        return found
    if steps is None:
        steps = min(MOST_STEPS, STEPS_FOR_EACH * len(buffers))
    search = compiler(exact.search, exact.Tables)
    searched = _search_parts(buffers, found, Work(effort * steps, search))
    return searched if searched.height <= found.height else replace(found, least=searched.least)


def _search_parts(buffers: Sequence[Buffer], found: Placement, work: Work) -> Placement:
    """Search what is apart in time by itself, and put in what was sure to fit."""
    easy = sure_to_fit(buffers, found.least)
    members = list(_parts(buffers, set(easy)))
    parts = [
        Part.of([buffers[index] for index in part], [found.offsets[index] for index in part], work)
        for part in members
    ]
    least = _lower_the_highest(parts, found.least, work)
    offsets = [-1] * len(buffers)
    for numbers, part in zip(members, parts, strict=True):
        for index, offset in zip(numbers, part.offsets, strict=True):
            offsets[index] = offset
    first_fit(buffers, offsets, reversed(easy))
    return Placement(tuple(offsets), height(buffers, offsets), least)


def _lower_the_highest(parts: Sequence[Part], bound: int, work: Work) -> int:
    """Search in the highest part, again and again; gives the least height that all need together."""
    least = bound
    while parts and work.left > 0:
        highest = max(parts, key=lambda part: part.height)
        if highest.height <= least:
            break
        highest.improve(least, work)
        least = max(least, highest.least)
    return least


def _parts(buffers: Sequence[Buffer], left_out: set[int]) -> Iterator[list[int]]:
    """The buffers by number, cut at the moments that none of them crosses."""
    part: list[int] = []
    last = -1
    for index in sorted(set(range(len(buffers))) - left_out, key=lambda i: buffers[i].first):
        if part and buffers[index].first > last:
            yield part
            part = []
        part.append(index)
        last = max(last, buffers[index].last)
    if part:
        yield part


@dataclass(slots=True)
class Work:
    """How many steps may still be done, and by which search."""

    left: int
    search: Search


@dataclass(slots=True)
class Share:
    """The steps spent on one kind of capacities and the searches begun, and the steps of its next turn."""

    limit: int = 0
    spent: int = 0
    tries: int = 0


@dataclass(slots=True)
class Part:
    """Buffers that belong together, the best placement so far, and the least height not ruled out."""

    problem: Problem
    offsets: list[int]
    height: int
    least: int
    once: int = 0
    """The steps that it takes to place all buffers without ever going back."""
    failed: int = 0
    """A capacity at which a search gave up lately."""
    at_goal: Share = field(default_factory=Share)
    between: Share = field(default_factory=Share)
    random: Random = field(default_factory=lambda: Random(SEED))

    @classmethod
    def of(cls, buffers: Sequence[Buffer], offsets: Sequence[int], work: Work) -> Part:
        """These buffers with these offsets, or those that a search comes to at once if it has room."""
        part = cls(
            Problem.of(buffers), list(offsets), height(buffers, offsets), lower_bound(buffers)
        )
        for order in part.problem.orders:
            part._search(order, MAX_TOTAL, MAX_TOTAL, work)
            part.once = max(part.once, part.problem.tables.words[STEPS])
        part.at_goal.limit = part.between.limit = FIRST_LIMIT * part.once
        return part

    def improve(self, needed: int, work: Work) -> None:
        """Try `needed` bytes, or a capacity between what has failed lately and what is reached.

        Half of the work is for the one, half for the other: the best may be near, or out of reach.
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

    def _attempt(self, capacity: int, share: Share, work: Work) -> int:
        """Search below a capacity, again and again with other orders, for the steps of a turn."""
        before = work.left
        until = max(0, before - share.limit)
        outcome = UNKNOWN
        while outcome == UNKNOWN and work.left > until:
            limit = min(self.once * luby(share.tries), work.left - until)
            outcome = self._search(self._order(share.tries), capacity, limit, work)
            share.tries += 1
        if outcome == IMPOSSIBLE:
            self.least = (capacity // self.problem.unit + 1) * self.problem.unit
        share.spent += before - work.left
        return outcome

    def _order(self, number: int) -> Sequence[int]:
        """An order for the search with this number."""
        orders = self.problem.orders
        if number < len(orders):
            return orders[number]
        return self.problem.perturbed_order(self.random)

    def _search(self, order: Sequence[int], capacity: int, limit: int, work: Work) -> int:
        """One search, of which the placement is kept if it is the lowest."""
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
    """Limits of searches that begin again and again: 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 1 ..

    That takes little longer than the best limits, which nobody knows (Luby, Sinclair and Zuckerman 1993).

    >>> [luby(number) for number in range(7)]
    [1, 1, 2, 1, 1, 2, 4]
    """
    number += 1
    while number & (number + 1):
        number -= (1 << number.bit_length() - 1) - 1
    return (number + 1) // 2
