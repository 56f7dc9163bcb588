"""What no order of the tasks does with less than: a lower bound over all of them.

While a task runs, what it reads and writes is there. So is what a task before it wrote and a task after it
reads, where *before* and *after* mean that one needs the other, directly or by way of others: every order
keeps those sides apart. What another order could have released, or not have made yet, does not count. A
loop is one piece of work in every order: in all of its rounds is there what it shares with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

MOST_VISITS = 1_000_000
"""Tasks that are looked at to find a bound, before and after all those for which one is computed."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task reads and writes, by number; `over` is what of it a result, as large, could lie over.

    Of what is in `parts` it writes a part only, and leaves the rest as it was. `loop` has the numbers of
    the first and the last task of the outermost loop that it is in, if it is.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    over: frozenset[int] = frozenset()
    loop: tuple[int, int] | None = None
    parts: frozenset[int] = frozenset()

    @property
    def anew(self) -> frozenset[int]:
        """What is something else from then on."""
        return self.writes - self.reads - self.parts

    @property
    def touched(self) -> frozenset[int]:
        """All of it."""
        return self.reads | self.writes


def held_beside(tasks: Sequence[Task], first: int, last: int | None = None) -> frozenset[int]:
    """What is held while a task runs because it is needed afterwards, whatever the order.

    With `last` it is that of all tasks up to that one, which are a loop. What is written without being
    read, and not only in part, is something new from then on, in the same place.

    >>> skip = [Task(frozenset(), frozenset({0})), Task(frozenset({0}), frozenset({1})),
    ...         Task(frozenset({1}), frozenset({2})), Task(frozenset({0, 2}), frozenset({3}))]
    >>> [sorted(held_beside(skip, at)) for at in range(4)]
    [[], [0], [0], []]
    """
    return _Sides.of(tasks).held_beside(first, first if last is None else last)


@dataclass(frozen=True, slots=True)
class _Sides:
    """What tasks read, write and make anew: sets of numbers, as the bits of an integer each."""

    reads: Sequence[int]
    writes: Sequence[int]
    anew: Sequence[int]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> _Sides:
        """Those of these tasks."""
        return cls(
            [_bits(task.reads) for task in tasks],
            [_bits(task.writes) for task in tasks],
            [_bits(task.anew) for task in tasks],
        )

    def held_beside(self, first: int, last: int) -> frozenset[int]:
        """What is held while some of them run because it is needed afterwards."""
        reads = _union(self.reads[first : last + 1])
        follows = _union(self.writes[first : last + 1])
        there = self._made_before(first, reads, _union(self.anew[first : last + 1]) & ~reads)
        after = slice(last + 1, None)
        held = 0
        for read, written, new in zip(
            self.reads[after], self.writes[after], self.anew[after], strict=True
        ):
            if follows & read:
                held |= there & read
                follows |= written
            else:
                follows &= ~new
            there &= ~new
        return _numbers(held)

    def _made_before(self, end: int, needed: int, anew: int) -> int:
        """What those made whose results lead to what is `needed`, and that is not written `anew`."""
        made = 0
        for at in reversed(range(end)):
            if needed & self.writes[at]:
                made |= self.writes[at] & ~anew
                needed = needed & ~self.anew[at] | self.reads[at]
            anew |= self.anew[at]
        return made


def _bits(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _union(sets: Iterable[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found


def least_set(task: Task, held: frozenset[int]) -> frozenset[int]:
    """What is there at least while a task runs, beside which `held` is: results may lie over what they may.

    >>> sorted(least_set(Task(frozenset({1}), frozenset({2}), frozenset({1})), frozenset({0})))
    [0, 2]
    """
    free = task.over - task.writes - held
    results = task.writes - task.over
    return (task.touched | held) - (
        free if len(results) > 1 else frozenset(sorted(free)[: len(results)])
    )


class Bound:
    """Finds what must be held beside tasks, each once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self.visits = 0
        self._sides = _Sides.of(tasks)
        self._known: dict[int, frozenset[int]] = {}
        self._loops: dict[tuple[int, int], frozenset[int]] = {}

    def needed(self, at: int) -> frozenset[int]:
        """What is there while a task runs, whatever the order."""
        if at not in self._known:
            self.visits += len(self.tasks)
            task = self.tasks[at]
            held = self._sides.held_beside(at, at)
            if task.loop is not None:
                held |= self._around(task.loop)
            self._known[at] = least_set(task, held)
        return self._known[at]

    def _around(self, loop: tuple[int, int]) -> frozenset[int]:
        """What is there in all rounds of a loop."""
        if loop not in self._loops:
            first, last = loop
            touched = [task.touched for task in self.tasks]
            inside = frozenset(chain(*touched[first : last + 1]))
            shared = inside.intersection(chain(*touched[:first], *touched[last + 1 :]))
            self._loops[loop] = shared | self._sides.held_beside(first, last)
        return self._loops[loop]


def witnesses(
    tasks: Sequence[Task], cases: Sequence[Sequence[int]], in_use: Sequence[Sequence[int]]
) -> dict[int, frozenset[int]]:
    """For each case of sizes the task beside which most must be held, with all of that.

    `in_use` has what one order holds while each task runs, in each case: no task need be looked at with
    less of it than is known to be needed anyway.
    """
    bound = Bound(tasks)
    found: dict[int, frozenset[int]] = {}
    alone = [least_set(task, frozenset()) for task in tasks]
    for sizes, most in zip(cases, in_use, strict=True):
        best = max(range(len(tasks)), key=lambda at: _bytes(alone[at], sizes), default=None)
        if best is None:
            break
        needed = alone[best]
        for at in sorted(range(len(tasks)), key=lambda at: -most[at]):
            if most[at] <= _bytes(needed, sizes) or bound.visits > MOST_VISITS:
                break
            if _bytes(bound.needed(at), sizes) > _bytes(needed, sizes):
                best, needed = at, bound.needed(at)
        found[best] = needed
    return found


def _bytes(numbers: frozenset[int], sizes: Sequence[int]) -> int:
    return sum(sizes[number] for number in numbers)
