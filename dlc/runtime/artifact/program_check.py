"""The program checker: every reference in a step table (`dlc.runtime.abi`) is in range.

A step table is numbers from an untrusted file. `check_program`, once for a program, checks every step,
jump target, argument, size, root, counter and kernel that it names. `check_amounts`, for each tuple of
sizes, checks that pointers start inside their roots and that the amount of work is bounded. Accesses
inside a kernel are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.abi import (
    ARG_WORDS,
    HEADER_WORDS,
    MAX_ARGS,
    MAX_COUNTERS,
    STEP_WORDS,
    THREAD,
    ArgKind,
    ArgWord,
    Opcode,
    Root,
    StepWord,
)

Words = NDArray[np.int64]

MAX_COST = 2.0**52
"""The most nanoseconds of work that one call may have, by the estimates of its kernels."""
_JUMPS = {  # the words of each step that name another step
    Opcode.LOOP: (StepWord.C,),
    Opcode.NEXT: (StepWord.C,),
    Opcode.BRANCH: (StepWord.B, StepWord.C),
    Opcode.JUMP: (StepWord.A,),
}
_COUNTERS = {
    Opcode.LOOP: (StepWord.A,),
    Opcode.NEXT: (StepWord.A,),
    Opcode.LIMIT: (StepWord.A,),
    Opcode.ZERO: (StepWord.A,),
    Opcode.COMBINE: (StepWord.A, StepWord.B, StepWord.D),
}
_SIZES = {
    Opcode.CALL: (StepWord.D, StepWord.E),
    Opcode.LIMIT: (StepWord.B,),
    Opcode.COMBINE: (StepWord.C, StepWord.E),
}
_ARGUMENTS = {
    Opcode.CALL: (StepWord.B,),
    Opcode.LOOP: (StepWord.B,),
    Opcode.BRANCH: (StepWord.A,),
}
_OPS = {Opcode.CALL: (StepWord.F,), Opcode.LIMIT: (StepWord.C,)}
_OPCODES = frozenset(map(int, Opcode))
_ARG_KINDS = frozenset(map(int, ArgKind))


class BadProgram(ValueError):
    """A program names something that does not exist; `word` is the index of the wrong word in the table."""

    def __init__(self, message: str, word: int) -> None:
        super().__init__(message)
        self.word = word


class Surroundings(NamedTuple):
    """What a program may name: how many sizes, roots and ops there are, and the ids of the kernels."""

    sizes: int
    roots: int
    ops: int
    kernels: frozenset[int]


class ProgramTable(NamedTuple):
    """A checked program: a row for each step and each argument, and the wave of each step.

    The wave of a step is the number of waves that end before it in the table (see `dlc.runtime.abi`).
    """

    steps: Words
    arguments: Words
    waves: Words

    @property
    def calls(self) -> Words:
        """The indices of the CALL steps."""
        return np.flatnonzero(self.steps[:, StepWord.OPCODE] == Opcode.CALL)


def check_program(words: Words, around: Surroundings) -> ProgramTable:
    """Split the words of a section into steps and arguments, and check them. Raises BadProgram."""
    steps, arguments = _split(words)
    _check_arguments(arguments, around, first_word=HEADER_WORDS + steps.size)
    opcodes = steps[:, StepWord.OPCODE]
    _refuse_rows(~_among(opcodes, _OPCODES), "an unknown opcode")
    if opcodes[-1] != Opcode.END:
        raise BadProgram("the last step is not END", _step_word(len(steps) - 1))
    _check_fields(steps, len(arguments), around)
    _check_calls(steps, len(arguments), around)
    _check_waves(steps)
    _check_control(steps, arguments)
    ends = opcodes == Opcode.WAVE
    # The calls of a wave follow the WAVE step but belong to it.
    waves = np.cumsum(ends) - (ends | (opcodes == Opcode.CALL))
    return ProgramTable(steps, arguments, waves)


def _split(words: Words) -> tuple[Words, Words]:
    if len(words) < HEADER_WORDS + STEP_WORDS:
        raise BadProgram("it is too short to hold a step", 0)
    count, arguments_at, parallel = (int(word) for word in words[:HEADER_WORDS])
    if not 0 < count <= (len(words) - HEADER_WORDS) // STEP_WORDS:
        raise BadProgram(f"{count} steps do not fit", 0)
    if arguments_at != HEADER_WORDS + count * STEP_WORDS:
        raise BadProgram("the argument table does not follow the steps", 1)
    if (len(words) - arguments_at) % ARG_WORDS:
        raise BadProgram("the argument table ends inside an argument", arguments_at)
    if parallel not in (0, 1):
        raise BadProgram(f"{parallel} is neither 0 nor 1", 2)
    steps = words[HEADER_WORDS:arguments_at].reshape(-1, STEP_WORDS)
    return steps, words[arguments_at:].reshape(-1, ARG_WORDS)


def _check_arguments(arguments: Words, around: Surroundings, first_word: int) -> None:
    kind, root, offset, counter, stride = (arguments[:, word] for word in ArgWord)
    points = (kind == ArgKind.POINTER) | (kind == ArgKind.LOADED)
    counted = (counter >= 0) & (counter < MAX_COUNTERS)
    per_thread = (counter == THREAD) & (root == Root.SCRATCH)
    faults = (
        (~_among(kind, _ARG_KINDS), "an argument of an unknown kind"),
        ((kind != ArgKind.COUNTER) & _outside(offset, around.sizes), "a size that does not exist"),
        (points & _outside(root, around.roots), "a root that does not exist"),
        (points & ~counted & ~per_thread & (counter != -1), "a counter that does not exist"),
        (points & (counter != -1) & _outside(stride, around.sizes), "a stride that does not exist"),
        ((kind == ArgKind.COUNTER) & ~counted, "a counter that does not exist"),
    )
    for wrong, message in faults:
        if wrong.any():
            row = int(wrong.argmax())
            raise BadProgram(f"argument {row}: {message}", first_word + row * ARG_WORDS)


def _check_fields(steps: Words, arguments: int, around: Surroundings) -> None:
    """Every step, counter, size, argument and op that a step names exists."""
    limits = (
        (_JUMPS, len(steps), "a step that does not exist"),
        (_COUNTERS, MAX_COUNTERS, "a counter that does not exist"),
        (_SIZES, around.sizes, "a size that does not exist"),
        (_OPS, around.ops, "an op that does not exist"),
    )
    opcodes = steps[:, StepWord.OPCODE]
    for table, limit, message in limits:
        for opcode, fields in table.items():
            for field in fields:
                _refuse_rows((opcodes == opcode) & _outside(steps[:, field], limit), message)
    for opcode, (field,) in _ARGUMENTS.items():
        # A call without arguments may name the place after the last one.
        limit = arguments + (opcode == Opcode.CALL)
        wrong = (opcodes == opcode) & _outside(steps[:, field], limit)
        _refuse_rows(wrong, "an argument that does not exist")


def _check_calls(steps: Words, arguments: int, around: Surroundings) -> None:
    calls = steps[:, StepWord.OPCODE] == Opcode.CALL
    _refuse_rows(
        calls & ~_among(steps[:, StepWord.A], around.kernels), "a kernel that does not exist"
    )
    count = steps[:, StepWord.C]
    _refuse_rows(calls & _outside(count, MAX_ARGS + 1), f"more than {MAX_ARGS} arguments")
    end = steps[:, StepWord.B] + np.where(calls, count, 0)
    _refuse_rows(calls & (end > arguments), "an argument that does not exist")
    passed = int(count[calls].sum())
    if passed > arguments:
        raise BadProgram(f"its calls take {passed} arguments, and there are {arguments}", 0)
    reads = steps[:, StepWord.G]
    _refuse_rows(
        calls & ((reads < 0) | (reads > count)), "more arguments that are read than there are"
    )


def _check_waves(steps: Words) -> None:
    """Every call belongs to the wave before it, and no jump leads into the middle of a wave."""
    opcodes = steps[:, StepWord.OPCODE]
    waves = opcodes == Opcode.WAVE
    for flag in (StepWord.B, StepWord.C):
        _refuse_rows(waves & _outside(steps[:, flag], 2), "a flag that is neither 0 nor 1")
    count = steps[:, StepWord.A]
    too_long = (count < 0) | (count >= len(steps) - np.arange(len(steps)))
    _refuse_rows(waves & too_long, "a wave longer than the program")
    expected = _in_waves(steps, np.flatnonzero(waves))
    calls = opcodes == Opcode.CALL
    _refuse_rows(expected != calls, "a wave's calls are not the ones that follow it")
    for opcode, fields in _JUMPS.items():
        for field in fields:
            rows = np.flatnonzero(opcodes == opcode)
            into = np.zeros(len(steps), np.bool_)
            into[rows] = calls[steps[rows, field]]
            _refuse_rows(into, "a jump into the middle of a wave")


def _check_control(steps: Words, arguments: Words) -> None:
    """A NEXT goes to the body of its LOOP; trip counts are numbers, conditions are pointers."""
    opcodes = steps[:, StepWord.OPCODE]
    for row in np.flatnonzero(opcodes == Opcode.NEXT):
        loop = steps[steps[row, StepWord.C] - 1]
        if loop[StepWord.OPCODE] != Opcode.LOOP or loop[StepWord.A] != steps[row, StepWord.A]:
            raise BadProgram(
                "a NEXT that does not go to the body of its LOOP", _step_word(int(row))
            )
    for opcode, field, pointer in (
        (Opcode.LOOP, StepWord.B, False),
        (Opcode.BRANCH, StepWord.A, True),
    ):
        rows = np.flatnonzero(opcodes == opcode)
        is_pointer = arguments[steps[rows, field], ArgWord.KIND] == ArgKind.POINTER
        wrong = np.zeros(len(steps), np.bool_)
        wrong[rows] = is_pointer != pointer
        _refuse_rows(wrong, "a pointer is needed" if pointer else "a pointer as a trip count")


def _in_waves(steps: Words, waves: Words) -> NDArray[np.bool_]:
    """Which steps belong to one of these WAVE steps: the ones after it, as many as it counts."""
    changes = np.zeros(len(steps) + 1, np.int64)
    np.add.at(changes, waves + 1, 1)
    np.add.at(changes, waves + 1 + steps[waves, StepWord.A], -1)
    return np.cumsum(changes[:-1]) > 0


def _among(values: Words, allowed: Iterable[int]) -> NDArray[np.bool_]:
    """Which values are allowed. (`np.isin` would import `numpy.ma`, a third of the time of a load.)"""
    sorted_values = np.array(sorted(allowed), np.int64)
    if not len(sorted_values):
        return np.zeros(len(values), np.bool_)
    nearest = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return sorted_values[nearest] == values


def _outside(values: Words, limit: int) -> NDArray[np.bool_]:
    return (values < 0) | (values >= limit)


def _refuse_rows(wrong: NDArray[np.bool_], message: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise BadProgram(f"step {row}: {message}", _step_word(row))


def _step_word(step: int) -> int:
    return HEADER_WORDS + step * STEP_WORDS


def check_amounts(table: ProgramTable, sizes: Sequence[int], root_bytes: Sequence[int]) -> None:
    """Check that at these sizes pointers start inside their roots and the work is less than MAX_COST.

    `root_bytes` has the length of each root; for SCRATCH it is the share of one thread. Raises BadProgram.
    """
    values = np.array(sizes, np.int64)
    _check_pointers(table, values, np.array(root_bytes, np.int64))
    calls = table.steps[table.calls]
    tiles, cost = values[calls[:, StepWord.D]], values[calls[:, StepWord.E]]
    wrong = (tiles < 0) | (cost < 1) | (np.cumsum(tiles.astype(np.float64) * cost) >= MAX_COST)
    if wrong.any():
        row = int(wrong.argmax())
        message = f"step {table.calls[row]}: {tiles[row]} tiles of cost {cost[row]}"
        raise BadProgram(message, _step_word(int(table.calls[row])))


def _check_pointers(table: ProgramTable, sizes: Words, root_bytes: Words) -> None:
    arguments = table.arguments
    kind = arguments[:, ArgWord.KIND]
    rows = np.flatnonzero((kind == ArgKind.POINTER) | (kind == ArgKind.LOADED))
    pointers = arguments[rows]
    offset = sizes[pointers[:, ArgWord.OFFSET]]
    limit = root_bytes[pointers[:, ArgWord.ROOT]]
    wrong = (offset < 0) | (offset > limit)
    per_thread = pointers[:, ArgWord.COUNTER] == THREAD
    stride = sizes[pointers[per_thread, ArgWord.STRIDE]]
    wrong[per_thread] |= (stride < 0) | (stride > limit[per_thread])
    if wrong.any():
        row = int(wrong.argmax())
        root = int(pointers[row, ArgWord.ROOT])
        what = f"argument {rows[row]} starts at byte {offset[row]} of root {root}"
        word = HEADER_WORDS + table.steps.size + int(rows[row]) * ARG_WORDS
        raise BadProgram(f"{what}, which has {limit[row]}", word)
