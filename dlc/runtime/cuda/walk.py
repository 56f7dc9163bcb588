"""The walk of the host through a program (`dlc.runtime.abi`) for a GPU.

What needs nothing from the device is gathered to *segments*: the kernels that are launched from a place
in the table of steps to the next where the host has to know what a kernel computed (a condition, a
measured length, an address) or counts rounds against a limit. A segment depends on its place and on the
counters that its arguments use, so it is gathered once and found again: in the next call, and in the
next round of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlc.runtime.abi import (
    ARG_WORDS,
    HEADER_WORDS,
    MAX_COUNTERS,
    STEP_WORDS,
    ArgKind,
    ArgWord,
    FaultWord,
    Opcode,
    StepWord,
)
from dlc.runtime.buffers import Bytes
from dlc.runtime.frames import Words

MAX_LAUNCHES = 4096
"""Kernels of a segment; a longer one is cut."""
NUMBER = -1
"""In place of a root: the word is a number as it is."""
FAULT_BYTES = 8 * FaultWord.COUNT

Word = tuple[int, int]
"""A root, or NUMBER, and what is added to its address."""


class Launch(NamedTuple):
    """A kernel by its number, on so many tiles, with these words; `op` is the number of its operation.

    Those of a segment that are of the same `epoch` have no barrier of the program between them.
    """

    kernel: int
    tiles: int
    words: tuple[Word, ...]
    op: int
    epoch: int = 0


class Segment(NamedTuple):
    """What is launched from a place on, where the walk goes on, and the counters there."""

    launches: tuple[Launch, ...]
    end: int
    counters: tuple[int, ...]
    trips: tuple[int, ...]


class Steps:
    """A program, as the host walks through it."""

    def __init__(self, program: Bytes, roots: int) -> None:
        """`roots` counts those that it names; the next one is where failing kernels note it."""
        words: Words = program.view("<i8")
        end = HEADER_WORDS + int(words[0]) * STEP_WORDS
        self.steps: list[list[int]] = words[HEADER_WORDS:end].reshape(-1, STEP_WORDS).tolist()
        self.arguments: list[list[int]] = words[end:].reshape(-1, ARG_WORDS).tolist()
        self.faults = roots
        calls = [k for k, step in enumerate(self.steps) if step[StepWord.OPCODE] == Opcode.CALL]
        self.ops = [self.steps[k][StepWord.F] for k in calls]
        """Of each call, the number of its operation."""
        self._slots = {place: slot for slot, place in enumerate(calls)}
        self.only_counting = self._limits() - self._used()
        """Counters that are only compared with limits: no segment depends on them."""

    @property
    def fault_bytes(self) -> int:
        """What failing kernels note takes, those of each call apart."""
        return FAULT_BYTES * max(1, len(self.ops))

    def _limits(self) -> set[int]:
        return {step[StepWord.A] for step in self.steps if step[0] == Opcode.LIMIT}

    def _used(self) -> set[int]:
        """The counters that arguments, loops of known lengths and combinations use."""
        used = {
            argument[ArgWord.COUNTER]
            for argument in self.arguments
            if argument[ArgWord.KIND] != ArgKind.SIZE
        }
        for opcode, a, b, _, d, *_ in self.steps:
            if opcode in (Opcode.LOOP, Opcode.NEXT):
                used.add(a)
            elif opcode == Opcode.COMBINE:
                used |= {a, b, d}
        return used

    def is_control(self, place: int) -> bool:
        """Whether the host does this step between segments."""
        opcode, a, b, c, *_ = self.steps[place]
        match opcode:
            case Opcode.END | Opcode.BRANCH | Opcode.LIMIT:
                return True
            case Opcode.LOOP:
                return self.arguments[b][ArgWord.KIND] == ArgKind.LOADED
            case Opcode.ZERO:
                return a in self.only_counting
            case Opcode.CALL:
                given = self.arguments[b : b + c]
                return any(argument[ArgWord.KIND] == ArgKind.LOADED for argument in given)
            case _:
                return False

    def key(self, place: int, counters: Sequence[int], trips: Sequence[int]) -> tuple[int, ...]:
        """What a segment depends on, besides the sizes."""
        kept = [0 if k in self.only_counting else value for k, value in enumerate(counters)]
        return place, *kept, *trips

    def slot(self, place: int) -> Word:
        """Where the kernel of a call notes that it fails."""
        return self.faults, FAULT_BYTES * self._slots[place]


class Walk:
    """One walk through a program, at its sizes."""

    def __init__(
        self, steps: Steps, sizes: Sequence[int], read: Callable[[int, int, int], int]
    ) -> None:
        """`read` gives a number of so many bytes from the device, by its root and what is added to it."""
        self._steps = steps
        self._sizes = sizes
        self._read = read
        self.counters = [0] * MAX_COUNTERS
        self.trips = [0] * MAX_COUNTERS

    def segment(self, place: int) -> Segment:
        """What is launched from a place on without a word from the device."""
        steps = self._steps
        launches: list[Launch] = []
        epoch, ends = 0, False
        while not steps.is_control(place):
            step = steps.steps[place]
            if step[StepWord.OPCODE] == Opcode.CALL:
                if len(launches) == MAX_LAUNCHES:
                    break
                launches += [launch._replace(epoch=epoch) for launch in self.launch(place)]
                place += 1
                continue
            is_wave = step[StepWord.OPCODE] == Opcode.WAVE
            if is_wave and ends:
                epoch += 1
            # What one round of a loop does, the next one may rely on.
            ends = not is_wave or step[StepWord.B] == 1
            place = self._move(place, step)
        return Segment(tuple(launches), place, tuple(self.counters), tuple(self.trips))

    def enter(self, segment: Segment) -> None:
        """Be where a segment that was gathered before ends."""
        for k, value in enumerate(segment.counters):
            if k not in self._steps.only_counting:
                self.counters[k] = value
        self.trips[:] = segment.trips

    def launch(self, place: int) -> Sequence[Launch]:
        """The launch of a call, if it has tiles."""
        _, kernel, first, count, tiles, _, op, _ = self._steps.steps[place]
        if self._sizes[tiles] <= 0:
            return ()
        words = [self.word(k) for k in range(first, first + count)]
        words.append(self._steps.slot(place))
        return (Launch(kernel, self._sizes[tiles], tuple(words), op),)

    def control(self, place: int) -> int:
        """Do a step that stands between segments, other than END, a call and a limit that is reached."""
        return self._move(place, self._steps.steps[place])

    def limit(self, place: int) -> int | None:
        """The limit of a LIMIT that is reached, else None."""
        opcode, counter, size, *_ = self._steps.steps[place]
        if opcode != Opcode.LIMIT or self.counters[counter] < self._sizes[size]:
            return None
        return self._sizes[size]

    def _move(self, place: int, step: Sequence[int]) -> int:
        """Do a step that launches nothing; where to go on."""
        opcode, a, b, c, d, e, *_ = step
        counters = self.counters
        match opcode:
            case Opcode.LOOP:
                counters[a], self.trips[a] = 0, self._number(b)
                return place + 1 if self.trips[a] > 0 else c
            case Opcode.NEXT:
                counters[a] += 1
                return c if counters[a] < self.trips[a] else place + 1
            case Opcode.BRANCH:
                root, offset = self.word(a)
                return c if self._read(root, offset, 1) else b
            case Opcode.LIMIT:
                counters[a] += 1
            case Opcode.ZERO:
                counters[a] = 0
            case Opcode.COMBINE:
                counters[a] = counters[b] * self._sizes[c] + counters[d] * self._sizes[e]
            case Opcode.JUMP:
                return a
            case _:
                pass  # a wave: its calls follow
        return place + 1

    def _number(self, argument: int) -> int:
        root, value = self.word(argument)
        assert root == NUMBER
        return value

    def word(self, argument: int) -> Word:
        """An argument: a number, or where in a root it points to."""
        kind, root, offset, counter, stride = self._steps.arguments[argument]
        if kind == ArgKind.SIZE:
            return NUMBER, self._sizes[offset]
        if kind == ArgKind.COUNTER:
            return NUMBER, self.counters[counter]
        place = self._sizes[offset]
        if 0 <= counter < MAX_COUNTERS:  # there are no threads of the host: scratch has one part
            place += self.counters[counter] * self._sizes[stride]
        return (NUMBER, self._read(root, place, 8)) if kind == ArgKind.LOADED else (root, place)
