"""The cheapest way to put things on two sides, where each has a cost on either and some keep together.

That is a smallest cut, which a largest flow finds (Edmonds and Karp): exact, and the same every time.

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
    """What is to be cut: what each thing costs on either side, and pairs that cost when they are apart."""

    _room: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def apart(self, name: str, *, first: int, second: int) -> None:
        """Add what a thing costs on the first side, and on the second."""
        self._add(_FIRST, name, second, 0)
        self._add(name, _SECOND, first, 0)

    def together(self, one: str, other: str, cost: int) -> None:
        """Add what it costs if two things are on different sides."""
        self._add(one, other, cost, cost)

    def follows(self, one: str, other: str, cost: int) -> None:
        """Add what it costs if `other` is on the second side while `one` is on the first."""
        self._add(one, other, cost, 0)

    def _add(self, one: str, other: str, there: int, back: int) -> None:
        for start, end, room in ((one, other, there), (other, one, back)):
            row = self._room.setdefault(start, {})
            row[end] = row.get(end, 0) + room

    @property
    def room(self) -> dict[str, dict[str, int]]:
        """How much may flow from each to each, as a copy."""
        return {name: dict(row) for name, row in self._room.items()}


def smallest_cut(cut: Cut) -> tuple[set[str], int]:
    """What is best on the second side, as little as is best there, and what the best way costs."""
    room = cut.room
    total = 0
    while (before := _reached(room, _FIRST)).get(_SECOND) is not None:
        path = [_SECOND]
        while path[-1] != _FIRST:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path, strict=False))
        flow = min(room[one][other] for one, other in steps)
        for one, other in steps:
            room[one][other] -= flow
            room[other][one] += flow
        total += flow
    backward: dict[str, dict[str, int]] = {name: {} for name in room}
    for one, row in room.items():
        for other, left in row.items():
            backward[other][one] = left
    second = set(_reached(backward, _SECOND)) - {_SECOND}
    return second, total


def _reached(room: dict[str, dict[str, int]], start: str) -> dict[str, str]:
    """Where there is room to get to from a place, shortest ways first: each with the one before it."""
    before = {start: start}
    pending = deque([start])
    while pending:
        name = pending.popleft()
        for other, left in room.get(name, {}).items():
            if left and other not in before:
                before[other] = name
                pending.append(other)
    return before
