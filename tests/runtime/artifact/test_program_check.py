"""Every number of a program that refers to something is looked up."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.abi import (
    HEADER_WORDS,
    MAX_ARGS,
    MAX_COUNTERS,
    STEP_WORDS,
    THREAD,
    ArgKind,
    Opcode,
    Root,
)
from dlc.runtime.artifact.program_check import (
    BadProgram,
    Surroundings,
    Words,
    check_amounts,
    check_program,
)
from tests.suites import together

KERNEL = 64
SIZES = 6
AROUND = Surroundings(sizes=SIZES, roots=Root.INPUTS + 2, ops=2, kernels=frozenset({KERNEL, 128}))
STEPS = [
    [Opcode.LOOP, 0, 3, 7, 0, 0, 0, 0],  # 0: rounds from argument 3
    [Opcode.LIMIT, 1, 2, 0, 0, 0, 0, 0],  # 1
    [Opcode.COMBINE, 2, 0, 3, 1, 3, 0, 0],  # 2
    [Opcode.WAVE, 2, 0, 0, 0, 0, 0, 0],  # 3
    [Opcode.CALL, KERNEL, 0, 3, 4, 5, 0, 0],  # 4
    [Opcode.CALL, 128, 0, 0, 4, 5, 1, 0],  # 5
    [Opcode.NEXT, 0, 0, 1, 0, 0, 0, 0],  # 6
    [Opcode.BRANCH, 4, 8, 9, 0, 0, 0, 0],  # 7
    [Opcode.ZERO, 1, 0, 0, 0, 0, 0, 0],  # 8
    [Opcode.WAVE, 1, 1, 0, 0, 0, 0, 0],  # 9
    [Opcode.CALL, KERNEL, 0, 3, 4, 5, 0, 0],  # 10
    [Opcode.JUMP, 12, 0, 0, 0, 0, 0, 0],  # 11
    [Opcode.END, 0, 0, 0, 0, 0, 0, 0],  # 12
]
ARGUMENTS = [
    [ArgKind.POINTER, Root.INPUTS + 1, 0, -1, -1],
    [ArgKind.POINTER, Root.ARENA, 0, 2, 3],
    [ArgKind.POINTER, Root.SCRATCH, 0, THREAD, 3],
    [ArgKind.SIZE, 0, 1, -1, -1],
    [ArgKind.POINTER, Root.INPUTS, 0, -1, -1],
    [ArgKind.COUNTER, 0, 0, 0, -1],
    [ArgKind.LOADED, Root.INPUTS, 0, -1, -1],
]


def words_of(steps: list[list[int]], arguments: list[list[int]]) -> Words:
    head = [len(steps), HEADER_WORDS + STEP_WORDS * len(steps), 1]
    flat = [*head, *(word for row in steps for word in row), *(w for row in arguments for w in row)]
    return np.array(flat, np.int64)


def changed(step: int | None = None, argument: int | None = None, **fields: int) -> Words:
    """The good program with some words of one step, or of one argument, replaced."""
    steps, arguments = [list(row) for row in STEPS], [list(row) for row in ARGUMENTS]
    row = steps[step] if step is not None else arguments[argument or 0]
    names = "oabcdef" if step is not None else "kroct"
    for name, value in fields.items():
        row[names.index(name)] = value
    return words_of(steps, arguments)


def test_a_good_program_passes_and_its_waves_are_counted() -> None:
    table = check_program(words_of(STEPS, ARGUMENTS), AROUND)
    assert table.calls.tolist() == [4, 5, 10]
    assert table.waves.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]


@together(
    ("step", "argument", "field", "bad"),
    [
        (*place, bad)
        for place in (
            *((1, None, "b"), (2, None, "c"), (2, None, "e"), (4, None, "d"), (4, None, "e")),
            *((None, 0, "o"), (None, 1, "t"), (None, 3, "o"), (None, 6, "o")),
        )
        for bad in (-1, SIZES, 1 << 62, -(1 << 62))
    ],
)
def test_a_size_that_does_not_exist_is_refused(
    step: int | None, argument: int | None, field: str, bad: int
) -> None:
    with pytest.raises(BadProgram, match=r"(size|stride) that does not exist"):
        check_program(changed(step, argument, **{field: bad}), AROUND)


@together(
    ("words", "why"),
    [
        (changed(0, o=10), "step 0: an unknown opcode"),
        (changed(0, o=-1), "step 0: an unknown opcode"),
        (changed(12, o=Opcode.ZERO), "the last step is not END"),
        (changed(0, a=MAX_COUNTERS), "a counter that does not exist"),
        (changed(1, a=-1), "a counter that does not exist"),
        (changed(2, b=16), "a counter that does not exist"),
        (changed(2, d=-2), "a counter that does not exist"),
        (changed(6, a=1 << 40), "a counter that does not exist"),
        (changed(8, a=16), "a counter that does not exist"),
        (changed(0, b=7), "an argument that does not exist"),
        (changed(0, b=4), "a pointer as a trip count"),
        (changed(7, a=3), "a pointer is needed"),
        (changed(7, a=-1), "an argument that does not exist"),
        (changed(0, c=13), "a step that does not exist"),
        (changed(7, b=-1), "a step that does not exist"),
        (changed(7, c=99), "a step that does not exist"),
        (changed(11, a=13), "a step that does not exist"),
        (changed(11, a=4), "a jump into the middle of a wave"),
        (changed(7, c=10), "a jump into the middle of a wave"),
        (changed(6, c=2), "does not go to the body of its LOOP"),
        (changed(6, c=0), "does not go to the body of its LOOP"),
        (changed(6, a=1), "does not go to the body of its LOOP"),
        (changed(4, f=2), "an op that does not exist"),
        (changed(1, c=2), "an op that does not exist"),
        (changed(4, a=65), "step 4: a kernel that does not exist"),
        (changed(4, a=0), "step 4: a kernel that does not exist"),
        (changed(4, c=MAX_ARGS + 1), "more than 64 arguments"),
        (changed(4, c=-1), "more than 64 arguments"),
        (changed(4, b=5), "an argument that does not exist"),
        (changed(4, b=-1), "an argument that does not exist"),
        (changed(4, b=1 << 62, c=64), "an argument that does not exist"),
        (changed(3, a=3), "a wave's calls are not the ones that follow it"),
        (changed(3, a=1), "a wave's calls are not the ones that follow it"),
        (changed(3, a=-1), "a wave longer than the program"),
        (changed(3, a=1 << 60), "a wave longer than the program"),
        (changed(9, a=4), "step 9: a wave longer than the program"),
        (changed(9, o=Opcode.ZERO), "a wave's calls are not the ones that follow it"),
        (changed(3, b=2), "a flag that is neither 0 nor 1"),
        (changed(argument=0, k=4), "argument 0: an argument of an unknown kind"),
        (changed(argument=0, r=Root.INPUTS + 2), "argument 0: a root that does not exist"),
        (changed(argument=6, r=-1), "argument 6: a root that does not exist"),
        (changed(argument=1, c=16), "argument 1: a counter that does not exist"),
        (changed(argument=1, c=THREAD), "argument 1: a counter that does not exist"),
        (changed(argument=5, c=-1), "argument 5: a counter that does not exist"),
        (changed(argument=5, c=THREAD), "argument 5: a counter that does not exist"),
    ],
)
def test_a_reference_to_nothing_is_refused(words: Words, why: str) -> None:
    with pytest.raises(BadProgram, match=why):
        check_program(words, AROUND)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (np.zeros(0, np.int64), "too short"),
        (np.zeros(10, np.int64), "too short"),
        (np.array([0, 3, 1, *[0] * 8]), "0 steps do not fit"),
        (np.array([2, 19, 1, *[0] * 8]), "2 steps do not fit"),
        (np.array([1 << 60, 11, 1, *[0] * 8]), "do not fit"),
        (np.array([1, 12, 1, *[0] * 9]), "does not follow the steps"),
        (np.array([1, 11, 1, *[0] * 9]), "ends inside an argument"),
        (np.array([1, 11, 2, *[0] * 8]), "neither 0 nor 1"),
    ],
)
def test_a_table_of_another_form_is_refused(words: Words, why: str) -> None:
    with pytest.raises(BadProgram, match=why):
        check_program(words, AROUND)


GOOD_SIZES = [0, 64, 5, 64, 8, 1]
ROOT_BYTES = [4096, 64, 64, 256, 64, 128, 128]


def test_sensible_amounts_pass() -> None:
    check_amounts(check_program(words_of(STEPS, ARGUMENTS), AROUND), GOOD_SIZES, ROOT_BYTES)


@pytest.mark.parametrize(
    ("index", "value", "why"),
    [
        (0, 129, "argument 0 starts at byte 129 of root 6, which has 128"),
        (0, -1, "starts at byte -1"),
        (0, 1 << 62, "starts at byte"),
        (3, 257, "starts at byte"),  # a thread's share of the scratch is smaller than its stride
        (3, -64, "starts at byte"),
        (4, -1, "-1 tiles"),
        (5, 0, "cost 0"),
        (4, 1 << 52, "tiles of cost 1"),
    ],
)
def test_amounts_out_of_measure_are_refused(index: int, value: int, why: str) -> None:
    table = check_program(words_of(STEPS, ARGUMENTS), AROUND)
    sizes = [*GOOD_SIZES[:index], value, *GOOD_SIZES[index + 1 :]]
    with pytest.raises(BadProgram, match=why):
        check_amounts(table, sizes, ROOT_BYTES)


def test_any_words_give_a_table_or_the_typed_error() -> None:
    random_ = np.random.default_rng(3)
    good = words_of(STEPS, ARGUMENTS)
    interesting = np.array(
        [-1, 0, 1, 2, 3, 5, 12, 13, 16, 64, 128, THREAD, 1 << 31, 1 << 62, -(1 << 62)]
    )
    accepted = 0
    for _ in range(3000):
        words = good.copy()
        for _ in range(random_.integers(1, 4)):
            words[random_.integers(len(words))] = random_.choice(interesting)
        try:
            table = check_program(words, AROUND)
            check_amounts(table, GOOD_SIZES, ROOT_BYTES)
            accepted += 1
        except BadProgram:
            continue
    assert 0 < accepted < 3000
