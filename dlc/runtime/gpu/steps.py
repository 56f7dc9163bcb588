"""The step table (`dlc.runtime.abi`) of a program for a GPU, and what follows from it at any sizes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
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
"""An argument before its address is known: a root and an offset in it, or IMMEDIATE and a number."""
IMMEDIATE = -1
"""In pc of a root: the word is the number itself."""
_SETS = (Opcode.LOOP, Opcode.ZERO, Opcode.LIMIT, Opcode.COMBINE)
"""The steps that set the counter in their first word."""


class EndWord(IntEnum):
    """What a condition on the device reports when it ends the call, behind the faults of the kernels."""

    STATUS = 0
    EARLIER = 1  # 1 + the fault row of the first kernel that had failed by then, or 0
    LIMIT = 2
    OP = 3
    COUNT = 4


class StepTable:
    """The steps and arguments of a program, as lists of numbers."""

    def __init__(
        self, program: Bytes, roots: int, collectives: Container[int] = frozenset()
    ) -> None:
        """`roots` counts those that the program names; the next one holds the faults of its kernels.

        `collectives` are the numbers of kernels that stand for what ranks do together.
        """
        self._collectives = collectives
        words: Words = program.view("<i8")
        end = HEADER_WORDS + int(words[0]) * STEP_WORDS
        self.steps: list[list[int]] = words[HEADER_WORDS:end].reshape(-1, STEP_WORDS).tolist()
        self.arguments: list[list[int]] = words[end:].reshape(-1, ARG_WORDS).tolist()
        self.faults = roots
        calls = [k for k, step in enumerate(self.steps) if step[StepWord.OPCODE] == Opcode.CALL]
        self.ops = [self.steps[k][StepWord.F] for k in calls]
        """The op id of each call."""
        self._fault_row = {pc: row for row, pc in enumerate(calls)}
        self.only_counting = self._limits() - self._used()
        """Counters that are only compared with limits; no segment depends on them."""
        self.nodes = self._conditional_blocks()
        """The loops and branches that may become conditional graph nodes, by first step."""
        whiles = [pc for pc, block in self.nodes.items() if isinstance(block, While)]
        self._round_counters = {pc: index for index, pc in enumerate(whiles)}

    @property
    def reads_back(self) -> bool:
        """Whether the host, or a condition on the device, reads what a kernel computed."""
        branches = any(step[StepWord.OPCODE] == Opcode.BRANCH for step in self.steps)
        return branches or any(row[ArgWord.KIND] == ArgKind.LOADED for row in self.arguments)

    # The fault root: a row for each call, how a condition ended the call, the rounds of each `while`.

    @property
    def fault_rows(self) -> int:
        """The number of fault rows: one for each call of a kernel."""
        return max(1, len(self.ops))

    @property
    def fault_bytes(self) -> int:
        """The size of the fault root. All of it is zero before a call, and after one that succeeds."""
        tail = 8 * (EndWord.COUNT + len(self._round_counters)) if self._round_counters else 0
        return FAULT_BYTES * self.fault_rows + tail

    def fault_slot(self, pc: int) -> Word:
        """The address to which the kernel of a call reports a failure."""
        return self.faults, FAULT_BYTES * self._fault_row[pc]

    @property
    def may_end_on_device(self) -> bool:
        """Whether a condition on the device may end the call."""
        return bool(self._round_counters)

    @property
    def end_notes(self) -> Word:
        """The address to which a condition on the device reports that it ends the call (`EndWord`)."""
        return self.faults, FAULT_BYTES * self.fault_rows

    def round_counter(self, loop: While) -> Word:
        """The address at which the device counts the rounds of a `while`."""
        root, offset = self.end_notes
        return root, offset + 8 * (EndWord.COUNT + self._round_counters[loop.begin])

    # Counters

    def _limits(self) -> set[int]:
        return {step[StepWord.A] for step in self.steps if step[0] == Opcode.LIMIT}

    def _used(self) -> set[int]:
        """The counters that arguments, counted loops and COMBINE steps use."""
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

    def _conditional_blocks(self) -> dict[int, While | Choose]:
        """The blocks after which no step depends on a counter that they set."""
        escaping = self._escaping()
        eligible: dict[int, While | Choose] = {}
        for pc, block in blocks(self.steps).items():
            if isinstance(block, Loop):
                continue
            inside = self.steps[block.begin : block.end]
            counters = {step[StepWord.A] for step in inside if step[StepWord.OPCODE] in _SETS}
            if not counters & escaping:
                eligible[pc] = block
        return eligible

    def _escaping(self) -> set[int]:
        """Counters that are used outside of their LOOP, or not right behind their COMBINE step."""
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
            if opcode in _SETS and a in loops:
                escaping.add(a)
            if opcode == Opcode.LOOP:
                loops.add(a)
            elif opcode == Opcode.NEXT:
                loops.discard(a)
        return escaping

    def _uses(self, step: Sequence[int]) -> Iterator[int]:
        """The counters that a step reads, itself or in its arguments."""
        opcode, a, b, c, d, *_ = step
        match opcode:
            case Opcode.COMBINE:
                yield from (b, d)
                return
            case Opcode.CALL:
                arguments = range(b, b + c)
            case Opcode.LOOP:
                arguments = range(b, b + 1)
            case Opcode.BRANCH:
                arguments = range(a, a + 1)
            case _:
                return
        for argument in arguments:
            kind, _, _, counter, _ = self.arguments[argument]
            if kind != ArgKind.SIZE:
                yield counter

    # Segments

    def is_control(self, pc: int) -> bool:
        """Whether this step ends a segment, because the host has to decide on it."""
        opcode, a, b, c, *_ = self.steps[pc]
        match opcode:
            case Opcode.END | Opcode.BRANCH | Opcode.LIMIT:
                return True
            case Opcode.LOOP:
                return self.arguments[b][ArgWord.KIND] == ArgKind.LOADED
            case Opcode.ZERO:
                return a in self.only_counting
            case Opcode.CALL:
                rows = self.arguments[b : b + c]
                return a in self._collectives or any(
                    row[ArgWord.KIND] == ArgKind.LOADED for row in rows
                )
            case _:
                return False

    def key(self, pc: int, counters: Sequence[int], trips: Sequence[int]) -> tuple[int, ...]:
        """The state, besides the sizes, that the segment from step `pc` depends on."""
        counts = [0 if k in self.only_counting else value for k, value in enumerate(counters)]
        return pc, *counts, *trips
