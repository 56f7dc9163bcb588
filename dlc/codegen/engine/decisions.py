"""Decisions of the engine: how tiles are cut into chunks, the next step, the value of an argument.

These are functions of integers: `dlc.codegen.integer_functions` compiles them into the engine, and they
run unchanged in Python. A `program` is an array of words of `dlc.runtime.abi`, `sizes` and `roots` are
those of the call, and `walk` is the state of a thread, indexed by `WalkWord`. A step or an argument is
given by the index of its first word in the program. Costs are in nanoseconds.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from enum import IntEnum

from dlc.runtime.abi import (
    ARG_WORDS,
    GRAIN,
    HEADER_WORDS,
    MAX_ARGS,
    MAX_COUNTERS,
    STEP_WORDS,
    THREAD,
    ArgKind,
    ArgWord,
    HeaderWord,
    Opcode,
    StepWord,
)

CHUNK = 4000
"""The least cost, in nanoseconds, of a chunk of a wave that is cut into several for each thread."""
MOST_CHUNKS = 12
"""The most chunks for each thread: a thread that is late delays a wave by one of them at most."""
QUEUE_END = 1 << 10
"""What chunks of a wave are numbered below. The other 43 bits of a queue's word number its wave: they
last for a hundred days of waves of a microsecond."""


class WalkWord(IntEnum):
    """The words of the state of a thread in a program."""

    CALL = 0
    POOL = 1
    THREAD = 2
    THREADS = 3
    ORDER = 4  # waves begun and limits tested, shifted left by `ORDER_SHIFT`
    FAULT = 5
    COUNTERS = 9
    COUNTS = 9 + MAX_COUNTERS  # the trip count of each counter's loop
    BACKWARD = 9 + 2 * MAX_COUNTERS  # 1 where waves begin with the last tiles
    ARGS = 10 + 2 * MAX_COUNTERS
    COUNT = 10 + 2 * MAX_COUNTERS + MAX_ARGS


# Threads and tiles.


def useful_threads(program: Sequence[int], sizes: Sequence[int], allowed: int) -> int:
    """The largest number of threads that a wave of a program employs, of those allowed; at least 1."""
    useful = 1
    if program[HeaderWord.IS_SHARED] == 0:
        return useful
    for number in range(program[HeaderWord.STEPS]):
        if useful >= allowed:
            break
        step = step_word(number)
        is_serial = program[step + StepWord.B]
        if program[step + StepWord.OPCODE] == Opcode.WAVE and not is_serial:
            useful = max(useful, employed_threads(wave_cost(program, sizes, step), allowed))
    return useful


def wave_cost(program: Sequence[int], sizes: Sequence[int], wave: int) -> int:
    """The total cost of the tiles of a wave."""
    cost = 0
    call = wave
    for _ in range(program[wave + StepWord.A]):
        call += STEP_WORDS
        cost += sizes[program[call + StepWord.D]] * sizes[program[call + StepWord.E]]
    return cost


def employed_threads(cost: int, threads: int) -> int:
    """The number of threads, up to `threads`, that a wave of this cost employs; at least 1."""
    return max(min(cost // GRAIN, threads), 1)


def chunks_each(cost: int, threads: int) -> int:
    """The number of chunks of equal cost into which the part of each thread in a wave is cut."""
    most = min(MOST_CHUNKS, (QUEUE_END - 1) // threads)
    return max(min(cost // (threads * CHUNK), most), 1)


def part_begin(whole: int, part: int, parts: int) -> int:
    """The start of one of several equal parts of a whole."""
    return whole * part // parts


def chunk_in_direction(chunk: int, each: int, backward: int) -> int:
    """What the chunk of this number is: the same, or backward the one as far from its queue's other end."""
    if backward == 0:
        return chunk
    begin = chunk // each * each
    return 2 * begin + each - 1 - chunk


def first_tile(mark: int, begin: int, cost: int, tiles: int) -> int:
    """The first tile of an op that begins at or after `mark`; `tiles` if none does.

    The op begins at `begin`, both in cost from the beginning of the wave; each tile has this cost.
    """
    if mark <= begin:
        return 0
    return min((mark - begin + cost - 1) // cost, tiles)


# Queues of chunks. A queue is a word: the number of the wave, the first chunk, and the end of the chunks.


def queue_of(wave: int, first: int, end: int) -> int:
    """The word of a queue of the chunks `first` up to `end` of a wave."""
    return (wave * QUEUE_END + first) * QUEUE_END + end


def queue_wave(queue: int) -> int:
    """The number of the wave whose chunks a queue has."""
    return queue // (QUEUE_END * QUEUE_END)


def queue_first(queue: int) -> int:
    """The first chunk in a queue."""
    return queue // QUEUE_END - queue_wave(queue) * QUEUE_END


def queue_end(queue: int) -> int:
    """The end of the chunks in a queue."""
    return queue - queue // QUEUE_END * QUEUE_END


def has_op(program: Sequence[int], wave: int, op: int) -> bool:
    """Whether a call of a wave has this op id."""
    call = wave
    for _ in range(program[wave + StepWord.A]):
        call += STEP_WORDS
        if program[call + StepWord.F] == op:
            return True
    return False


# Steps.


def step_word(number: int) -> int:
    """The word at which a step begins."""
    return HEADER_WORDS + number * STEP_WORDS


def enter_loop(walk: MutableSequence[int], counter: int, trips: int) -> bool:
    """LOOP: set the counter to 0 and store the trip count; whether the loop has an iteration."""
    walk[WalkWord.COUNTERS + counter] = 0
    walk[WalkWord.COUNTS + counter] = trips
    return trips > 0


def next_round(walk: MutableSequence[int], counter: int) -> bool:
    """NEXT: count an iteration of a loop; whether another one follows, in the other direction."""
    walk[WalkWord.BACKWARD] = 1 - walk[WalkWord.BACKWARD]
    rounds = walk[WalkWord.COUNTERS + counter] + 1
    walk[WalkWord.COUNTERS + counter] = rounds
    return rounds < walk[WalkWord.COUNTS + counter]


def combine(
    program: Sequence[int], sizes: Sequence[int], walk: MutableSequence[int], step: int
) -> None:
    """COMBINE: set a counter to the sum of two others, each multiplied by a size."""
    outer = walk[WalkWord.COUNTERS + program[step + StepWord.B]]
    inner = walk[WalkWord.COUNTERS + program[step + StepWord.D]]
    combined = outer * sizes[program[step + StepWord.C]]
    combined += inner * sizes[program[step + StepWord.E]]
    walk[WalkWord.COUNTERS + program[step + StepWord.A]] = combined


# Arguments.


def argument_word(program: Sequence[int], number: int) -> int:
    """The word at which an argument begins."""
    return program[HeaderWord.ARGUMENTS] + number * ARG_WORDS


def argument_value(
    program: Sequence[int],
    sizes: Sequence[int],
    roots: Sequence[int],
    walk: Sequence[int],
    argument: int,
) -> int:
    """The value of an argument; for a LOADED one, the address to load it from."""
    kind = program[argument + ArgWord.KIND]
    counter = program[argument + ArgWord.COUNTER]
    if kind == ArgKind.COUNTER:
        return walk[WalkWord.COUNTERS + counter]
    offset = sizes[program[argument + ArgWord.OFFSET]]
    if kind == ArgKind.SIZE:
        return offset
    address = roots[program[argument + ArgWord.ROOT]] + offset
    if counter >= 0:
        steps = walk[WalkWord.THREAD if counter == THREAD else WalkWord.COUNTERS + counter]
        address += steps * sizes[program[argument + ArgWord.STRIDE]]
    return address


# Failures.


def is_earlier(order: int, tile: int, first_order: int, first_tile: int) -> bool:
    """Whether a failure precedes the first failure so far in the order of the program."""
    return order < first_order or (order == first_order and tile < first_tile)


FUNCTIONS = (
    useful_threads,
    wave_cost,
    employed_threads,
    chunks_each,
    part_begin,
    chunk_in_direction,
    first_tile,
    queue_of,
    queue_wave,
    queue_first,
    queue_end,
    has_op,
    step_word,
    enter_loop,
    next_round,
    combine,
    argument_word,
    argument_value,
    is_earlier,
)
"""The functions that are compiled into the engine."""
