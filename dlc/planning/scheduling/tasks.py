"""Work as numbers, and what an order of it holds.

It is an estimate before the plan: waves are formed as the plan forms them, and results lie over what dies
with their chore where the plan would put them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

Order: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class Chore:
    """A piece of work: the values that it reads and makes, by number, and the chores that come before.

    Of a value that several make, each a piece, all is there from the first of them on.
    Its result may lie over a value in `over` that it reads last. One that is `alone` shares its wave with
    nothing, and holds `inside` bytes more in it.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    before: tuple[int, ...]
    over: tuple[int, ...] = ()
    alone: bool = False
    inside: int = 0


@dataclass(frozen=True)
class Chores:
    """The work of a function in the order in which it is written, and the bytes of each value."""

    all: Sequence[Chore]
    bytes: Sequence[int]

    @cached_property
    def before(self) -> Sequence[Sequence[int]]:
        """For each chore those that must come before it."""
        return [chore.before for chore in self.all]

    @cached_property
    def after(self) -> Sequence[Sequence[int]]:
        """For each chore those that must come after it."""
        found: list[list[int]] = [[] for _ in self.all]
        for number, chore in enumerate(self.all):
            for other in chore.before:
                found[other].append(number)
        return found

    @cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        """For each value the chores that read it."""
        found: list[list[int]] = [[] for _ in self.bytes]
        for number, chore in enumerate(self.all):
            for value in chore.reads:
                found[value].append(number)
        return found

    @cached_property
    def made(self) -> Sequence[int]:
        """For each chore the bytes that it makes."""
        return [sum(self.bytes[value] for value in chore.makes) for chore in self.all]

    def waves(self, order: Order, cuts: Collection[int] = ()) -> list[int]:
        """The wave of each chore: those that follow each other and need none of each other share one.

        The chores in `cuts` begin one in any case.
        """
        wave = [-1] * len(self.all)
        now, closed = -1, True
        for number in order:
            chore = self.all[number]
            needs = any(wave[other] == now for other in chore.before)
            if closed or chore.alone or needs or number in cuts:
                now += 1
            wave[number] = now
            closed = chore.alone
        return wave

    def held(self, order: Order, wave: Sequence[int]) -> list[int]:
        """The bytes that an order holds in each wave."""
        return self._held(order, wave, *self._places(order, wave))

    def _held(
        self, order: Order, wave: Sequence[int], taken: Sequence[int], until: Mapping[int, int]
    ) -> list[int]:
        changes = [0] * (max(wave, default=-1) + 2)
        for number, size in zip(order, taken, strict=True):
            inside = self.all[number].inside
            changes[wave[number]] += size + inside
            changes[wave[number] + 1] -= inside
        for value, end in until.items():
            changes[end + 1] -= self.bytes[value]
        return list(accumulate(changes[:-1]))

    def one_by_one(self, order: Order) -> tuple[list[int], list[int]]:
        """If all run one after the other: what is held while each chore runs, and what it takes anew."""
        place = [0] * len(self.all)
        for at, number in enumerate(order):
            place[number] = at
        taken, until = self._places(order, place)
        return self._held(order, place, taken, until), taken

    def _places(self, order: Order, wave: Sequence[int]) -> tuple[list[int], dict[int, int]]:
        """What each chore takes in its turn, and until which wave each place of a value is needed."""
        last = [max([wave[reader] for reader in readers], default=0) for readers in self.readers]
        place = list(range(len(self.bytes)))
        until: dict[int, int] = {}
        begun: set[int] = set()
        taken: list[int] = []
        for number in order:
            chore, now = self.all[number], wave[number]
            dying = [v for v in chore.over if until[place[v]] == now and self._once(v, now, wave)]
            taken.append(0)
            for value in chore.makes:
                if value not in begun:
                    begun.add(value)
                    place[value] = place[dying[0]] if dying else value
                    taken[-1] += 0 if dying else self.bytes[value]
                until[place[value]] = max(now, last[value])
        return taken, until

    def _once(self, value: int, now: int, wave: Sequence[int]) -> bool:
        """Whether a single chore of a wave reads a value."""
        return sum([wave[reader] == now for reader in self.readers[value]]) == 1
