"""What a processor does of a program for two devices without a word from the host: tables of its own.

The host walks such a program (`dlc.runtime.abi`), launches the kernels of the GPU and starts the copies.
Steps that stand together and are the processor's alone, loops and branches included, become a program for
the engine, which the host enters when it comes there. What such a table takes from the walk around it (a
counter of a loop that the host is in, a number in memory of the GPU) the host writes behind the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dlc.runtime.abi import (
    HEADER_WORDS,
    MAX_COUNTERS,
    STEP_WORDS,
    ArgKind,
    ArgWord,
    Opcode,
    Root,
    StepWord,
)
from dlc.runtime.calling.control_flow import blocks
from dlc.runtime.calling.device_partition import BadPartition, is_copy, is_on_gpu
from dlc.runtime.gpu.steps import Steps
from dlc.runtime.system.buffers import Bytes, aligned_copy

_POINTS = (ArgKind.POINTER, ArgKind.LOADED)
_JUMPS = {  # the words of each step that name another step
    Opcode.LOOP: (StepWord.C,),
    Opcode.NEXT: (StepWord.C,),
    Opcode.BRANCH: (StepWord.B, StepWord.C),
    Opcode.JUMP: (StepWord.A,),
}
_SETS = (Opcode.LOOP, Opcode.ZERO, Opcode.COMBINE)
"""The steps that give a counter a value."""


class HostSegment(NamedTuple):
    """Steps for the engine, as a program of its own, and the step after them."""

    words: Bytes
    calls: tuple[int, ...]
    """Its CALL steps, by their numbers in the whole program."""
    moving: tuple[tuple[int, int], ...]
    """The arguments that the host evaluates first: their numbers, and where behind the sizes they go."""
    end: int


class HostSegments:
    """The stretches of a program."""

    def __init__(self, steps: Steps, sizes: Sequence[int], start: int) -> None:
        """`start` is where in the arena memory of the GPU begins at these sizes; it does so at all."""
        self._steps = steps
        self._count = len(sizes)
        self._on_gpu = {
            number
            for number, (kind, root, offset, *_) in enumerate(steps.arguments)
            if kind in _POINTS and root == Root.ARENA and sizes[offset] >= start
        }
        self._ends = {begin: block.end for begin, block in blocks(steps.steps).items()}
        """Where each loop and branch ends, by the step that it begins with."""
        self._meets = self._met()
        self.room = 0
        """How many numbers the host writes behind the sizes."""
        self.whole: dict[int, HostSegment] = {}
        """By the step that they begin with."""
        self.in_waves: dict[int, HostSegment] = {}
        """The processor's part of waves of both, by their WAVE steps."""
        self._gather(0, len(steps.steps))

    def _met(self) -> set[tuple[int, int]]:
        """What copies read or write of the host: a stretch begins where it is used, and not before."""
        steps, arguments = self._steps.steps, self._steps.arguments
        firsts = [
            step[StepWord.B]
            for step in steps
            if step[StepWord.OPCODE] == Opcode.CALL and is_copy(step)
        ]
        given = [arguments[first + k] for first in firsts for k in (0, 1)]
        return {(argument[ArgWord.ROOT], argument[ArgWord.OFFSET]) for argument in given}

    # Which steps stand together -------------------------------------------------------------------

    def _items(self, place: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the loops, branches, waves and single steps from a place on begin and end."""
        steps = self._steps.steps
        while place < end:
            step = steps[place]
            after = self._ends.get(place, place + 1)
            if step[StepWord.OPCODE] == Opcode.WAVE:
                after = place + 1 + step[StepWord.A]
            yield place, after
            place = after

    def _gather(self, first: int, last: int) -> None:
        """Find the stretches from `first` up to `last`, and those in what the host walks through."""
        begun: int | None = None
        outer: set[int] = set()
        inner: set[int] = set()
        for place, end in self._items(first, last):
            whole = self._is_whole(place, end)
            sets, uses = self._set_in(place, end), self._used_in(place, end)
            clash = (outer & sets) | (inner & (uses - sets))
            if begun is not None and (not whole or clash or self._waits(place, end)):
                self.whole[begun] = self._stretch(begun, place, outer)
                begun = None
            if whole:
                if begun is None:
                    begun, outer, inner = place, set(), set()
                outer |= uses - sets
                inner |= sets
            elif self._steps.steps[place][StepWord.OPCODE] == Opcode.WAVE:
                self._split(place, end)
            elif end > place + 1:
                self._gather(place + 1, end)
        if begun is not None:
            self.whole[begun] = self._stretch(begun, last, outer)

    def _is_whole(self, place: int, end: int) -> bool:
        """Whether the engine can do an item by itself."""
        steps = self._steps.steps
        if end == place + 1 and steps[place][StepWord.OPCODE] != Opcode.WAVE:
            return False  # a single step, which is the host's
        sets = self._set_in(place, end)
        return all(self._is_ours(step, sets) for step in steps[place:end])

    def _is_ours(self, step: Sequence[int], sets: set[int]) -> bool:
        opcode, a, b, _, d, *_ = step
        match opcode:
            case Opcode.CALL:
                return not is_copy(step) and not is_on_gpu(step)
            case Opcode.LOOP:
                return b not in self._on_gpu
            case Opcode.BRANCH:
                return a not in self._on_gpu
            case Opcode.COMBINE:
                return b in sets and d in sets
            case _:
                return True

    def _waits(self, place: int, end: int) -> bool:
        """Whether an item uses what a copy reads or writes."""
        used = [self._steps.arguments[k] for k in self._arguments_in(place, end)]
        return any((a[ArgWord.ROOT], a[ArgWord.OFFSET]) in self._meets for a in used)

    def _arguments_in(self, place: int, end: int) -> Iterator[int]:
        for step in self._steps.steps[place:end]:
            yield from _arguments_of(step)

    def _set_in(self, place: int, end: int) -> set[int]:
        """The counters that get a value in an item."""
        steps = self._steps.steps[place:end]
        return {step[StepWord.A] for step in steps if step[StepWord.OPCODE] in _SETS}

    def _used_in(self, place: int, end: int) -> set[int]:
        """The counters that arguments of an item use."""
        given = [self._steps.arguments[k] for k in self._arguments_in(place, end)]
        return {
            argument[ArgWord.COUNTER]
            for argument in given
            if argument[ArgWord.KIND] != ArgKind.SIZE
            and 0 <= argument[ArgWord.COUNTER] < MAX_COUNTERS
        }

    # Their tables ---------------------------------------------------------------------------------

    def _split(self, place: int, end: int) -> None:
        """The processor's part of a wave of both, if it has one."""
        steps = self._steps.steps
        calls = [k for k in range(place + 1, end) if self._is_ours(steps[k], set())]
        if calls:
            wave = [*steps[place]]
            wave[StepWord.A] = len(calls)
            outer = {k for call in calls for k in self._used_in(call, call + 1)}
            table = [wave, *[steps[k] for k in calls]]
            self.in_waves[place] = self._table(table, 0, outer, calls, end)

    def _stretch(self, place: int, end: int, outer: set[int]) -> HostSegment:
        steps = self._steps.steps[place:end]
        calls = [place + k for k, step in enumerate(steps) if step[0] == Opcode.CALL]
        return self._table(steps, place, outer, calls, end)

    def _table(
        self,
        steps: Sequence[Sequence[int]],
        place: int,
        outer: set[int],
        calls: Sequence[int],
        end: int,
    ) -> HostSegment:
        """A program of these steps, which begin at a place; counters in `outer` are the host's."""
        table: list[list[int]] = []
        arguments: list[list[int]] = []
        moving: list[tuple[int, int]] = []
        for step in steps:
            made = [*step]
            for word in _JUMPS.get(Opcode(step[StepWord.OPCODE]), ()):
                made[word] -= place
                if not 0 <= made[word] <= len(steps):
                    raise BadPartition(f"step {place + len(table)} leaves the loop that it is in")
            numbers = _arguments_of(step)
            if numbers:
                made[_FIRST[Opcode(step[StepWord.OPCODE])]] = len(arguments)
                arguments += [self._argument(k, outer, moving) for k in numbers]
            table.append(made)
        table.append([Opcode.END] + [0] * (STEP_WORDS - 1))
        head = [len(table), HEADER_WORDS + STEP_WORDS * len(table), 1]
        rows = [word for row in (*table, *arguments) for word in row]
        words = aligned_copy(np.array([*head, *rows], "<i8").tobytes())
        return HostSegment(words, tuple(calls), tuple(moving), end)

    def _argument(self, number: int, outer: set[int], moving: list[tuple[int, int]]) -> list[int]:
        """An argument, or a number behind the sizes in its place."""
        argument = self._steps.arguments[number]
        counted = argument[ArgWord.KIND] != ArgKind.SIZE and argument[ArgWord.COUNTER] in outer
        loaded = argument[ArgWord.KIND] == ArgKind.LOADED and number in self._on_gpu
        if not counted and not loaded:
            return argument
        slot = self._count + self.room
        self.room += 1
        moving.append((number, slot))
        return [ArgKind.SIZE, 0, slot, -1, -1]


_FIRST = {Opcode.CALL: StepWord.B, Opcode.LOOP: StepWord.B, Opcode.BRANCH: StepWord.A}
"""The word of each step that names its first argument."""


def _arguments_of(step: Sequence[int]) -> range:
    """The arguments of a step."""
    opcode = step[StepWord.OPCODE]
    if opcode not in _FIRST:
        return range(0)
    first = step[_FIRST[Opcode(opcode)]]
    return range(first, first + (step[StepWord.C] if opcode == Opcode.CALL else 1))
