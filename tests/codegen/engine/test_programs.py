"""The engine: programs written by hand give the same answers on any number of threads."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from dlc.codegen.engine.assemble import ENTRY, engine_image, engine_text
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import GRAIN, MAX_THREADS, THREAD, CallWord, Opcode, Root, Status, TraceWord
from dlc.runtime.cpu.executable_memory import load_engine
from dlc.target.cpu import CpuTarget
from tests.codegen.assembly import (
    SHARED_COST,
    Call,
    Program,
    Result,
    Words,
    digest,
    endless,
    engine,
    flushed_denormals,
    run,
)

THREADS = (1, 2, 3, 4, 7)
every_thread_count = pytest.mark.parametrize("threads", THREADS)


def words(count: int) -> Words:
    return np.arange(count, dtype=np.int64)


def chain(waves: int, tiles: int = 16, cost: int = SHARED_COST) -> Program:
    """Waves that each need all of the one before: y = total(x), then x = total(y) ..."""
    program = Program()
    half = 8 * tiles
    for wave in range(waves):
        source, target = (0, half) if wave % 2 == 0 else (half, 0)
        arguments = program.pointer(offset=target), program.pointer(offset=source)
        program.wave(
            program.call(
                "total", *arguments, program.number(tiles), tiles=tiles, cost=cost, op=wave
            )
        )
    return program


def chained(waves: int, tiles: int = 16) -> Words:
    """What `chain` leaves in its arena."""
    arena = words(2 * tiles)
    for wave in range(waves):
        source, target = (0, tiles) if wave % 2 == 0 else (tiles, 0)
        total = arena[source : source + tiles].sum(dtype=np.int64)
        arena[target : target + tiles] = total + words(tiles)
    return arena


# ---- waves


@every_thread_count
def test_a_wave_sees_all_of_the_wave_before(threads: int) -> None:
    arena = words(32)
    result = run(chain(40), arena, threads)
    assert (result.status, result.used) == (Status.OK, threads)
    assert np.array_equal(arena, chained(40))


@every_thread_count
def test_every_tile_runs_exactly_once_whatever_the_costs(threads: int) -> None:
    draw = random.Random(threads)
    for _ in range(60):
        program, start = Program(), 0
        calls: list[list[int]] = []
        for _ in range(draw.randint(1, 6)):
            tiles, cost = draw.choice((0, 1, 2, 5, 40)), draw.choice((1, 900, 10_000, 1 << 40))
            place = program.pointer(offset=8 * start)
            calls.append(program.call("count", place, tiles=tiles, cost=cost))
            start += tiles
        program.wave(*calls)
        arena = np.zeros(start, np.int64)
        run(program, arena, threads)
        assert (arena == 1).all()


@every_thread_count
def test_each_thread_takes_part_in_a_wave(threads: int) -> None:
    program = Program()
    come = program.pointer(), program.number(threads), program.pointer(Root.SCRATCH, 0, THREAD, 8)
    program.wave(program.call("meet", *come, tiles=threads))
    scratch = np.zeros(8, np.int64)
    assert Call(program, np.zeros(1, np.int64), scratch).run(threads).status == Status.OK
    assert np.array_equal(scratch, words(8) < threads)


@pytest.mark.parametrize("threads", THREADS[1:])
def test_a_thread_that_is_late_delays_what_it_has_begun_and_no_more(threads: int) -> None:
    """The first tile waits for all others, of which the static share of its thread has many."""
    program = Program()
    come, own = program.pointer(), program.pointer(offset=8)
    others = 12 * threads - 1
    program.wave(
        program.call("meet", come, program.number(others + 1), own),
        program.call("meet", come, program.number(0), own, tiles=others),
    )
    assert Call(program, np.zeros(2, np.int64)).run(threads).status == Status.OK


@pytest.mark.parametrize(
    ("cost", "used"), [(1, 1), (GRAIN - 1, 1), (2 * GRAIN - 1, 1), (2 * GRAIN, 2), (9 * GRAIN, 4)]
)
def test_a_call_uses_as_many_threads_as_its_busiest_wave_is_worth(cost: int, used: int) -> None:
    program = Program()
    for each in (1, cost, 1):
        program.wave(program.call("nothing", tiles=1, cost=each))
    assert run(program, words(1), 4).used == used


@every_thread_count
def test_serial_waves_run_on_thread_0_in_order(threads: int) -> None:
    program = Program()
    for turn in range(50):
        place, constant = program.pointer(), program.number(turn)
        program.wave(program.call("step", place, constant, tiles=4, op=1), serial=True)
        if turn % 10 == 0:
            program.wave(program.call("step", place, constant, tiles=4, op=2))
    arena, expected = words(4), words(4)
    call = Call(program, arena)
    result = call.run(threads, trace=400)
    for turn in range(50):
        for _ in range(2 if turn % 10 == 0 else 1):
            expected = 3 * expected + turn
    assert np.array_equal(arena, expected)
    serial = result.trace[result.trace[:, TraceWord.OP] == 1]
    assert not serial[:, TraceWord.THREAD].any()


@every_thread_count
def test_small_and_large_waves_follow_each_other_in_order(threads: int) -> None:
    draw = random.Random(threads)
    program = Program()
    half = 8 * 16
    for wave in range(200):
        source, target = (0, half) if wave % 2 == 0 else (half, 0)
        arguments = program.pointer(offset=target), program.pointer(offset=source)
        cost = draw.choice((1, 1, 1, SHARED_COST))
        program.wave(
            program.call("total", *arguments, program.number(16), tiles=16, cost=cost),
            serial=draw.random() < 0.1,
        )
    arena = words(32)
    run(program, arena, threads)
    assert np.array_equal(arena, chained(200))


# ---- loops, branches, arguments


@every_thread_count
def test_a_loop_runs_as_often_as_its_trip_count(threads: int) -> None:
    program = Program()
    trips = program.argument(program.number(5))
    loop = program.step(Opcode.LOOP, 0, trips, 3)
    program.wave(program.call("store", program.pointer(0, 0, 0, 8), program.counter(0)))
    program.step(Opcode.NEXT, 0, 0, loop + 1)
    program.steps[loop][3] = program.here
    program.wave(program.call("store", program.pointer(offset=80), program.number(7)))
    arena = np.full(11, -1, np.int64)
    run(program, arena, threads)
    assert arena.tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1, -1, 7]


def looped(program: Program, rounds: int, *calls: list[int]) -> Program:
    """A wave in a loop."""
    loop = program.step(Opcode.LOOP, 0, program.argument(program.number(rounds)))
    program.wave(*calls)
    program.step(Opcode.NEXT, 0, 0, loop + 1)
    program.steps[loop][3] = program.here
    return program


def test_every_other_round_of_a_loop_begins_with_what_the_round_before_ended_with() -> None:
    program = Program()
    arena = np.zeros(13, np.int64)
    run(looped(program, 3, program.call("note", program.pointer(), tiles=4)), arena, 1)
    assert arena.tolist() == [12, 0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3]


@every_thread_count
@pytest.mark.parametrize("tiles", [1, 5, 64])
def test_every_round_of_a_loop_runs_every_tile_once(threads: int, tiles: int) -> None:
    program = Program()
    place, after = program.pointer(), program.pointer(offset=8 * tiles)
    calls = program.call("count", place, tiles=tiles), program.call("count", after, tiles=3)
    arena = np.zeros(tiles + 3, np.int64)
    run(looped(program, 5, *calls), arena, threads)
    assert (arena == 5).all()


@every_thread_count
def test_the_first_failure_of_a_wave_is_reported_in_every_round(threads: int) -> None:
    program = Program()
    begin = program.loaded(0, 0, 8)
    call = program.call("fail", begin, program.number(9), tiles=64, op=3)
    looped(program, 2, call)
    result = run(program, np.array([100, 30]), threads)
    assert (result.status, result.op, result.tile) == (Status.INDEX, 3, 30)


@every_thread_count
@pytest.mark.parametrize("count", [0, -3, 1, 6])
def test_a_trip_count_may_be_computed_and_overwritten_in_the_loop(threads: int, count: int) -> None:
    program = Program()
    place, log = program.pointer(), program.pointer(0, 8, 0, 8)
    program.wave(program.call("store", place, program.number(count)))
    loop = program.step(Opcode.LOOP, 0, program.argument(program.loaded(0)))
    program.wave(program.call("store", place, program.number(99)))
    program.wave(program.call("store", log, program.number(1)))
    program.step(Opcode.NEXT, 0, 0, loop + 1)
    program.steps[loop][3] = program.here
    arena = np.zeros(10, np.int64)
    for _ in range(50):
        arena[:] = 0
        run(program, arena, threads)
        assert arena[1:].sum() == max(count, 0)


@every_thread_count
def test_nested_loops_find_their_place_by_a_combined_counter(threads: int) -> None:
    program = Program()
    rows, columns = program.argument(program.number(3)), program.argument(program.number(4))
    outer = program.step(Opcode.LOOP, 0, rows)
    inner = program.step(Opcode.LOOP, 1, columns)
    program.step(Opcode.COMBINE, 2, 0, program.size(32), 1, program.size(8))
    cell = program.pointer(0, 0, 2, 1)
    program.wave(program.call("store", cell, program.counter(2)))
    program.step(Opcode.NEXT, 1, 0, inner + 1)
    program.step(Opcode.NEXT, 0, 0, outer + 1)
    program.steps[outer][3] = program.steps[inner][3] = program.here
    arena = np.full(12, -1, np.int64)
    run(program, arena, threads)
    assert np.array_equal(arena, 8 * words(12))


def counting(limit: int, below: int) -> Program:
    """While *x < below: *x = 3 * *x + 1, in at most `limit` turns. The condition is at byte 8."""
    program = Program()
    x, flag = program.pointer(), program.pointer(offset=8)
    condition = program.call("less", flag, x, program.number(below))
    program.step(Opcode.ZERO, 3)
    program.wave(condition)
    branch = program.step(Opcode.BRANCH, program.argument(flag))
    program.step(Opcode.LIMIT, 3, program.size(limit), 17)
    program.wave(program.call("step", x, program.number(1), op=5))
    program.wave(condition)
    program.step(Opcode.JUMP, branch)
    program.steps[branch][2:4] = [program.here, branch + 1]
    return program


@every_thread_count
def test_while_runs_until_its_condition_is_false(threads: int) -> None:
    for below, expected in ((0, 0), (1, 1), (2, 4), (1000, 1093), (10**9, 1743392200)):
        arena = np.zeros(2, np.int64)
        assert run(counting(100, below), arena, threads).status == Status.OK
        assert arena[0] == expected


@every_thread_count
def test_a_condition_may_be_overwritten_by_the_very_next_wave(threads: int) -> None:
    """The first wave of the body makes the condition false; only then the body computes it."""
    program = Program()
    x, flag = program.pointer(), program.pointer(offset=8)
    program.wave(program.call("less", flag, x, program.number(200)))
    branch = program.step(Opcode.BRANCH, program.argument(flag))
    program.wave(program.call("store", flag, program.number(0)))
    program.wave(program.call("step", x, program.number(1)))
    program.wave(program.call("less", flag, x, program.number(200)))
    program.step(Opcode.JUMP, branch)
    program.steps[branch][2:4] = [program.here, branch + 1]
    for _ in range(100):
        arena = np.zeros(2, np.int64)
        assert run(program, arena, threads).status == Status.OK
        assert arena[0] == 364


@every_thread_count
def test_both_ways_of_a_branch_can_be_taken(threads: int) -> None:
    for flag, expected in ((0, 20), (1, 10)):
        program = Program()
        branch = program.step(Opcode.BRANCH, program.argument(program.pointer()))
        program.wave(program.call("store", program.pointer(offset=8), program.number(10)))
        jump = program.step(Opcode.JUMP)
        otherwise = program.here
        program.wave(program.call("store", program.pointer(offset=8), program.number(20)))
        program.steps[jump][1] = program.here
        program.steps[branch][2:4] = [otherwise, branch + 1]
        arena = np.array([flag, 0], np.int64)
        run(program, arena, threads)
        assert arena[1] == expected


@every_thread_count
def test_a_loaded_argument_is_the_number_at_the_pointer(threads: int) -> None:
    program = Program()
    program.wave(program.call("store", program.pointer(), program.number(42)))
    program.wave(program.call("store", program.pointer(offset=8), program.loaded(0)))
    arena = np.zeros(2, np.int64)
    run(program, arena, threads)
    assert arena.tolist() == [42, 42]


# ---- failures


@every_thread_count
def test_the_first_failure_in_program_order_is_reported(threads: int) -> None:
    program = Program()
    program.wave(
        program.call("nothing", tiles=7, op=1),
        program.call("fail", program.number(30), program.number(100), tiles=64, op=2),
        program.call("fail", program.number(3), program.number(101), tiles=64, op=3),
    )
    program.wave(program.call("store", program.pointer(), program.number(1), op=4))
    for _ in range(50):
        arena = np.zeros(1, np.int64)
        result = run(program, arena, threads)
        assert (result.status, result.op, result.tile) == (Status.INDEX, 2, 30)
        assert (result.a, result.b) == (30, 100)
        assert arena[0] == 0


@every_thread_count
def test_a_failure_in_a_loop_ends_the_call_in_that_turn(threads: int) -> None:
    program = Program()
    trips = program.argument(program.number(1000))
    loop = program.step(Opcode.LOOP, 0, trips)
    program.wave(program.call("store", program.pointer(), program.counter(0)))
    program.wave(program.call("fail", program.number(5), program.number(0), tiles=8, op=3))
    program.step(Opcode.NEXT, 0, 0, loop + 1)
    program.steps[loop][3] = program.here
    arena = np.full(1, -1, np.int64)
    result = run(program, arena, threads)
    assert (result.status, result.op, result.tile, arena[0]) == (Status.INDEX, 3, 5, 0)


@every_thread_count
def test_a_while_over_its_limit_fails(threads: int) -> None:
    arena = np.zeros(2, np.int64)
    result = run(counting(3, 10**9), arena, threads)
    assert (result.status, result.op, result.a) == (Status.LIMIT, 17, 3)
    assert arena[0] == 13


@every_thread_count
def test_a_while_may_use_its_limit_up(threads: int) -> None:
    assert run(counting(4, 14), np.zeros(2, np.int64), threads).status == Status.OK
    assert run(counting(3, 14), np.zeros(2, np.int64), threads).status == Status.LIMIT


def test_the_status_of_one_call_does_not_reach_the_next() -> None:
    program = Program()
    x = program.loaded(0)
    program.wave(program.call("fail", x, program.number(0), tiles=4, op=3))
    call = Call(program, np.array([2], np.int64))
    assert call.run(2).status == Status.INDEX
    call.arena[0] = 4
    assert call.run(2).status == Status.OK


@every_thread_count
def test_a_call_can_be_cancelled(threads: int) -> None:
    call = Call(endless(), words(1))
    results: list[Result] = []
    running = threading.Thread(target=lambda: results.append(call.run(threads)))
    running.start()
    running.join(timeout=0.05)
    assert running.is_alive()
    call.cancel.value = 1
    running.join(timeout=20)
    assert [result.status for result in results] == [Status.CANCELLED]


@every_thread_count
def test_a_call_stops_after_the_wave_of_an_op(threads: int) -> None:
    arena = words(32)
    result = Call(chain(40), arena).run(threads, stop_after=7)
    assert (result.status, result.op) == (Status.STOPPED, 7)
    assert np.array_equal(arena, chained(8))


def test_another_version_of_the_call_is_refused_untouched() -> None:
    call = Call(chain(2), words(32))
    call.words[CallWord.VERSION] = 99
    before = call.words.copy()
    assert engine().enter(call.words.ctypes.data) == Status.VERSION
    assert np.array_equal(call.words, before)
    assert np.array_equal(call.arena, words(32))


# ---- trace


@every_thread_count
def test_the_trace_has_every_chunk_with_its_time(threads: int) -> None:
    trace = Call(chain(5), words(32)).run(threads, trace=100).trace
    chunks = 16 if threads > 1 else 1  # one for each tile, and those without a tile have no record
    assert len(trace) == 5 * chunks
    assert sorted(set(trace[:, TraceWord.OP].tolist())) == [0, 1, 2, 3, 4]
    assert set(trace[:, TraceWord.THREAD].tolist()) <= set(range(threads))
    assert (trace[:, TraceWord.END] > trace[:, TraceWord.START]).all()
    for op in range(4):
        ends = trace[trace[:, TraceWord.OP] == op, TraceWord.END]
        starts = trace[trace[:, TraceWord.OP] == op + 1, TraceWord.START]
        assert ends.max() < starts.min() + 10_000  # counters of two cores may differ a little


def test_records_beyond_the_capacity_are_counted_and_dropped() -> None:
    call = Call(chain(5), words(32))
    assert len(call.run(1, trace=3).trace) == 3
    assert call.words[CallWord.TRACE_COUNT] == 5


# ---- the floating-point state


def test_every_thread_keeps_denormals_whatever_the_caller_does() -> None:
    program = Program()
    program.wave(program.call("float_state", program.pointer(), tiles=8))
    smallest = program.number(40)  # the bits of a denormal
    program.wave(program.call("divide", program.pointer(offset=64), smallest, tiles=8))
    arena = np.zeros(16, np.int64)
    call = Call(program, arena)
    with flushed_denormals():
        assert call.run(4).used == 4
        assert np.float64(5e-324) * np.float64(1.0) == 0.0
    assert set((arena[:8] & 0xFFC0).tolist()) == {0x1F80}
    assert set(arena[8:].tolist()) == {10}


# ---- the image


def test_the_engine_calls_only_the_system() -> None:
    assert set(engine_image().imports) == {
        *("pthread_create", "pthread_detach", "pthread_sigmask"),
        *("sched_yield", "syscall"),
    }


def test_the_engine_is_the_same_bytes_every_time() -> None:
    target = CpuTarget.named("x86-64")
    assert compile_object(engine_text(), target) == compile_object(engine_text(), target)


def test_an_engine_that_is_loaded_twice_is_one_engine() -> None:
    image = engine_image()
    again = load_engine(image.code, digest(image.code), image.imports, image.entries[ENTRY])
    assert again is engine()


def test_more_threads_than_there_can_be_are_not_used() -> None:
    program = Program()
    program.wave(program.call("count", program.pointer(), tiles=MAX_THREADS + 44))
    arena = np.zeros(MAX_THREADS + 44, np.int64)
    assert run(program, arena, 10_000).used <= MAX_THREADS
    assert (arena == 1).all()
