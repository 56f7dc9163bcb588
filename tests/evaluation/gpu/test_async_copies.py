"""Copies go on while threads compute: who looks too soon, or in the wrong place, is found.

Every fault has a twin that differs from it in nothing but what was wrong, and that passes.
"""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import scalar, simt
from dlc.dialects.expr import Expr
from dlc.dialects.loop.memory import BadAccess
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import Divergence, PendingCopyAccess
from dlc.ir.core import Value
from dlc.ir.types import F16, F32
from dlc.lowering.kernel_code.words import unravel
from tests.evaluation.gpu.faults import THREADS, Fault, cases, check, run
from tests.evaluation.gpu.threads import Threads, launch, memory, numbers

# A thread copies four numbers, to its own place in a room, if nothing else is said.


def own(at: Threads) -> Value:
    return at.times(at.thread, 4)


def bring(at: Threads, room: Value) -> None:
    """The same numbers in every block, of which there are enough for its first half."""
    at.copy(at.index(0), room, own(at))


def a_copy_is_read_without_a_wait(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    if right:
        at.wait()
    at.blamed.load(room, own(at))


def a_copy_that_is_in_no_group_is_waited_for(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    if right:
        at.commit()
    at.wait()
    at.blamed.load(room, own(at))


def the_last_group_is_not_waited_for(at: Threads, right: bool) -> None:
    rooms = [at.shared(4 * THREADS) for _ in range(2)]
    for room in rooms:
        bring(at, room)
        at.commit()
    at.wait(0 if right else 1)
    at.load(rooms[0], own(at))
    at.blamed.load(rooms[1], own(at))


def a_pipeline_waits_for_one_group_too_few(at: Threads, right: bool) -> None:
    """Two strips are under way when the first one is read."""
    rooms = at.shared(3 * 4 * THREADS)

    def strip(number: int) -> Value:
        return at.plus(own(at), number * 4 * THREADS)

    for number in range(3):
        at.copy(at.index(0), rooms, strip(number))
        at.commit()
    at.wait(2 if right else 3)
    at.blamed.load(rooms, strip(0))


def the_wait_comes_after_the_barrier(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    if right:
        at.wait()
    at.barrier()
    if not right:
        at.wait()
    at.blamed.load(room, at.times(at.mirrored(), 4))


def what_another_thread_copied_is_read_without_a_barrier(at: Threads, right: bool) -> None:
    """Threads wait for their own copies only: the last warp finds those of the others done."""
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    at.wait()
    if right:
        at.barrier()
    is_last = at.emit(scalar.Compare(at.thread, at.index(THREADS - 1), "eq"))
    at.when(is_last, lambda last: last.blamed.load(room, last.index(0)) and None)


def a_room_is_filled_again_while_others_read_it(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    at.wait()
    at.barrier()
    at.blamed.load(room, at.times(at.mirrored(), 4))
    if right:
        at.barrier()
    bring(at.blamed, room)


def something_is_written_where_a_copy_goes(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    if right:
        at.wait()
    at.blamed.store(at.number(1), room, own(at))


def two_threads_copy_to_one_place(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    at.blamed.copy(at.index(0), room, own(at) if right else at.index(0))


def half_a_warp_waits(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    some = at.is_below(at.thread, THREADS if right else 16)
    at.when(some, lambda inside: inside.blamed.wait())


def a_copy_begins_in_the_middle_of_a_unit(at: Threads, right: bool) -> None:
    at.blamed.copy(at.index(0 if right else 2), at.shared(4 * THREADS), own(at))


def a_copy_ends_in_the_middle_of_a_unit(at: Threads, right: bool) -> None:
    there = at.plus(own(at), 0 if right else 1)
    at.blamed.copy(at.index(0), at.shared(4 * THREADS + 4), there)


def a_copy_reads_beyond_the_end(at: Threads, right: bool) -> None:
    beyond = at.is_below(at.index(1), 1 if right else 2)
    at.blamed.copy(at.index(4 * THREADS), at.shared(4 * THREADS), own(at), beyond)


def several_numbers_are_read_across_units(at: Threads, right: bool) -> None:
    place = at.index(4 if right else 5)
    at.blamed.emit.all(simt.Load(at.given[0], place, F32, 4))


def rows_of_a_matrix_begin_in_the_middle_of_a_unit(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS + 4)
    bring(at, room)
    at.commit()
    at.wait()
    at.barrier()
    _, lane = unravel(Expr(at.emit, at.thread), [2, WARP])
    place = at.plus(at.times(lane.value, 8), 0 if right else 1)
    at.blamed.emit.all(simt.LoadMatrix(room, place, F16))


def half_a_warp_loads_a_matrix(at: Threads, right: bool) -> None:
    room = at.shared(4 * THREADS)
    bring(at, room)
    at.commit()
    at.wait()
    at.barrier()
    _, lane = unravel(Expr(at.emit, at.thread), [2, WARP])

    def load(inside: Threads) -> None:
        inside.blamed.emit.all(simt.LoadMatrix(room, inside.times(lane.value, 8), F16))

    at.when(at.is_below(at.thread, THREADS if right else 16), load)


FAULTS = [
    Fault(
        a_copy_is_read_without_a_wait,
        PendingCopyAccess,
        r"reads byte 0 of shared memory, to which a copy",
    ),
    Fault(
        a_copy_that_is_in_no_group_is_waited_for,
        PendingCopyAccess,
        r"thread 0 of tile 1 reads byte 0",
    ),
    Fault(
        the_last_group_is_not_waited_for,
        PendingCopyAccess,
        r"thread 0 of tile 1 reads byte 0 of shared",
    ),
    Fault(a_pipeline_waits_for_one_group_too_few, PendingCopyAccess, r"nobody has waited for"),
    Fault(
        the_wait_comes_after_the_barrier,
        PendingCopyAccess,
        r"thread 0 of tile 1 reads byte 1008 of shared",
    ),
    Fault(
        what_another_thread_copied_is_read_without_a_barrier,
        Race,
        r"thread 63 of tile 1 reads byte 0 .* which thread 0 of tile 1 writes with no barrier",
    ),
    Fault(
        a_room_is_filled_again_while_others_read_it,
        PendingCopyAccess,
        r"loop\.load .* in thread 32 of tile 1 reads byte 496 of shared memory, to which a copy",
    ),
    Fault(
        something_is_written_where_a_copy_goes,
        PendingCopyAccess,
        r"thread 0 of tile 1 writes byte 0 of",
    ),
    Fault(two_threads_copy_to_one_place, Race, r"simt\.copy .* writes byte 0 of shared memory"),
    Fault(half_a_warp_waits, Divergence, r"thread 16 .* the simt\.wait"),
    Fault(
        a_copy_begins_in_the_middle_of_a_unit, BadAccess, r"of x whose number is not a multiple of"
    ),
    Fault(a_copy_ends_in_the_middle_of_a_unit, BadAccess, r"of shared memory whose number is no"),
    Fault(a_copy_reads_beyond_the_end, BadAccess, r"reaches bytes 1024 to 1040 of x, which has"),
    Fault(several_numbers_are_read_across_units, BadAccess, r"simt\.load .* not a multiple of 16"),
    Fault(rows_of_a_matrix_begin_in_the_middle_of_a_unit, BadAccess, r"load_matrix .* of 16"),
    Fault(half_a_warp_loads_a_matrix, Divergence, r"thread 16 .* the simt\.load_matrix"),
]


@pytest.mark.parametrize("fault", cases(FAULTS))
def test_a_fault_is_found_with_its_place(fault: Fault) -> None:
    check(fault)


@pytest.mark.parametrize("fault", cases(FAULTS))
def test_its_good_twin_passes(fault: Fault) -> None:
    run(fault, right=True)


# What threads see.


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_copy_brings_what_there_is_and_zeros_beyond(count: int) -> None:
    def write(at: Threads) -> None:
        room = at.shared(WARP * count)
        here = at.times(at.thread, count)
        at.copy(here, room, here, at.is_below(at.thread, 20), count)
        at.commit()
        at.wait()
        values = at.emit.all(simt.Load(room, here, F32, count))
        at.emit.place(simt.Store(at.given[0], here, values))

    values = np.arange(1, 20 * count + 1, dtype=np.float32)
    x = memory(np.zeros(WARP * count, np.float32))
    launch(write, WARP, x, memory(values, writable=False))
    assert numbers(x).tolist() == [*values.tolist(), *[0.0] * (12 * count)]


def test_groups_are_done_in_turn() -> None:
    """While the second copy is on its way, the first one can be used."""

    def write(at: Threads) -> None:
        rooms = [at.shared(4 * WARP) for _ in range(2)]
        for number, room in enumerate(rooms):
            at.copy(at.index(4 * number), room, own(at))
            at.commit()
        at.wait(1)
        first = at.load(rooms[0], own(at))
        at.wait(0)
        second = at.load(rooms[1], own(at))
        at.emit.place(simt.Store(at.given[0], at.times(at.thread, 2), [first, second]))

    x = memory(np.zeros(2 * WARP, np.float32))
    launch(write, WARP, x, memory(np.arange(8, dtype=np.float32)))
    assert numbers(x).tolist() == [0.0, 4.0] * WARP
