"""The task graph of a block, and the memory that an order of its tasks needs.

The figures are an estimate made before the plan: waves form by the plan's rules, and a result overwrites a
value that dies with its task where the plan would allow it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

Order: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class Task:
    """A schedulable unit: the values that it reads and writes, and its predecessors, all by index.

    A value that several tasks write in pieces is live as a whole from the first of them. The result may
    overwrite a value in `over` if this task is its last reader. A task that is `alone` has a wave to
    itself, with `inside` more bytes live during it.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    before: tuple[int, ...]
    over: tuple[int, ...] = ()
    alone: bool = False
    inside: int = 0


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a block in program order, and the bytes of each value."""

    tasks: Sequence[Task]
    bytes: Sequence[int]

    @cached_property
    def before(self) -> Sequence[Sequence[int]]:
        """The predecessors of each task."""
        return [task.before for task in self.tasks]

    @cached_property
    def after(self) -> Sequence[Sequence[int]]:
        """The successors of each task."""
        successors: list[list[int]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for other in task.before:
                successors[other].append(index)
        return successors

    @cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        """The tasks that read each value."""
        readers: list[list[int]] = [[] for _ in self.bytes]
        for index, task in enumerate(self.tasks):
            for value in task.reads:
                readers[value].append(index)
        return readers

    @cached_property
    def written_bytes(self) -> Sequence[int]:
        """The bytes that each task writes."""
        return [sum(self.bytes[value] for value in task.makes) for task in self.tasks]

    def waves(self, order: Order, cuts: Collection[int] = ()) -> list[int]:
        """The wave of each task: consecutive tasks that do not depend on each other share one.

        The tasks in `cuts` always begin a new wave.
        """
        wave = [-1] * len(self.tasks)
        current_wave, closed = -1, True
        for index in order:
            task = self.tasks[index]
            needs = any(wave[other] == current_wave for other in task.before)
            if closed or task.alone or needs or index in cuts:
                current_wave += 1
            wave[index] = current_wave
            closed = task.alone
        return wave

    def held(self, order: Order, wave: Sequence[int]) -> list[int]:
        """The bytes that are live in each wave of an order."""
        return self._held(order, wave, *self._slots(order, wave))

    def _held(
        self,
        order: Order,
        wave: Sequence[int],
        allocated: Sequence[int],
        last_use: Mapping[int, int],
    ) -> list[int]:
        changes = [0] * (max(wave, default=-1) + 2)
        for index, allocated_bytes in zip(order, allocated, strict=True):
            inside = self.tasks[index].inside
            changes[wave[index]] += allocated_bytes + inside
            changes[wave[index] + 1] -= inside
        for value, end in last_use.items():
            changes[end + 1] -= self.bytes[value]
        return list(accumulate(changes[:-1]))

    def sequential(self, order: Order) -> tuple[list[int], list[int]]:
        """With one task to a wave: the bytes live while each task runs, and the bytes that it allocates."""
        position = [0] * len(self.tasks)
        for step, index in enumerate(order):
            position[index] = step
        allocated, last_use = self._slots(order, position)
        return self._held(order, position, allocated, last_use), allocated

    def _slots(self, order: Order, wave: Sequence[int]) -> tuple[list[int], dict[int, int]]:
        """The bytes that each task of the order allocates, and the last wave that uses each slot."""
        last_read = [
            max([wave[reader] for reader in readers], default=0) for readers in self.readers
        ]
        slot = list(range(len(self.bytes)))
        last_use: dict[int, int] = {}
        written: set[int] = set()
        allocated: list[int] = []
        for index in order:
            task, current_wave = self.tasks[index], wave[index]
            dying = [
                v
                for v in task.over
                if last_use[slot[v]] == current_wave and self._read_once_in(v, current_wave, wave)
            ]
            allocated.append(0)
            for value in task.makes:
                if value not in written:
                    written.add(value)
                    slot[value] = slot[dying[0]] if dying else value
                    allocated[-1] += 0 if dying else self.bytes[value]
                last_use[slot[value]] = max(current_wave, last_read[value])
        return allocated, last_use

    def _read_once_in(self, value: int, current_wave: int, wave: Sequence[int]) -> bool:
        """Whether exactly one task of a wave reads a value."""
        return sum([wave[reader] == current_wave for reader in self.readers[value]]) == 1
