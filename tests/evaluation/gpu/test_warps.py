"""Warps are evaluated as a GPU runs them, and each planted fault is found, with its place.

Every fault has a twin that differs from it in nothing but what was wrong, and that passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from dlc.dialects import loop, scalar, simt, vec
from dlc.dialects.expr import Expr
from dlc.dialects.loop.memory import BadAccess, StepLimit
from dlc.dialects.simt import WARP
from dlc.errors import CallError
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import Divergence
from dlc.evaluation.gpu.warps import Launch
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import F32, INDEX, VectorType
from dlc.lowering.kernel_code.words import unravel
from dlc.runtime.abi import Status
from tests.evaluation.gpu.faults import ROOM, THREADS, TILES, Fault, cases, check, run
from tests.evaluation.gpu.threads import HERE, Floats, Threads, launch, memory, numbers
from tests.suites import together

# Faults: `right` says whether this is the twin instead. Of two operations that race, the evaluator
# blames the one that comes second, whichever that is.


def all_write_one_place(at: Threads, right: bool) -> None:
    room = at.shared(THREADS)
    at.blamed.store(at.number(1), room, at.thread if right else at.index(3))


def two_warps_write_the_same_places(at: Threads, right: bool) -> None:
    room = at.shared(THREADS)
    _, lane = unravel(Expr(at.emit, at.thread), [2, WARP])
    at.blamed.store(at.number(1), room, at.thread if right else lane.value)


def a_row_is_read_before_all_of_it_is_there(at: Threads, right: bool) -> None:
    room = at.shared(THREADS)
    at.blamed.store(at.number(1), room, at.thread)
    if right:
        at.barrier()
    at.blamed.load(room, at.mirrored())


def a_neighbour_in_the_warp_is_read_too_early(at: Threads, right: bool) -> None:
    room = at.shared(THREADS + 1)
    at.store(at.number(1), room, at.thread)
    if right:
        at.barrier()
    at.blamed.load(room, at.plus(at.thread, 1))


def a_row_is_staged_again_while_it_is_read(at: Threads, right: bool) -> None:
    room = at.shared(THREADS)
    at.store(at.number(1), room, at.thread)
    at.barrier()
    at.blamed.load(room, at.mirrored())
    if right:
        at.barrier()
    at.blamed.store(at.number(2), room, at.thread)


def a_place_that_several_read_is_written_by_one_of_them(at: Threads, right: bool) -> None:
    room = at.shared(1)
    is_first = at.is_below(at.thread, 1)
    at.when(is_first, lambda first: first.store(at.number(1), room, first.index(0)))
    at.barrier()
    at.load(room, at.index(0))
    if right:
        at.barrier()
    at.when(is_first, lambda first: first.blamed.store(at.number(2), room, first.index(0)))


def the_room_of_a_reduction_is_used_in_every_round(at: Threads, right: bool) -> None:
    room = at.shared(THREADS)

    def round(deep: Threads) -> None:
        deep.blamed.store(at.number(1), room, at.thread)
        deep.barrier()
        deep.blamed.load(room, deep.mirrored())
        if right:
            deep.barrier()

    at.repeat(at.index(2), round)


def threads_of_a_block_write_one_place_of_a_result(at: Threads, right: bool) -> None:
    at.blamed.store(at.number(1), at.given[0], at.over_all() if right else at.tile)


def a_result_is_read_where_another_thread_writes_it(at: Threads, right: bool) -> None:
    own = at.over_all()
    at.blamed.store(at.number(1), at.given[0], own)
    if right:
        at.barrier()
    start = at.times(at.tile, at.count)
    at.blamed.load(at.given[0], at.plus(start, at.mirrored()))


def blocks_write_the_same_places(at: Threads, right: bool) -> None:
    at.blamed.store(at.number(1), at.given[0], at.over_all() if right else at.thread)


def a_block_reads_what_another_one_wrote(at: Threads, right: bool) -> None:
    """A barrier does not help: it is for one block."""
    at.blamed.store(at.number(1), at.given[0], at.over_all())
    at.barrier()
    other = at.emit(scalar.Subtract(at.index(ROOM - 1), at.over_all()))
    at.blamed.load(at.given[0], at.over_all() if right else other)


def a_block_overwrites_what_another_one_read(at: Threads, right: bool) -> None:
    own = at.over_all()
    at.blamed.load(at.given[0], own)
    at.barrier()
    other = at.emit(scalar.Subtract(at.index(ROOM - 1), own))
    at.blamed.store(at.number(1), at.given[0], own if right else other)


def half_a_warp_comes_to_a_barrier(at: Threads, right: bool) -> None:
    some = at.is_below(at.thread, THREADS if right else 16)
    at.when(some, lambda inside: inside.blamed.barrier())


def threads_go_round_differently_often(at: Threads, right: bool) -> None:
    rounds = at.index(2) if right else at.plus(at.thread, 1)
    at.repeat(rounds, lambda inside: inside.blamed.barrier())


def a_warp_ends_early(at: Threads, right: bool) -> None:
    some = at.is_below(at.thread, THREADS if right else WARP)
    at.when(some, lambda inside: inside.blamed.barrier())


def values_are_exchanged_by_half_a_warp(at: Threads, right: bool) -> None:
    some = at.is_below(at.thread, WARP if right else 16)
    at.when(some, lambda inside: inside.blamed.exchange(at.number(1), 1) and None)


def the_end_of_a_memory_is_passed(at: Threads, right: bool) -> None:
    at.blamed.load(at.given[0], at.plus(at.over_all(), 0 if right else 1))


def shared_memory_is_too_small(at: Threads, right: bool) -> None:
    room = at.shared(THREADS if right else THREADS - 1)
    at.blamed.store(at.number(1), room, at.thread)


def the_room_of_another_thread_is_reached(at: Threads, right: bool) -> None:
    room = at.emit(loop.Buffer(4, F32))
    at.blamed.store(at.number(1), room, at.index(3 if right else 4))


def a_register_is_loaded_from_between(at: Threads, right: bool) -> None:
    place = at.index(4 if right else 2)
    at.blamed.emit(vec.Load(at.given[0], place, VectorType(F32, 4), 16))


def what_is_only_read_is_written(at: Threads, right: bool) -> None:
    at.blamed.store(at.number(1), at.given[0 if right else 1], at.over_all())


FAULTS = [
    Fault(all_write_one_place, Race, r"loop\.store .* writes byte 12 of shared memory, which"),
    Fault(
        two_warps_write_the_same_places,
        Race,
        r"thread 32 of tile 1 writes byte 0 of shared memory, which thread 0 of tile 1 writes",
    ),
    Fault(
        a_row_is_read_before_all_of_it_is_there,
        Race,
        r"thread 32 of tile 1 .* of shared memory, which thread 31 of tile 1",
    ),
    Fault(a_neighbour_in_the_warp_is_read_too_early, Race, r"thread 0 .* which thread 1 of tile 1"),
    Fault(
        a_row_is_staged_again_while_it_is_read,
        Race,
        r"thread 32 of tile 1 .* of shared memory, which thread 31 of tile 1",
    ),
    Fault(
        a_place_that_several_read_is_written_by_one_of_them,
        Race,
        r"thread 0 of tile 1 writes byte 0 .* thread \d+ of tile 1 reads with no barrier between",
    ),
    Fault(
        the_room_of_a_reduction_is_used_in_every_round,
        Race,
        r"thread 32 of tile 1 .* of shared memory, which thread 31 of tile 1",
    ),
    Fault(threads_of_a_block_write_one_place_of_a_result, Race, r"writes byte 4 of x, which"),
    Fault(
        a_result_is_read_where_another_thread_writes_it,
        Race,
        r"thread 32 of tile 1 .* of x, which thread 31 of tile 1",
    ),
    Fault(blocks_write_the_same_places, Race, r"thread 0 of tile 0 writes .* 0 of tile 1 writes"),
    Fault(a_block_reads_what_another_one_wrote, Race, r"thread 0 of tile 0 .* thread 63 of tile 1"),
    Fault(
        a_block_overwrites_what_another_one_read, Race, r"thread 0 of tile 0 .* thread 63 of tile 1"
    ),
    Fault(half_a_warp_comes_to_a_barrier, Divergence, r"thread 16 .* execute the simt\.barrier"),
    Fault(threads_go_round_differently_often, Divergence, r"thread 0 of tile 1 does not execute"),
    Fault(a_warp_ends_early, Divergence, r"warp 1 of tile 1 ends while others wait .*barrier"),
    Fault(values_are_exchanged_by_half_a_warp, Divergence, r"thread 16 .* the simt\.shuffle_xor"),
    Fault(
        the_end_of_a_memory_is_passed, BadAccess, r"reaches bytes 512 to 516 of x, which has 512"
    ),
    Fault(shared_memory_is_too_small, BadAccess, r"loop\.store .* of shared memory, which has 252"),
    Fault(
        the_room_of_another_thread_is_reached, BadAccess, r"16 to 20 of loop\.buffer, which has 16"
    ),
    Fault(a_register_is_loaded_from_between, BadAccess, r"vec\.load .* not a multiple of 16"),
    Fault(what_is_only_read_is_written, BadAccess, r"writes x, which is only read"),
]
CASES = cases(FAULTS)


@together("fault", CASES)
def test_a_fault_is_found_with_its_place(fault: Fault) -> None:
    check(fault)


@together("fault", CASES)
def test_its_good_twin_passes(fault: Fault) -> None:
    run(fault, right=True)


# What threads see.


def test_shared_memory_that_nothing_has_written_is_not_a_number() -> None:
    def write(at: Threads) -> None:
        room = at.shared(THREADS)
        at.when(at.is_below(at.thread, 40), lambda some: some.store(at.number(5), room, at.thread))
        at.barrier()
        at.store(at.load(room, at.mirrored()), at.given[0], at.thread)

    x = memory(np.zeros(THREADS, np.float32))
    launch(write, THREADS, x)
    wanted = np.where(np.arange(THREADS)[::-1] < 40, np.float32(5), np.float32(np.nan))
    assert np.array_equal(numbers(x), wanted, equal_nan=True)


def test_each_block_has_shared_memory_of_its_own() -> None:
    def write(at: Threads) -> None:
        room = at.shared(THREADS)
        own = at.over_all()
        at.store(at.load(at.given[0], own), room, at.thread)
        at.barrier()
        at.store(at.load(room, at.mirrored()), at.given[0], own)

    values = np.arange(ROOM, dtype=np.float32)
    x = memory(values)
    launch(write, THREADS, x, tiles=TILES)
    assert np.array_equal(numbers(x), values.reshape(TILES, THREADS)[:, ::-1].reshape(-1))


def test_each_thread_has_room_of_its_own() -> None:
    def write(at: Threads) -> None:
        room = at.emit(loop.Buffer(2, F32))
        at.store(at.load(at.given[0], at.thread), room, at.index(1))
        at.barrier()
        at.store(at.load(room, at.index(1)), at.given[0], at.mirrored())

    x = memory(np.arange(WARP, dtype=np.float32))
    launch(write, WARP, x)
    assert numbers(x).tolist() == list(range(WARP))[::-1]


def test_a_launch_that_takes_too_long_is_given_up() -> None:
    block = Block([INDEX, INDEX])
    Builder(block, HERE).place(simt.Barrier())
    Builder(block, HERE).place(loop.Return())
    with pytest.raises(StepLimit):
        Launch(simt.Func(block, "kernel", THREADS), (), (), steps=1).run(0)


def test_what_threads_outside_a_branch_hold_does_no_harm() -> None:
    """They would read outside, and divide by nothing."""

    def write(at: Threads) -> None:
        place = at.times(at.thread, 1 << 20)

        def first(inside: Threads) -> None:
            inside.store(inside.load(at.given[0], place), at.given[0], inside.index(1))

        at.when(at.is_below(at.thread, 1), first)

    x = memory(np.array([7, 0], np.float32))
    launch(write, WARP, x)
    assert numbers(x).tolist() == [7, 7]


def test_threads_that_leave_a_loop_keep_what_they_have() -> None:
    """A `while` that doubles 1 until it passes the number of the thread."""

    def write(at: Threads) -> None:
        condition, body = Block([INDEX]), Block([INDEX])
        test = Builder(condition, HERE)
        (number,) = condition.arguments
        test.place(loop.Yield([test(scalar.Compare(number, at.thread, "le"))]))
        double = Builder(body, HERE)
        (number,) = body.arguments
        double.place(loop.Yield([double(scalar.Add(number, number))]))
        (passed,) = at.emit.all(loop.While([at.index(1)], condition, body))
        at.store(at.emit(scalar.Cast(passed, F32)), at.given[0], at.thread)

    x = memory(np.zeros(WARP, np.float32))
    launch(write, WARP, x)
    wanted = [next(2**k for k in range(9) if 2**k > number) for number in range(WARP)]
    assert numbers(x).tolist() == wanted


def test_a_failure_is_that_of_a_thread_that_is_there() -> None:
    def write(at: Threads) -> None:
        def bad(inside: Threads) -> None:
            inside.emit.place(loop.Fail(at.tile, at.thread, at.index(9), int(Status.INDEX)))

        late = at.emit(scalar.Compare(at.thread, at.index(11), "ge"))
        at.when(late, bad)

    with pytest.raises(CallError, match="index 11 is out of range for an axis of size 9"):
        launch(write, WARP)


# Kernels made at random.


@dataclass(slots=True)
class Drawn:
    """A kernel that grows step by step, and with it what NumPy has for all threads of a tile."""

    random: np.random.Generator
    at: Threads
    values: list[tuple[Value, Floats]]

    def one(self) -> tuple[Value, Floats]:
        return self.values[self.random.integers(len(self.values))]

    def step(self) -> None:
        """One more value."""
        kinds = (self._combined, self._chosen, self._exchanged, self._through_shared_memory)
        self.values.append(kinds[self.random.integers(len(kinds))]())

    def _combined(self) -> tuple[Value, Floats]:
        (one, x), (other, y) = self.one(), self.one()
        op, function = COMBINED[self.random.integers(len(COMBINED))]
        return self.at.emit(op(one, other)), function(x, y)

    def _chosen(self) -> tuple[Value, Floats]:
        """One value in threads where it is smaller than another, twice the other elsewhere."""
        (one, x), (other, y) = self.one(), self.one()
        emit = self.at.emit
        then, otherwise = Block(), Block()
        Builder(then, HERE).place(loop.Yield([one]))
        doubled = Builder(otherwise, HERE)
        doubled.place(loop.Yield([doubled(scalar.Add(other, other))]))
        (value,) = emit.all(loop.If(emit(scalar.Compare(one, other, "lt")), then, otherwise))
        return value, np.where(x < y, x, y + y)

    def _exchanged(self) -> tuple[Value, Floats]:
        one, x = self.one()
        distance = 1 << int(self.random.integers(5))
        return self.at.exchange(one, distance), x[np.arange(THREADS) ^ distance]

    def _through_shared_memory(self) -> tuple[Value, Floats]:
        """Each thread puts its value down, and takes that of the thread `shift` further."""
        one, x = self.one()
        at, shift = self.at, int(self.random.integers(THREADS))
        room = at.shared(THREADS)
        at.store(one, room, at.thread)
        at.barrier()
        _, place = unravel(Expr(at.emit, at.plus(at.thread, shift)), [2, THREADS])
        return at.load(room, place.value), np.roll(x, -shift)


COMBINED: tuple[tuple[Callable[[Value, Value], Op], Callable[[Floats, Floats], Floats]], ...] = (
    (scalar.Add, np.add),
    (scalar.Subtract, np.subtract),
    (scalar.Maximum, np.maximum),
    (scalar.Minimum, np.minimum),
)


@together("seed", range(25))
def test_a_random_kernel_gives_what_numpy_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    start = random.integers(-9, 9, THREADS).astype(np.float32)
    wanted: list[Floats] = []

    def write(at: Threads) -> None:
        drawn = Drawn(random, at, [(at.load(at.given[0], at.thread), start)])
        for _ in range(20):
            drawn.step()
        value, last = drawn.values[-1]
        at.store(value, at.given[0], at.thread)
        wanted.append(last)

    x = memory(start)
    launch(write, THREADS, x)
    assert np.array_equal(numbers(x), wanted[0])
