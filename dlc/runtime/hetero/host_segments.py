"""CPU segments of a heterogeneous program: step tables that the engine runs without returning to Python.

The host walks such a program (`dlc.runtime.abi`), launches the kernels of the GPU and starts the copies.
Maximal runs of steps that only concern the CPU, loops and branches included, become programs of their own,
which the host enters when it gets there. Arguments of such a segment that depend on the walk around it
(the counter of an enclosing loop, a number in memory of the GPU) are evaluated by the host, which writes
them behind the sizes.
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
from dlc.runtime.gpu.steps import StepTable
from dlc.runtime.system.buffers import Bytes, aligned_copy

_POINTS = (ArgKind.POINTER, ArgKind.LOADED)
_JUMPS = {  # the words of each step that name another step
    Opcode.LOOP: (StepWord.C,),
    Opcode.NEXT: (StepWord.C,),
    Opcode.BRANCH: (StepWord.B, StepWord.C),
    Opcode.JUMP: (StepWord.A,),
}
_SETS = (Opcode.LOOP, Opcode.ZERO, Opcode.COMBINE)
"""The steps that set a counter."""


class HostSegment(NamedTuple):
    """A run of steps as a program of its own for the engine; `end` is the step after it."""

    words: Bytes
    calls: tuple[int, ...]
    """Its CALL steps, by index in the whole program."""
    host_arguments: tuple[tuple[int, int], ...]
    """Arguments that the host evaluates first: their indices, and their slots behind the sizes."""
    end: int


class HostSegments:
    """The segments of a program."""

    def __init__(self, steps: StepTable, sizes: Sequence[int], start: int) -> None:
        """`start`: the offset in the arena at which memory of the GPU begins at these sizes.

        The segments are the same at all sizes.
        """
        self._steps = steps
        self._count = len(sizes)
        self._on_gpu = {
            index
            for index, (kind, root, offset, *_) in enumerate(steps.arguments)
            if kind in _POINTS and root == Root.ARENA and sizes[offset] >= start
        }
        self._ends = {begin: block.end for begin, block in blocks(steps.steps).items()}
        """The end of each loop and branch, by its first step."""
        self._copied = self._copied_by_copies()
        self.slots = 0
        """How many slots for arguments there are behind the sizes."""
        self.whole: dict[int, HostSegment] = {}
        """The segments of whole items, by first step."""
        self.in_waves: dict[int, HostSegment] = {}
        """The CPU calls of waves that also have copies or kernels of the GPU, by WAVE step."""
        self._find(0, len(steps.steps))

    def _copied_by_copies(self) -> set[tuple[int, int]]:
        """Root and offset of what copies read or write: a segment begins at its first use, not before."""
        steps, arguments = self._steps.steps, self._steps.arguments
        firsts = [
            step[StepWord.B]
            for step in steps
            if step[StepWord.OPCODE] == Opcode.CALL and is_copy(step)
        ]
        copied = [arguments[first + k] for first in firsts for k in (0, 1)]
        return {(argument[ArgWord.ROOT], argument[ArgWord.OFFSET]) for argument in copied}

    # Finding segments -----------------------------------------------------------------------------

    def _items(self, pc: int, end: int) -> Iterator[tuple[int, int]]:
        """First step and end of each item up to `end`: a loop, a branch, a wave or a single step."""
        steps = self._steps.steps
        while pc < end:
            step = steps[pc]
            after = self._ends.get(pc, pc + 1)
            if step[StepWord.OPCODE] == Opcode.WAVE:
                after = pc + 1 + step[StepWord.A]
            yield pc, after
            pc = after

    def _find(self, first: int, last: int) -> None:
        """Find the segments from step `first` up to `last`, also inside items that the host walks."""
        begin: int | None = None
        host_counters: set[int] = set()
        own_counters: set[int] = set()
        for pc, end in self._items(first, last):
            is_whole = self._is_whole(pc, end)
            sets, uses = self._set_in(pc, end), self._used_in(pc, end)
            clash = (host_counters & sets) | (own_counters & (uses - sets))
            if begin is not None and (not is_whole or clash or self._uses_copied(pc, end)):
                self.whole[begin] = self._segment(begin, pc, host_counters)
                begin = None
            if is_whole:
                if begin is None:
                    begin, host_counters, own_counters = pc, set(), set()
                host_counters |= uses - sets
                own_counters |= sets
            elif self._steps.steps[pc][StepWord.OPCODE] == Opcode.WAVE:
                self._split(pc, end)
            elif end > pc + 1:
                self._find(pc + 1, end)
        if begin is not None:
            self.whole[begin] = self._segment(begin, last, host_counters)

    def _is_whole(self, pc: int, end: int) -> bool:
        """Whether the engine can do an item by itself."""
        steps = self._steps.steps
        if end == pc + 1 and steps[pc][StepWord.OPCODE] != Opcode.WAVE:
            return False  # a single step is left to the host
        sets = self._set_in(pc, end)
        return all(self._is_for_cpu(step, sets) for step in steps[pc:end])

    def _is_for_cpu(self, step: Sequence[int], sets: set[int]) -> bool:
        """Whether the engine can do a step of an item that sets these counters."""
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

    def _uses_copied(self, pc: int, end: int) -> bool:
        """Whether an item uses an array that a copy reads or writes."""
        used = [self._steps.arguments[k] for k in self._arguments_in(pc, end)]
        return any((a[ArgWord.ROOT], a[ArgWord.OFFSET]) in self._copied for a in used)

    def _arguments_in(self, pc: int, end: int) -> Iterator[int]:
        for step in self._steps.steps[pc:end]:
            yield from _arguments_of(step)

    def _set_in(self, pc: int, end: int) -> set[int]:
        """The counters that an item sets."""
        steps = self._steps.steps[pc:end]
        return {step[StepWord.A] for step in steps if step[StepWord.OPCODE] in _SETS}

    def _used_in(self, pc: int, end: int) -> set[int]:
        """The counters that arguments of an item use."""
        arguments = [self._steps.arguments[k] for k in self._arguments_in(pc, end)]
        return {
            argument[ArgWord.COUNTER]
            for argument in arguments
            if argument[ArgWord.KIND] != ArgKind.SIZE
            and 0 <= argument[ArgWord.COUNTER] < MAX_COUNTERS
        }

    # Step tables ----------------------------------------------------------------------------------

    def _split(self, pc: int, end: int) -> None:
        """Make a segment of the CPU calls of a wave, if it has any."""
        steps = self._steps.steps
        calls = [k for k in range(pc + 1, end) if self._is_for_cpu(steps[k], set())]
        if calls:
            wave = [*steps[pc]]
            wave[StepWord.A] = len(calls)
            host_counters = {k for call in calls for k in self._used_in(call, call + 1)}
            table = [wave, *[steps[k] for k in calls]]
            self.in_waves[pc] = self._table(table, 0, host_counters, calls, end)

    def _segment(self, pc: int, end: int, host_counters: set[int]) -> HostSegment:
        steps = self._steps.steps[pc:end]
        calls = [pc + k for k, step in enumerate(steps) if step[0] == Opcode.CALL]
        return self._table(steps, pc, host_counters, calls, end)

    def _table(
        self,
        steps: Sequence[Sequence[int]],
        pc: int,
        host_counters: set[int],
        calls: Sequence[int],
        end: int,
    ) -> HostSegment:
        """A program of these steps, the first of which is `pc`; the host counts `host_counters`."""
        table: list[list[int]] = []
        arguments: list[list[int]] = []
        host_arguments: list[tuple[int, int]] = []
        for step in steps:
            row = [*step]
            for word in _JUMPS.get(Opcode(step[StepWord.OPCODE]), ()):
                row[word] -= pc
                if not 0 <= row[word] <= len(steps):
                    raise BadPartition(f"step {pc + len(table)} leaves the loop that it is in")
            indices = _arguments_of(step)
            if indices:
                row[_FIRST[Opcode(step[StepWord.OPCODE])]] = len(arguments)
                arguments += [self._argument(k, host_counters, host_arguments) for k in indices]
            table.append(row)
        table.append([Opcode.END] + [0] * (STEP_WORDS - 1))
        head = [len(table), HEADER_WORDS + STEP_WORDS * len(table), 1]
        rows = [word for row in (*table, *arguments) for word in row]
        words = aligned_copy(np.array([*head, *rows], "<i8").tobytes())
        return HostSegment(words, tuple(calls), tuple(host_arguments), end)

    def _argument(
        self, index: int, host_counters: set[int], host_arguments: list[tuple[int, int]]
    ) -> list[int]:
        """An argument as it is, or the slot behind the sizes into which the host writes it."""
        argument = self._steps.arguments[index]
        counted = (
            argument[ArgWord.KIND] != ArgKind.SIZE and argument[ArgWord.COUNTER] in host_counters
        )
        loaded = argument[ArgWord.KIND] == ArgKind.LOADED and index in self._on_gpu
        if not counted and not loaded:
            return argument
        slot = self._count + self.slots
        self.slots += 1
        host_arguments.append((index, slot))
        return [ArgKind.SIZE, 0, slot, -1, -1]


_FIRST = {Opcode.CALL: StepWord.B, Opcode.LOOP: StepWord.B, Opcode.BRANCH: StepWord.A}
"""The word of a step that holds the index of its first argument."""


def _arguments_of(step: Sequence[int]) -> range:
    """The indices of a step's arguments."""
    opcode = step[StepWord.OPCODE]
    if opcode not in _FIRST:
        return range(0)
    first = step[_FIRST[Opcode(opcode)]]
    return range(first, first + (step[StepWord.C] if opcode == Opcode.CALL else 1))
