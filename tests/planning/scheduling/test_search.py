"""Orders of work: allowed, never worse than what is written, mostly the best, and always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from dlc.driver.compile.native_planner import machine_code
from dlc.planning import scheduling
from dlc.planning.scheduling import Order, Schedule, Task, TaskGraph, as_written
from dlc.planning.scheduling.candidates import backwards, candidates, forwards
from dlc.planning.scheduling.moves import LOWER_BOUND, SearchState, improve
from dlc.planning.scheduling.search import search_state

MANY = 1000
"""More waves than there are."""


def best_order(graph: TaskGraph, most_waves: int, least: int, effort: int = 1) -> Schedule:
    """The best order, searched in machine code."""
    return scheduling.best_order(graph, most_waves, least, effort, machine_code)


def random_graph(random: Random, most: int) -> TaskGraph:
    """Each makes one value of some that are there; sometimes the result may lie over one of them."""
    tasks: list[Task] = []
    sizes: list[int] = []
    for number in range(random.randint(1, most)):
        reads = tuple(random.sample(range(number), random.randint(0, min(number, 3))))
        over = tuple(value for value in reads if random.random() < 0.2)
        alone, inside = random.random() < 0.1, random.choice([0, 0, 0, 5])
        tasks.append(Task(reads, (number,), tuple(sorted(reads)), over, alone, inside))
        sizes.append(8)
    if random.random() < 0.5:
        tasks = [Task(c.reads, c.makes, c.before, (), c.alone, c.inside) for c in tasks]
        sizes = [random.choice([1, 2, 8, 30]) for _ in tasks]
    return TaskGraph(tasks, sizes)


def is_allowed(graph: TaskGraph, order: Order) -> bool:
    at = {number: place for place, number in enumerate(order)}
    return len(at) == len(graph.tasks) and all(
        at[other] < at[number] for number in at for other in graph.before[number]
    )


def all_orders(graph: TaskGraph) -> Iterator[list[int]]:
    pending: list[list[int]] = [[]]
    while pending:
        order = pending.pop()
        if len(order) == len(graph.tasks):
            yield order
        done = set(order)
        pending += [
            [*order, number]
            for number in range(len(graph.tasks))
            if number not in done and done.issuperset(graph.before[number])
        ]


def peak_one_by_one(graph: TaskGraph, order: Order) -> int:
    return max(graph.sequential(order)[0])


def test_every_order_to_choose_from_is_allowed() -> None:
    random = Random(1)
    for _ in range(100):
        graph = random_graph(random, 30)
        for how, order in candidates(graph):
            assert is_allowed(graph, order), how
        assert is_allowed(graph, best_order(graph, MANY, 0).order)


def test_greedy_orders_take_at_each_step_what_is_worth_most_then() -> None:
    random = Random(8)
    for _ in range(100):
        graph = random_graph(random, 40)
        assert forwards(graph) == one_after_the_other(graph, 1, frees)
        assert backwards(graph) == one_after_the_other(graph, -1, needs_less)[::-1]


def one_after_the_other(
    graph: TaskGraph, step: int, worth: Callable[[TaskGraph, int, set[int]], int]
) -> list[int]:
    """From the front, or for -1 from the end, always what is worth most; of several the first to come."""
    needs = graph.before if step > 0 else graph.after
    order: list[int] = []
    while len(order) < len(graph.tasks):
        done = set(order)
        ready = [n for n in range(len(graph.tasks)) if n not in done and done.issuperset(needs[n])]
        order.append(max(ready, key=lambda n: (worth(graph, n, done), -step * n)))
    return order


def frees(graph: TaskGraph, number: int, done: set[int]) -> int:
    """What nothing reads behind a task, less what it makes."""
    last = [v for v in graph.tasks[number].reads if done | {number} >= set(graph.readers[v])]
    return sum(graph.bytes[value] for value in last) - graph.written_bytes[number]


def needs_less(graph: TaskGraph, number: int, done: set[int]) -> int:
    """What a task makes, less what it reads that nothing behind it does."""
    new = [value for value in graph.tasks[number].reads if done.isdisjoint(graph.readers[value])]
    return graph.written_bytes[number] - sum(graph.bytes[value] for value in new)


def test_the_order_found_is_no_worse_than_what_is_written_and_mostly_the_best() -> None:
    random = Random(2)
    met = 0
    for _ in range(40):
        graph = random_graph(random, 6)
        best = min(peak_one_by_one(graph, order) for order in all_orders(graph))
        found = best_order(graph, MANY, 0)
        assert best <= found.peak <= as_written(graph).peak
        met += found.peak <= best + best // 64 + 1
    assert met >= 36


def test_there_are_no_more_waves_than_allowed() -> None:
    random = Random(3)
    for _ in range(50):
        graph = random_graph(random, 20)
        most = len(as_written(graph).held)
        assert len(best_order(graph, most, 0).held) <= most


def test_tasks_that_would_hold_too_much_together_get_waves_of_their_own() -> None:
    # Two large values are shortened one after the other instead of together.
    makes = [Task((), (k,), ()) for k in range(2)]
    frees = [Task((k,), (k + 2,), (k,)) for k in range(2)]
    end = Task((2, 3), (4,), (2, 3))
    graph = TaskGraph([*makes, *frees, end], [100, 100, 1, 1, 1])
    assert as_written(graph).held == [200, 202, 3]
    assert best_order(graph, 3, 0).peak == 202
    found = best_order(graph, 5, 0)
    assert found.peak == 102
    assert found.how != "as written"


def test_a_value_is_held_while_it_is_read_and_a_result_lies_over_what_dies() -> None:
    chain = [Task((), (0,), ()), Task((0,), (1,), (0,), (0,)), Task((0, 1), (2,), (0, 1), (1,))]
    graph = TaskGraph(chain, [8, 8, 8])
    assert graph.sequential(range(3)) == ([8, 16, 16], [8, 8, 0])


def test_the_machine_code_gives_what_the_python_code_gives() -> None:
    random = Random(4)
    code = machine_code(improve, SearchState)
    for _ in range(5):
        graph = random_graph(random, 25)
        ours, theirs = (search_state(graph, range(len(graph.tasks)), 3) for _ in range(2))
        assert improve(ours, 20_000, 1) == code(theirs, 20_000, 1)
        assert ours == theirs
        assert ours.words[LOWER_BOUND] == 3
        assert is_allowed(graph, ours.order)


def test_the_local_search_counts_what_the_task_graph_counts() -> None:
    random = Random(5)
    for _ in range(30):
        graph = random_graph(random, 15)
        state = search_state(graph, range(len(graph.tasks)), 0)
        assert improve(state, 0, 1) == peak_one_by_one(graph, range(len(graph.tasks)))
        assert improve(state, 5_000, 1) == peak_one_by_one(graph, state.order)


def test_the_same_work_has_the_same_order() -> None:
    graph = random_graph(Random(6), 40)
    assert best_order(graph, MANY, 0) == best_order(graph, MANY, 0)
