"""From buffers to the tables of the exact search, and the orders in which it tries them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from random import Random

from dlc.planning.arena.buffers import Buffer, meeting
from dlc.planning.arena.exact import Ints, Tables

LEAST_TRAIL, MOST_TRAIL = 1 << 14, 1 << 22
"""The bounds on the length of the undo trail: a search that needs more gives up."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Buffers of at least one byte in the form of the search: sizes in units of `unit` bytes."""

    tables: Tables
    unit: int
    orders: tuple[tuple[int, ...], ...]
    """The three orders of MiniMalloc in which buffers at equal offsets are tried."""
    keys: tuple[tuple[int, int, int], ...]
    """For each buffer its largest load, its number of sections, and its area: bytes times moments."""

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> Problem:
        """The problem of placing these buffers."""
        unit, alignments = _units(buffers)
        members = _sections(buffers)
        first = [len(members)] * len(buffers)
        end = [0] * len(buffers)
        for section, alive in enumerate(members):
            for index in alive:
                first[index] = min(first[index], section)
                end[index] = section + 1
        sizes = [buffer.size // unit for buffer in buffers]
        loads = [sum(sizes[index] for index in alive) for alive in members]
        keys = tuple(
            (max(loads[first[i] : end[i]]), end[i] - first[i], sizes[i] * (b.last - b.first + 1))
            for i, b in enumerate(buffers)
        )
        tables = _tables(sizes, alignments, first, end, members)
        return cls(tables, unit, tuple(_ranked(keys, priorities) for priorities in _ORDERS), keys)

    def perturbed_order(self, random: Random) -> tuple[int, ...]:
        """One of the orders, with each key perturbed by up to 30 %."""
        keys = [tuple(k * random.uniform(0.7, 1.3) for k in row) for row in self.keys]
        return _ranked(keys, random.choice(_ORDERS))

    def put_in_order(self, order: Sequence[int]) -> None:
        """Make the next search try buffers at equal offsets in this order."""
        self.tables.order[:] = array("q", order)


_LOAD, _SECTIONS, _AREA = 0, 1, 2
_ORDERS = (
    (_SECTIONS, _AREA, _LOAD),
    (_LOAD, _AREA, _SECTIONS),
    (_LOAD, _SECTIONS, _AREA),
)
"""The keys of the orders, largest first: MiniMalloc's WAT, TAW and TWA."""


def _ranked(keys: Sequence[tuple[float, ...]], priorities: tuple[int, ...]) -> tuple[int, ...]:
    ranks = [tuple(-row[priority] for priority in priorities) for row in keys]
    return tuple(sorted(range(len(keys)), key=ranks.__getitem__))


def _units(buffers: Sequence[Buffer]) -> tuple[int, list[int]]:
    """The largest unit that divides all sizes and offsets, and the alignments in that unit."""
    unit = math.gcd(*[buffer.size for buffer in buffers])
    if all(unit % buffer.alignment == 0 for buffer in buffers):
        return unit, [1] * len(buffers)
    unit = math.gcd(unit, *[buffer.alignment for buffer in buffers])
    return unit, [buffer.alignment // unit for buffer in buffers]


def _sections(buffers: Sequence[Buffer]) -> list[list[int]]:
    """The maximal sets of buffers live together (maximal cliques of the interval graph), in order of time.

    Such a set is complete just before one of its buffers ends, if one has begun since the last set.
    """
    starts = sorted(range(len(buffers)), key=lambda i: buffers[i].first)
    sections: list[list[int]] = []
    alive: list[int] = []
    for index in starts:
        now = buffers[index].first
        if any(buffers[other].last < now for other in alive):
            sections.append(alive)
            alive = [other for other in alive if buffers[other].last >= now]
        alive = [*alive, index]
    sections.append(alive)
    return sections


def _tables(
    sizes: Sequence[int],
    alignments: Sequence[int],
    first: Sequence[int],
    end: Sequence[int],
    members: Sequence[Sequence[int]],
) -> Tables:
    count, sections = len(sizes), len(members)
    meets = meeting([(begin, stop - 1) for begin, stop in zip(first, end, strict=True)])
    pairs = sum(map(len, meets)) // 2
    # On one path of the search each pair raises a `low` once, and each placement the floor and the top of
    # each of its sections; lifts add to that.
    trail = min(MOST_TRAIL, LEAST_TRAIL + 2 * (pairs + count * (2 * sections + 1)))
    parts = count + sections + 1
    return Tables(
        size=_ints(sizes),
        alignment=_ints(alignments),
        first=_ints(first),
        end=_ints(end),
        meets=_ints(chain(*meets)),
        meets_from=_starts(meets),
        members=_ints(chain(*members)),
        members_from=_starts(members),
        order=_ints(range(count)),
        offset=_zeros(count),
        words=_zeros(5),
        low=_zeros(count),
        next=_zeros(count + 1),
        before=_zeros(count + 1),
        is_placed=_zeros(count),
        floor=_zeros(sections),
        top=_zeros(sections),
        load=_zeros(sections),
        crossing=_zeros(sections),
        choices=_zeros(sections),
        is_stale=_zeros(sections),
        undo_kind=_zeros(trail),
        undo_index=_zeros(trail),
        undo_value=_zeros(trail),
        begin=_zeros(count + 1),
        stop=_zeros(count + 1),
        parent=_zeros(count + 1),
        chosen=_zeros(count + 1),
        trail=_zeros(count + 1),
        rest=_zeros(count + 1),
        pending=_zeros(count + 1),
        part_begin=_zeros(parts),
        part_stop=_zeros(parts),
        part_parent=_zeros(parts),
        part_next=_zeros(parts),
    )


def _ints(numbers: Iterable[int]) -> Ints:
    return array("q", numbers)


def _zeros(count: int) -> Ints:
    return array("q", bytes(8 * count))


def _starts(lists: Sequence[Sequence[int]]) -> Ints:
    """The index at which each list begins in their concatenation, and where the last one ends."""
    return _ints(accumulate(map(len, lists), initial=0))
