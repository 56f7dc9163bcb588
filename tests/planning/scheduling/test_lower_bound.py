"""The bound over all orders: never above what the best of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from dlc.planning.scheduling import Footprint, least_live, live_across, witnesses
from dlc.runtime.artifact.plan import Plan, Span, Use
from dlc.runtime.artifact.plan_check import check


def task(reads: Sequence[int], writes: Sequence[int], over: Sequence[int] = ()) -> Footprint:
    return Footprint(frozenset(reads), frozenset(writes), frozenset(over))


def random_tasks(random: Random) -> list[Footprint]:
    """Each makes one thing of some that are there; sometimes it could write over one of them."""
    tasks: list[Footprint] = []
    for number in range(random.randint(1, 7)):
        reads = random.sample(range(number), random.randint(0, min(number, 2)))
        over = [each for each in reads if random.random() < 0.3]
        tasks.append(task(reads, [number], over))
    return tasks


def orders(tasks: Sequence[Footprint]) -> Iterator[list[int]]:
    """All orders in which everything is made before it is read."""
    pending: list[list[int]] = [[]]
    while pending:
        order = pending.pop()
        if len(order) == len(tasks):
            yield order
        made = set(order)
        pending += [
            [*order, k] for k, each in enumerate(tasks) if k not in made and each.reads <= made
        ]


def most_held(tasks: Sequence[Footprint], order: Sequence[int], sizes: Sequence[int]) -> int:
    """The most that an order holds, with every result over what dies then if it may be."""
    last = {
        made: max((at for at, k in enumerate(order) if made in tasks[k].reads), default=-1)
        for made in range(len(tasks))
    }
    most = 0
    for at, k in enumerate(order):
        alive = {made for made in order[:at] if last[made] >= at} | {k}
        dying = [made for made in tasks[k].over if last[made] == at]
        most = max(most, sum(sizes[each] for each in alive) - (sizes[k] if dying else 0))
    return most


def bound_of(tasks: Sequence[Footprint], sizes: Sequence[int]) -> int:
    everything = [sum(sizes)] * len(tasks)
    found = witnesses(tasks, [sizes], [everything])
    return max(sum(sizes[each] for each in held) for held in found.values())


def test_no_order_of_random_tasks_holds_less_than_the_bound() -> None:
    random = Random(3)
    met = 0
    for _ in range(300):
        tasks = random_tasks(random)
        sizes = [64] * len(tasks) if random.random() < 0.5 else []
        sizes = sizes or [64 * random.randint(1, 4)] * len(tasks)
        best = min(most_held(tasks, order, sizes) for order in orders(tasks))
        bound = bound_of(tasks, sizes)
        assert bound <= best, (tasks, sizes)
        met += bound == best
    assert met > 200


WHOLE = 99
"""The root of an array in pieces; others have the number of the task that makes them."""


def random_pieces(random: Random) -> tuple[list[Footprint], list[set[int]]]:
    """Tasks of which some make pieces of one array, and by whom each really waits for what it reads.

    Who reads a piece runs before those who make the others, or needs them.
    """
    while True:
        count = random.randint(3, 6)
        pieces = sorted(random.sample(range(count), random.randint(2, 3)))
        tasks: list[Footprint] = []
        needs: list[set[int]] = []
        for number in range(count):
            read = set(random.sample(range(number), random.randint(0, min(number, 2))))
            if random.random() < 0.3 and number > pieces[-1]:
                read |= set(pieces)
            reads = {WHOLE if each in pieces else each for each in read}
            made = frozenset({WHOLE if number in pieces else number})
            parts = made if number in pieces[1:] else frozenset[int]()
            tasks.append(Footprint(frozenset(reads), made, parts=parts))
            needs.append(read)
        if all(in_order(number, pieces, needs) for number in range(count)):
            return tasks, needs


def in_order(number: int, pieces: list[int], needs: list[set[int]]) -> bool:
    needed = set(needs[number])
    for earlier in range(number - 1, -1, -1):
        needed |= needs[earlier] if earlier in needed else set()
    return needs[number].isdisjoint(pieces) or all(k in needed for k in pieces if k < number)


def most_in_pieces(tasks: list[Footprint], order: Sequence[int]) -> int:
    """The most roots that an order holds, each from the first task that writes it on."""
    most = 0
    for at in range(len(order)):
        begun = {root for k in order[: at + 1] for root in tasks[k].writes}
        wanted = {root for k in order[at:] for root in tasks[k].touched}
        most = max(most, len(begun & wanted))
    return most


def test_the_bound_is_right_where_arrays_are_made_in_pieces() -> None:
    random = Random(5)
    met = 0
    for _ in range(300):
        tasks, needs = random_pieces(random)
        waiting = [Footprint(frozenset(read), frozenset({k})) for k, read in enumerate(needs)]
        best = min(most_in_pieces(tasks, order) for order in orders(waiting))
        bound = bound_of(tasks, [1] * (WHOLE + 1))
        assert bound <= best, tasks
        met += bound == best
    assert met > 200


def test_what_is_written_in_part_is_still_there() -> None:
    first = task([], [0])
    part = Footprint(frozenset({1}), frozenset({0}), parts=frozenset({0}))
    tasks = [first, task([0], [1]), task([1], [2]), part, task([0, 2], [3])]
    assert live_across(tasks, 2) == {0}
    assert live_across([*tasks[:3], task([1], [0]), tasks[4]], 2) == set()


def test_a_claim_of_the_bound_is_one_that_the_checker_accepts() -> None:
    random = Random(4)
    for _ in range(300):
        tasks = random_tasks(random)
        sizes = [64] * len(tasks)
        end = len(tasks) - 1
        roots = [Span(str(k), 64 * k, 64, k, end) for k in range(len(tasks))]
        uses = [
            Use(k, [64 * each for each in found.reads], [64 * each for each in found.writes])
            for k, found in enumerate(tasks)
        ]
        found = witnesses(tasks, [sizes], [[64 * len(tasks)] * len(tasks)])
        arena = 64 * len(tasks)
        check(Plan(arena, arena, bound_of(tasks, sizes), list(found), roots, []), uses)


def test_a_result_may_lie_over_what_nothing_else_needs() -> None:
    alone = [task([], [0]), task([0], [1], [0])]
    assert least_live(alone[1], live_across(alone, 1)) == {1}
    kept = [*alone, task([0, 1], [2])]
    assert least_live(kept[1], live_across(kept, 1)) == {0, 1}
    in_place = [task([], [0]), task([0], [0], [0]), task([0], [1])]
    assert least_live(in_place[1], live_across(in_place, 1)) == {0}


def test_each_case_of_sizes_has_its_witness() -> None:
    tasks = [task([], [0]), task([0], [1]), task([1], [2]), task([2], [3])]
    cases = [[8, 8, 1, 1], [1, 1, 8, 8]]
    everything = [[18] * 4] * 2
    assert set(witnesses(tasks, cases, everything)) == {1, 3}


def test_tasks_at_which_an_order_holds_little_are_not_looked_at() -> None:
    tasks = [task([], [0]), task([0], [1]), task([0, 1], [2])]
    assert witnesses(tasks, [[1, 1, 1]], [[0, 0, 0]]) == {2: frozenset({0, 1, 2})}
    assert witnesses([], [[]], [[]]) == {}
