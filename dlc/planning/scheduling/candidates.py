"""Orders that may hold less than the one that is written: greedily from either end, and depth first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from dlc.planning.scheduling.tasks import Chores, Order


def candidates(chores: Chores) -> Iterator[tuple[str, Order]]:
    """The order that is written and others, each with a name."""
    yield "as written", range(len(chores.all))
    yield "forwards", forwards(chores)
    yield "backwards", backwards(chores)
    yield "depth first", depth_first(chores)


def forwards(chores: Chores) -> Order:
    """Always that chore next which frees most beyond what it makes.

    >>> from dlc.planning.scheduling.tasks import Chore
    >>> makes = [Chore((), (k,), ()) for k in range(2)]
    >>> frees = [Chore((k,), (k + 2,), (k,)) for k in range(2)]
    >>> list(forwards(Chores([*makes, *frees], [8, 8, 1, 1])))
    [0, 2, 1, 3]
    """
    left = [len(readers) for readers in chores.readers]
    worth = [-made for made in chores.made]
    for number, chore in enumerate(chores.all):
        worth[number] += sum(chores.bytes[value] for value in chore.reads if left[value] == 1)
    queue = _Queue(chores.before, chores.after, worth, first=1)
    order: list[int] = []
    for number in queue:
        order.append(number)
        for value in chores.all[number].reads:
            left[value] -= 1
            if left[value] == 1:
                queue.add(chores.bytes[value], chores.readers[value])
    return order


def backwards(chores: Chores) -> Order:
    """From the end, always that chore before which least is held."""
    kept = [False] * len(chores.bytes)
    worth = [
        made - sum(chores.bytes[value] for value in chore.reads)
        for made, chore in zip(chores.made, chores.all, strict=True)
    ]
    queue = _Queue(chores.after, chores.before, worth, first=-1)
    order: list[int] = []
    for number in queue:
        order.append(number)
        for value in chores.all[number].reads:
            if not kept[value]:
                kept[value] = True
                queue.add(chores.bytes[value], chores.readers[value])
    return order[::-1]


class _Queue:
    """All of a graph; of those of which what they need is done always the one worth most.

    Of several worth as much that with the lowest number comes first, or the highest where `first` is -1.
    """

    def __init__(
        self,
        needs: Sequence[Sequence[int]],
        followers: Sequence[Sequence[int]],
        worth: list[int],
        first: int,
    ) -> None:
        self._missing = [len(each) for each in needs]
        self._followers = followers
        self._worth = worth
        self._first = first
        self._ready: list[tuple[int, int]] = []
        for number, count in enumerate(self._missing):
            if not count:
                self._enter(number)

    def __iter__(self) -> Iterator[int]:
        while self._ready:
            less, place = heappop(self._ready)
            number = place * self._first
            if self._missing[number] or -less != self._worth[number]:
                continue  # it is done, or was worth less when it was entered
            self._missing[number] = -1
            yield number
            for other in self._followers[number]:
                self._missing[other] -= 1
                if not self._missing[other]:
                    self._enter(other)

    def add(self, more: int, numbers: Sequence[int]) -> None:
        """These are worth so much more from now on."""
        for number in numbers:
            self._worth[number] += more
            if not self._missing[number]:
                self._enter(number)

    def _enter(self, number: int) -> None:
        heappush(self._ready, (-self._worth[number], number * self._first))


def depth_first(chores: Chores) -> Order:
    """Each chore right behind what it needs, of which comes first what takes most beyond its result.

    That is how Sethi and Ullman order the parts of an expression (1970).
    """
    room: list[int] = []
    parts: list[list[int]] = []
    for number, before in enumerate(chores.before):
        parts.append(sorted(before, key=lambda n: (chores.made[n] - room[n], n)))
        held = most = 0
        for part in parts[-1]:
            most = max(most, held + room[part])
            held += chores.made[part]
        room.append(max(most, held + chores.made[number] + chores.all[number].inside))
    order: list[int] = []
    seen: set[int] = set()
    for number, after in enumerate(chores.after):
        if not after:
            order += _with_parts(number, parts, seen)
    return order


def _with_parts(root: int, parts: Sequence[Sequence[int]], seen: set[int]) -> Iterator[int]:
    """A chore behind all that it needs and that has not been seen."""
    pending = [(root, iter(parts[root]))]
    while pending:
        number, missing = pending[-1]
        part = next((part for part in missing if part not in seen), None)
        if part is not None:
            seen.add(part)
            pending.append((part, iter(parts[part])))
            continue
        yield number
        pending.pop()
