"""Orders of work: allowed, never worse than what is written, mostly the best, and always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from dlc.driver.compile.native_planner import machine_code
from dlc.planning import scheduling
from dlc.planning.scheduling import Chore, Chores, Found, Order, as_written
from dlc.planning.scheduling.candidates import backwards, candidates, forwards
from dlc.planning.scheduling.moves import LEAST, Line, improve
from dlc.planning.scheduling.search import line_of

MANY = 1000
"""More waves than there are."""


def best_order(chores: Chores, most_waves: int, least: int, effort: int = 1) -> Found:
    """The best order, searched in machine code."""
    return scheduling.best_order(chores, most_waves, least, effort, machine_code)


def random_chores(random: Random, most: int) -> Chores:
    """Each makes one value of some that are there; sometimes the result may lie over one of them."""
    chores: list[Chore] = []
    sizes: list[int] = []
    for number in range(random.randint(1, most)):
        reads = tuple(random.sample(range(number), random.randint(0, min(number, 3))))
        over = tuple(value for value in reads if random.random() < 0.2)
        alone, inside = random.random() < 0.1, random.choice([0, 0, 0, 5])
        chores.append(Chore(reads, (number,), tuple(sorted(reads)), over, alone, inside))
        sizes.append(8)
    if random.random() < 0.5:
        chores = [Chore(c.reads, c.makes, c.before, (), c.alone, c.inside) for c in chores]
        sizes = [random.choice([1, 2, 8, 30]) for _ in chores]
    return Chores(chores, sizes)


def is_allowed(chores: Chores, order: Order) -> bool:
    at = {number: place for place, number in enumerate(order)}
    return len(at) == len(chores.all) and all(
        at[other] < at[number] for number in at for other in chores.before[number]
    )


def all_orders(chores: Chores) -> Iterator[list[int]]:
    pending: list[list[int]] = [[]]
    while pending:
        order = pending.pop()
        if len(order) == len(chores.all):
            yield order
        done = set(order)
        pending += [
            [*order, number]
            for number in range(len(chores.all))
            if number not in done and done.issuperset(chores.before[number])
        ]


def peak_one_by_one(chores: Chores, order: Order) -> int:
    return max(chores.one_by_one(order)[0])


def test_every_order_to_choose_from_is_allowed() -> None:
    random = Random(1)
    for _ in range(100):
        chores = random_chores(random, 30)
        for how, order in candidates(chores):
            assert is_allowed(chores, order), how
        assert is_allowed(chores, best_order(chores, MANY, 0).order)


def test_greedy_orders_take_at_each_step_what_is_worth_most_then() -> None:
    random = Random(8)
    for _ in range(100):
        chores = random_chores(random, 40)
        assert forwards(chores) == one_after_the_other(chores, 1, frees)
        assert backwards(chores) == one_after_the_other(chores, -1, needs_less)[::-1]


def one_after_the_other(
    chores: Chores, step: int, worth: Callable[[Chores, int, set[int]], int]
) -> list[int]:
    """From the front, or for -1 from the end, always what is worth most; of several the first to come."""
    needs = chores.before if step > 0 else chores.after
    order: list[int] = []
    while len(order) < len(chores.all):
        done = set(order)
        ready = [n for n in range(len(chores.all)) if n not in done and done.issuperset(needs[n])]
        order.append(max(ready, key=lambda n: (worth(chores, n, done), -step * n)))
    return order


def frees(chores: Chores, number: int, done: set[int]) -> int:
    """What nothing reads behind a chore, less what it makes."""
    last = [v for v in chores.all[number].reads if done | {number} >= set(chores.readers[v])]
    return sum(chores.bytes[value] for value in last) - chores.made[number]


def needs_less(chores: Chores, number: int, done: set[int]) -> int:
    """What a chore makes, less what it reads that nothing behind it does."""
    new = [value for value in chores.all[number].reads if done.isdisjoint(chores.readers[value])]
    return chores.made[number] - sum(chores.bytes[value] for value in new)


def test_the_order_found_is_no_worse_than_what_is_written_and_mostly_the_best() -> None:
    random = Random(2)
    met = 0
    for _ in range(40):
        chores = random_chores(random, 6)
        best = min(peak_one_by_one(chores, order) for order in all_orders(chores))
        found = best_order(chores, MANY, 0)
        assert best <= found.peak <= as_written(chores).peak
        met += found.peak <= best + best // 64 + 1
    assert met >= 36


def test_there_are_no_more_waves_than_allowed() -> None:
    random = Random(3)
    for _ in range(50):
        chores = random_chores(random, 20)
        most = len(as_written(chores).held)
        assert len(best_order(chores, most, 0).held) <= most


def test_chores_that_would_hold_too_much_together_get_waves_of_their_own() -> None:
    # Two large values are shortened one after the other instead of together.
    makes = [Chore((), (k,), ()) for k in range(2)]
    frees = [Chore((k,), (k + 2,), (k,)) for k in range(2)]
    end = Chore((2, 3), (4,), (2, 3))
    chores = Chores([*makes, *frees, end], [100, 100, 1, 1, 1])
    assert as_written(chores).held == [200, 202, 3]
    assert best_order(chores, 3, 0).peak == 202
    found = best_order(chores, 5, 0)
    assert found.peak == 102
    assert found.how != "as written"


def test_a_value_is_held_while_it_is_read_and_a_result_lies_over_what_dies() -> None:
    chain = [Chore((), (0,), ()), Chore((0,), (1,), (0,), (0,)), Chore((0, 1), (2,), (0, 1), (1,))]
    chores = Chores(chain, [8, 8, 8])
    assert chores.one_by_one(range(3)) == ([8, 16, 16], [8, 8, 0])


def test_the_machine_code_gives_what_the_python_code_gives() -> None:
    random = Random(4)
    code = machine_code(improve, Line)
    for _ in range(5):
        chores = random_chores(random, 25)
        ours, theirs = (line_of(chores, range(len(chores.all)), 3) for _ in range(2))
        assert improve(ours, 20_000, 1) == code(theirs, 20_000, 1)
        assert ours == theirs
        assert ours.words[LEAST] == 3
        assert is_allowed(chores, ours.order)


def test_the_local_search_counts_what_the_chores_count() -> None:
    random = Random(5)
    for _ in range(30):
        chores = random_chores(random, 15)
        line = line_of(chores, range(len(chores.all)), 0)
        assert improve(line, 0, 1) == peak_one_by_one(chores, range(len(chores.all)))
        assert improve(line, 5_000, 1) == peak_one_by_one(chores, line.order)


def test_the_same_work_has_the_same_order() -> None:
    chores = random_chores(Random(6), 40)
    assert best_order(chores, MANY, 0) == best_order(chores, MANY, 0)
