"""Orders that may hold less than the one that is written: greedily from either end, and depth first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc.passes.ordering.chores import Chores, Order


def candidates(chores: Chores) -> Iterator[tuple[str, Order]]:
    """The order that is written and others, each with a name."""
    yield "as written", range(len(chores.all))
    yield "forwards", forwards(chores)
    yield "backwards", backwards(chores)
    yield "depth first", depth_first(chores)


def forwards(chores: Chores) -> Order:
    """Always that chore next which frees most beyond what it makes.

    >>> from dlc.passes.ordering.chores import Chore
    >>> makes = [Chore((), (k,), ()) for k in range(2)]
    >>> frees = [Chore((k,), (k + 2,), (k,)) for k in range(2)]
    >>> list(forwards(Chores([*makes, *frees], [8, 8, 1, 1])))
    [0, 2, 1, 3]
    """
    left = [len(readers) for readers in chores.readers]

    def worth(number: int) -> tuple[int, int]:
        reads = chores.all[number].reads
        freed = sum([chores.bytes[value] for value in reads if left[value] == 1])
        return freed - chores.made[number], -number

    order: list[int] = []
    for number in _greedily(chores.before, chores.after, worth):
        order.append(number)
        for value in chores.all[number].reads:
            left[value] -= 1
    return order


def backwards(chores: Chores) -> Order:
    """From the end, always that chore before which least is held."""
    kept = [False] * len(chores.bytes)

    def worth(number: int) -> tuple[int, int]:
        reads = chores.all[number].reads
        longer = sum([chores.bytes[value] for value in reads if not kept[value]])
        return chores.made[number] - longer, number

    order: list[int] = []
    for number in _greedily(chores.after, chores.before, worth):
        order.append(number)
        for value in chores.all[number].reads:
            kept[value] = True
    return order[::-1]


def _greedily(
    needs: Sequence[Sequence[int]],
    followers: Sequence[Sequence[int]],
    worth: Callable[[int], tuple[int, int]],
) -> Iterator[int]:
    """All of a graph; of those of which what they need is done always the one worth most."""
    missing = [len(each) for each in needs]
    ready = [number for number, count in enumerate(missing) if not count]
    while ready:
        number = max(ready, key=worth)
        ready.remove(number)
        yield number
        for other in followers[number]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)


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
