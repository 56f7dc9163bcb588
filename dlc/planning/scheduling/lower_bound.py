"""A lower bound on peak memory that holds for every schedule of the tasks.

While a task runs, the values that it reads and writes are live. So is every value that one of its
ancestors writes and one of its descendants reads, since every schedule runs ancestors before the task and
descendants after it. Values that another order could free earlier, or compute later, do not count. A loop
is one unit in every order: the values that it shares with tasks outside are live in all of its iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

MOST_VISITS = 1_000_000
"""The most tasks visited for a bound: each computation of a live set visits all of them."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The values that a task reads and writes, by index.

    A result may overwrite an operand in `over`, which is as large. Of the values in `parts` the task writes
    only a part. `loop` has the first and the last task of the outermost loop around it.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    over: frozenset[int] = frozenset()
    loop: tuple[int, int] | None = None
    parts: frozenset[int] = frozenset()

    @property
    def redefined(self) -> frozenset[int]:
        """The values that are fully overwritten without being read: their old contents end here."""
        return self.writes - self.reads - self.parts

    @property
    def touched(self) -> frozenset[int]:
        """The values that the task reads or writes."""
        return self.reads | self.writes


def live_across(tasks: Sequence[Footprint], first: int, last: int | None = None) -> frozenset[int]:
    """The values live across a task in every order: an ancestor writes them, a descendant reads them.

    With `last`, those live across the loop of the tasks `first` to `last`. A value that is fully
    overwritten without being read is a new value from there on.

    >>> skip = [Footprint(frozenset(), frozenset({0})), Footprint(frozenset({0}), frozenset({1})),
    ...         Footprint(frozenset({1}), frozenset({2})), Footprint(frozenset({0, 2}), frozenset({3}))]
    >>> [sorted(live_across(skip, at)) for at in range(4)]
    [[], [0], [0], []]
    """
    return _Bitsets.of(tasks).live_across(first, first if last is None else last)


@dataclass(frozen=True, slots=True)
class _Bitsets:
    """The values that each task reads, writes and redefines, as bitsets."""

    reads: Sequence[int]
    writes: Sequence[int]
    redefined: Sequence[int]

    @classmethod
    def of(cls, tasks: Sequence[Footprint]) -> _Bitsets:
        """The bitsets of some tasks."""
        return cls(
            [_bits(task.reads) for task in tasks],
            [_bits(task.writes) for task in tasks],
            [_bits(task.redefined) for task in tasks],
        )

    def live_across(self, first: int, last: int) -> frozenset[int]:
        """The values live across the tasks `first` to `last` in every order."""
        reads = _union(self.reads[first : last + 1])
        dependent = _union(self.writes[first : last + 1])
        available = self._available_before(
            first, reads, _union(self.redefined[first : last + 1]) & ~reads
        )
        after = slice(last + 1, None)
        held = 0
        for read, written, redefined in zip(
            self.reads[after], self.writes[after], self.redefined[after], strict=True
        ):
            if dependent & read:
                held |= available & read
                dependent |= written
            else:
                dependent &= ~redefined
            available &= ~redefined
        return _indices(held)

    def _available_before(self, end: int, needed: int, redefined: int) -> int:
        """The values that ancestors of `needed` write before task `end`, unless `redefined` since."""
        available = 0
        for index in reversed(range(end)):
            if needed & self.writes[index]:
                available |= self.writes[index] & ~redefined
                needed = needed & ~self.redefined[index] | self.reads[index]
            redefined |= self.redefined[index]
        return available


def _bits(indices: Iterable[int]) -> int:
    bits = 0
    for index in indices:
        bits |= 1 << index
    return bits


def _indices(bits: int) -> frozenset[int]:
    return frozenset(index for index in range(bits.bit_length()) if bits >> index & 1)


def _union(sets: Iterable[int]) -> int:
    union = 0
    for bits in sets:
        union |= bits
    return union


def least_live(task: Footprint, held: frozenset[int]) -> frozenset[int]:
    """The fewest values live while a task runs with `held` live across it: results overwrite what they may.

    >>> sorted(least_live(Footprint(frozenset({1}), frozenset({2}), frozenset({1})), frozenset({0})))
    [0, 2]
    """
    free = task.over - task.writes - held
    results = task.writes - task.over
    return (task.touched | held) - (
        free if len(results) > 1 else frozenset(sorted(free)[: len(results)])
    )


class Bound:
    """Computes the values that are live during a task in every order, once for each task."""

    def __init__(self, tasks: Sequence[Footprint]) -> None:
        self.tasks = tasks
        self.visits = 0
        self._sides = _Bitsets.of(tasks)
        self._live: dict[int, frozenset[int]] = {}
        self._loops: dict[tuple[int, int], frozenset[int]] = {}

    def live(self, index: int) -> frozenset[int]:
        """The values live while a task runs, in every order."""
        if index not in self._live:
            self.visits += len(self.tasks)
            task = self.tasks[index]
            held = self._sides.live_across(index, index)
            if task.loop is not None:
                held |= self._live_around_loop(task.loop)
            self._live[index] = least_live(task, held)
        return self._live[index]

    def _live_around_loop(self, loop: tuple[int, int]) -> frozenset[int]:
        """The values live in all iterations of a loop."""
        if loop not in self._loops:
            first, last = loop
            touched = [task.touched for task in self.tasks]
            inside = frozenset(chain(*touched[first : last + 1]))
            shared = inside.intersection(chain(*touched[:first], *touched[last + 1 :]))
            self._loops[loop] = shared | self._sides.live_across(first, last)
        return self._loops[loop]


def witnesses(
    tasks: Sequence[Footprint], cases: Sequence[Sequence[int]], in_use: Sequence[Sequence[int]]
) -> dict[int, frozenset[int]]:
    """The tasks that witness the lower bound, one for each case of sizes, with their live values.

    `cases` has the bytes of each value, `in_use` the bytes that one schedule has live during each task: a
    task with fewer than the bound so far cannot raise it and is skipped.
    """
    bound = Bound(tasks)
    witness_sets: dict[int, frozenset[int]] = {}
    alone = [least_live(task, frozenset()) for task in tasks]
    for sizes, most in zip(cases, in_use, strict=True):
        witness = max(
            range(len(tasks)), key=lambda index: _bytes(alone[index], sizes), default=None
        )
        if witness is None:
            break
        live = alone[witness]
        for index in sorted(range(len(tasks)), key=lambda index: -most[index]):
            if most[index] <= _bytes(live, sizes) or bound.visits > MOST_VISITS:
                break
            if _bytes(bound.live(index), sizes) > _bytes(live, sizes):
                witness, live = index, bound.live(index)
        witness_sets[witness] = live
    return witness_sets


def _bytes(numbers: frozenset[int], sizes: Sequence[int]) -> int:
    return sum(sizes[number] for number in numbers)
