"""What the engine decides: right in Python, and the same in the machine code that the engine is made of."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from random import Random
from typing import TypeAlias

import pytest

from dlc.codegen.engine.decisions import (
    CHUNK,
    FUNCTIONS,
    MOST_CHUNKS,
    QUEUE_END,
    WalkWord,
    argument_value,
    argument_word,
    chunk_in_direction,
    chunks_each,
    combine,
    employed_threads,
    enter_loop,
    first_tile,
    has_op,
    is_earlier,
    next_round,
    part_begin,
    queue_end,
    queue_first,
    queue_of,
    queue_wave,
    step_word,
    useful_threads,
    wave_cost,
)
from dlc.codegen.integer_functions import internal_functions
from dlc.codegen.link.image import link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import (
    ARG_WORDS,
    GRAIN,
    HEADER_WORDS,
    MAX_THREADS,
    STEP_WORDS,
    THREAD,
    ArgKind,
    ArgWord,
    Opcode,
)
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.target.cpu import CpuTarget

SIZES = [0, 1, 3, 7, 400, GRAIN, 5 * GRAIN]
"""Sizes of programs here; a step or an argument has the index of one."""
ROOTS = [1 << 20, 1 << 30, 3]


def program(steps: Sequence[Sequence[int]], arguments: Sequence[Sequence[int]] = ()) -> list[int]:
    """The words of a program; what a step does not say is 0."""
    words = [len(steps), HEADER_WORDS + len(steps) * STEP_WORDS, 1]
    for step in steps:
        words += [*step, *[0] * (STEP_WORDS - len(step))]
    for argument in arguments:
        words += argument
    return words


def wave(*calls: tuple[int, int], serial: int = 0) -> list[list[int]]:
    """The steps of a wave whose calls have these tiles and costs, as indices of sizes."""
    steps = [[Opcode.WAVE, len(calls), serial]]
    return steps + [
        [Opcode.CALL, 0, 0, 0, tiles, cost, op] for op, (tiles, cost) in enumerate(calls)
    ]


def counters(*values: int) -> list[int]:
    """The state of thread 5 with these counters."""
    walk = [0] * WalkWord.COUNT
    walk[WalkWord.THREAD] = 5
    walk[WalkWord.COUNTERS : WalkWord.COUNTERS + len(values)] = values
    return walk


# ---- in Python


def test_a_wave_costs_what_its_tiles_cost_together() -> None:
    words = program([*wave((2, 4), (3, 1)), *wave((4, 4))])
    assert wave_cost(words, SIZES, step_word(0)) == 3 * 400 + 7 * 1
    assert wave_cost(words, SIZES, step_word(3)) == 400 * 400


@pytest.mark.parametrize(
    ("cost", "threads", "employed"),
    [(0, 4, 1), (2 * GRAIN - 1, 4, 1), (2 * GRAIN, 4, 2), (9 * GRAIN, 4, 4), (9 * GRAIN, 0, 1)],
)
def test_a_wave_employs_a_thread_for_each_grain_of_its_cost(
    cost: int, threads: int, employed: int
) -> None:
    assert employed_threads(cost, threads) == employed


def test_the_busiest_wave_that_threads_may_share_says_how_many_are_useful() -> None:
    words = program([*wave((2, 5)), *wave((3, 6), serial=1), *wave((1, 6))])
    assert [useful_threads(words, SIZES, allowed) for allowed in (0, 1, 4, 16)] == [1, 1, 4, 5]
    words[2] = 0
    assert useful_threads(words, SIZES, 16) == 1


def test_parts_are_the_whole_and_differ_by_one_at_most() -> None:
    for cost, parts in ((0, 1), (1, 3), (10, 4), (1 << 51, 1023)):
        marks = [part_begin(cost, part, parts) for part in range(parts + 1)]
        lengths = [after - before for before, after in pairwise(marks)]
        assert (marks[0], marks[-1]) == (0, cost)
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("cost", "threads", "chunks"),
    [
        (2 * GRAIN, 2, 1),
        (10 * CHUNK, 2, 5),
        (11 * CHUNK, 4, 2),
        (1 << 51, 4, MOST_CHUNKS),
        (1 << 51, MAX_THREADS, 3),
    ],
)
def test_each_thread_has_a_chunk_and_more_if_none_is_cheap(
    cost: int, threads: int, chunks: int
) -> None:
    assert chunks_each(cost, threads) == chunks < QUEUE_END / threads


def test_backward_each_queue_begins_with_its_last_chunk() -> None:
    assert [chunk_in_direction(chunk, 3, 0) for chunk in range(9)] == list(range(9))
    assert [chunk_in_direction(chunk, 3, 1) for chunk in range(9)] == [2, 1, 0, 5, 4, 3, 8, 7, 6]


def test_a_queue_is_a_wave_and_a_range_of_its_chunks() -> None:
    most = (1 << 43) - 1
    for wave, first, end in product((0, 1, 77, most), (0, 5, 1022), (0, 6, 1023)):
        queue = queue_of(wave, first, end)
        assert queue < 1 << 63
        assert (queue_wave(queue), queue_first(queue), queue_end(queue)) == (wave, first, end)


def test_each_tile_is_in_the_part_in_which_it_begins() -> None:
    random = Random(0)
    for _ in range(300):
        begin, cost, tiles = random.randrange(20), random.randrange(1, 9), random.randrange(6)
        for mark in range(begin + cost * tiles + 10):
            starts = [begin + cost * tile for tile in range(tiles)]
            behind = [tile for tile, start in enumerate(starts) if start >= mark]
            assert first_tile(mark, begin, cost, tiles) == min(behind, default=tiles)


def test_a_wave_has_the_ops_of_its_own_calls_only() -> None:
    words = program([*wave((1, 1), (1, 1)), *wave((1, 1), (1, 1), (1, 1))])
    assert [has_op(words, step_word(0), op) for op in range(4)] == [True, True, False, False]
    assert [has_op(words, step_word(3), op) for op in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("trips", [-2, 0, 1, 4])
def test_a_loop_has_as_many_rounds_as_trips(trips: int) -> None:
    walk, rounds = counters(), 0
    goes_on = enter_loop(walk, 1, trips)
    while goes_on:
        assert walk[WalkWord.COUNTERS + 1] == rounds
        goes_on, rounds = next_round(walk, 1), rounds + 1
    assert rounds == max(trips, 0)
    assert walk[WalkWord.BACKWARD] == rounds % 2


def test_a_combined_counter_is_the_sum_of_two_times_their_sizes() -> None:
    words, walk = program([[Opcode.COMBINE, 2, 0, 3, 1, 2]]), counters(5, 2)
    combine(words, SIZES, walk, step_word(0))
    assert walk[WalkWord.COUNTERS + 2] == 5 * 7 + 2 * 3


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ([ArgKind.SIZE, 0, 4, -1, -1], 400),
        ([ArgKind.COUNTER, 0, -1, 1, -1], 12),
        ([ArgKind.POINTER, 1, 2, -1, -1], (1 << 30) + 3),
        ([ArgKind.POINTER, 0, 2, 1, 3], (1 << 20) + 3 + 12 * 7),
        ([ArgKind.POINTER, 2, 0, THREAD, 4], 3 + 5 * 400),
        ([ArgKind.LOADED, 1, 3, 0, 2], (1 << 30) + 7 + 11 * 3),
    ],
)
def test_an_argument_is_what_the_contract_says(argument: list[int], value: int) -> None:
    words = program([[Opcode.END]], [[ArgKind.SIZE, 0, 0, -1, -1], argument])
    assert argument_value(words, SIZES, ROOTS, counters(11, 12), argument_word(words, 1)) == value


def test_the_earlier_failure_is_that_of_the_lower_place_and_then_tile() -> None:
    assert is_earlier(3, 9, 4, 0)
    assert not is_earlier(4, 0, 3, 9)
    assert is_earlier(3, 1, 3, 2)
    assert not is_earlier(3, 2, 3, 2)


# ---- as machine code


def exported(function: Callable[..., int | None]) -> str:
    """A function of LLVM text that calls the one in the engine."""
    types = {
        name: "i64" if parameter.annotation == "int" else "ptr"
        for name, parameter in inspect.signature(function).parameters.items()
    }
    parameters = ", ".join(f"{type} %{name}" for name, type in types.items())
    call = f"%result = call i64 @{function.__name__}({parameters})"
    return f"define i64 @the_{function.__name__}({parameters}) {{ {call} ret i64 %result }}\n"


@cache
def machine_code() -> tuple[LoadedImage, dict[str, int]]:
    """All functions compiled, and where each begins."""
    text = internal_functions(*FUNCTIONS) + "".join(map(exported, FUNCTIONS))
    image = link({"decisions": compile_object(text, CpuTarget.named("x86-64"))})
    digest = hashlib.sha256(image.code).digest()
    return load_image(image.code, digest, image.imports), dict(image.entries)


def compiled(function: Callable[..., int | None], *arguments: int | array[int]) -> int:
    """What machine code gives; it writes into the arrays."""
    loaded, entries = machine_code()
    words = [each if isinstance(each, int) else each.buffer_info()[0] for each in arguments]
    integers = [ctypes.c_int64] * len(words)
    entry = loaded.base + entries[f"the_{function.__name__}"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *integers)(entry)(*words)


def random_program(random: Random) -> array[int]:
    """Waves, a COMBINE, an argument of each kind."""
    size, counter = range(len(SIZES)), range(4)
    steps: list[list[int]] = []
    for _ in range(4):
        calls = [(random.choice(size), random.choice(size[1:])) for _ in range(random.randrange(4))]
        steps += wave(*calls, serial=random.randrange(2))
    a, b, d = random.choices(counter, k=3)
    steps.append([Opcode.COMBINE, a, b, random.choice(size), d, random.choice(size)])
    arguments = [
        [kind, random.randrange(3), random.choice(size), random.choice([-1, 0, 3, THREAD]), 1]
        for kind in (ArgKind.POINTER, ArgKind.LOADED, ArgKind.SIZE)
    ]
    arguments += [[ArgKind.COUNTER, 0, -1, random.choice(counter), -1]]
    words = array("q", program(steps, arguments))
    words[2] = random.randrange(4)
    return words


Call: TypeAlias = "tuple[Callable[..., int | None], tuple[int | array[int], ...]]"


def random_calls(random: Random) -> Iterator[Call]:
    """A call of each function."""
    words, sizes, roots = random_program(random), array("q", SIZES), array("q", ROOTS)
    walk = array("q", counters(*random.choices(range(9), k=4)))
    walk[WalkWord.COUNTS : WalkWord.COUNTS + 4] = array("q", random.choices(range(9), k=4))
    steps, first = words[0], step_word(0)
    small = random.randrange(9)
    yield useful_threads, (words, sizes, small)
    yield wave_cost, (words, sizes, first)
    yield employed_threads, (random.randrange(9 * GRAIN), small)
    yield part_begin, (random.randrange(1 << 52), small, small + random.randrange(1, 9))
    yield chunks_each, (random.randrange(99 * CHUNK), small + 1)
    yield chunk_in_direction, (random.randrange(QUEUE_END), small + 1, random.randrange(2))
    queue = random.randrange(1 << 63)
    yield queue_of, (small, *random.choices(range(QUEUE_END), k=2))
    yield from ((part, (queue,)) for part in (queue_wave, queue_first, queue_end))
    yield first_tile, (*random.choices(range(40), k=2), small + 1, random.randrange(9))
    yield has_op, (words, first, small - 1)
    yield step_word, (small,)
    yield enter_loop, (walk, small // 3, small - 2)
    yield next_round, (walk, small // 3)
    yield combine, (words, sizes, walk, step_word(steps - 1))
    for number in range(4):
        argument = argument_word(words, number)
        assert words[argument + ArgWord.KIND] in set(ArgKind)
        assert argument + ARG_WORDS <= len(words)
        yield argument_word, (words, number)
        yield argument_value, (words, sizes, roots, walk, argument)
    yield is_earlier, tuple(random.choices(range(3), k=4))


def test_every_function_of_the_engine_is_compared() -> None:
    assert {function for function, _ in random_calls(Random(0))} == set(FUNCTIONS)


def test_machine_code_decides_what_python_does() -> None:
    random = Random(0)
    for _ in range(200):
        for function, arguments in random_calls(random):
            copies = [each if isinstance(each, int) else each[:] for each in arguments]
            assert compiled(function, *arguments) == (function(*copies) or 0), function.__name__
            assert list(arguments) == copies, f"{function.__name__} writes something else"
