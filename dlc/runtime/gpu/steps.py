"""A program (`dlc.runtime.abi`) as the host walks through it: its steps, and what they alone tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from dlc.runtime.abi import (
    ARG_WORDS,
    HEADER_WORDS,
    STEP_WORDS,
    ArgKind,
    ArgWord,
    FaultWord,
    Opcode,
    StepWord,
)
from dlc.runtime.calling.control_flow import Choose, Loop, While, blocks
from dlc.runtime.calling.frames import Words
from dlc.runtime.system.buffers import Bytes

FAULT_BYTES = 8 * FaultWord.COUNT

Word: TypeAlias = tuple[int, int]
"""A root, or NUMBER, and what is added to its address."""
NUMBER = -1
"""In place of a root: the word is a number as it is."""
_GIVES = (Opcode.LOOP, Opcode.ZERO, Opcode.LIMIT, Opcode.COMBINE)
"""The steps that give the counter in their first word a value."""


class EndWord(IntEnum):
    """What a condition on the device notes when it ends the call, behind the notes of the kernels."""

    STATUS = 0
    EARLIER = 1  # 1 + the first call, by its notes, of which a kernel had failed then, or 0
    LIMIT = 2
    OP = 3
    COUNT = 4


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
        self.nodes = self._nodes()
        """The loops and branches that leave nothing behind in counters, by their first steps."""
        whiles = [place for place, block in self.nodes.items() if isinstance(block, While)]
        self._cells = {place: cell for cell, place in enumerate(whiles)}

    @property
    def asks(self) -> bool:
        """Whether the host, or a condition on the device, reads what a kernel computed."""
        branches = any(step[StepWord.OPCODE] == Opcode.BRANCH for step in self.steps)
        return branches or any(given[ArgWord.KIND] == ArgKind.LOADED for given in self.arguments)

    # Notes: the rows of the calls, then how a condition ended the call, and the rounds of each `while`.

    @property
    def rows(self) -> int:
        """How many rows there are for what failing kernels note, those of each call apart."""
        return max(1, len(self.ops))

    @property
    def fault_bytes(self) -> int:
        """What notes take. All of it is zero before a call, and after one that ends well."""
        tail = 8 * (EndWord.COUNT + len(self._cells)) if self._cells else 0
        return FAULT_BYTES * self.rows + tail

    def slot(self, place: int) -> Word:
        """Where the kernel of a call notes that it fails."""
        return self.faults, FAULT_BYTES * self._slots[place]

    @property
    def notes_end(self) -> bool:
        """Whether there may be a condition on the device that ends the call."""
        return bool(self._cells)

    @property
    def end(self) -> Word:
        """Where a condition on the device notes that it ends the call (`EndWord`)."""
        return self.faults, FAULT_BYTES * self.rows

    def cell(self, loop: While) -> Word:
        """Where the rounds of a `while` are counted on the device."""
        root, end = self.end
        return root, end + 8 * (EndWord.COUNT + self._cells[loop.begin])

    # Counters

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

    def _nodes(self) -> dict[int, While | Choose]:
        """The blocks of which no later step can tell by a counter whether, or how often, they were done."""
        escaping = self._escaping()
        found: dict[int, While | Choose] = {}
        for place, block in blocks(self.steps).items():
            if isinstance(block, Loop):
                continue
            inside = self.steps[block.begin : block.end]
            given = {step[StepWord.A] for step in inside if step[StepWord.OPCODE] in _GIVES}
            if not given & escaping:
                found[place] = block
        return found

    def _escaping(self) -> set[int]:
        """Counters that something uses outside of the loop, or not right behind the combination, that
        gives them their values."""
        escaping: set[int] = set()
        loops: set[int] = set()
        combined: set[int] = set()
        for step in self.steps:
            opcode, a, *_ = step
            escaping |= set(self._uses(step)) - loops - combined
            match opcode:
                case Opcode.WAVE | Opcode.CALL:
                    pass
                case Opcode.COMBINE:
                    combined.add(a)
                case _:
                    combined.clear()
            if opcode in _GIVES and a in loops:
                escaping.add(a)
            if opcode == Opcode.LOOP:
                loops.add(a)
            elif opcode == Opcode.NEXT:
                loops.discard(a)
        return escaping

    def _uses(self, step: Sequence[int]) -> Iterator[int]:
        """The counters that a step uses to find places or numbers."""
        opcode, a, b, c, d, *_ = step
        match opcode:
            case Opcode.COMBINE:
                yield from (b, d)
                return
            case Opcode.CALL:
                given = range(b, b + c)
            case Opcode.LOOP:
                given = range(b, b + 1)
            case Opcode.BRANCH:
                given = range(a, a + 1)
            case _:
                return
        for argument in given:
            kind, _, _, counter, _ = self.arguments[argument]
            if kind != ArgKind.SIZE:
                yield counter

    # The host's walk

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
