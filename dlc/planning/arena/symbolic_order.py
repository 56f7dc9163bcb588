"""Allocation with symbolic sizes: an order of buffers, from which a call computes offsets.

An order that is good at one tuple of sizes may be bad at others, so it is judged in several *cases* of
sizes. A good placement in one case gives an order to start from. Local search improves the best starts a
little, and then the best result; its steps are limited, and its random numbers come from a fixed seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena.buffers import LOCAL_SEARCH_BYTES, Buffer, lower_bound, meeting
from dlc.planning.arena.greedy import best_fit
from dlc.planning.arena.portfolio import place
from dlc.planning.arena.stacking import Improve, Stack, improve

STEPS_FOR_EACH, MOST_STEPS = 400_000, 40_000_000
"""Steps of the local search, per buffer and at most: a tenth of a second."""
STARTS = 6
"""How many orders are improved in the first half of the steps; the best of them gets the other half."""
LAST_WEIGHT, LAST_WEIGHT_THEN = 100, 1_000_000
"""The weight of excess height in the last case, which is promised and most frequent: first moderate, so
that the search may pass through orders with some, then prohibitive."""
MAX_SEARCHED, STEPS_AT_FIRST = 100, 1_000_000
"""Up to this many buffers, each case is also searched for an order to start from, in this many steps."""
MANY, MOST_CASES = 300, 3
"""With more buffers only the last cases give an order to start from: those orders are mostly the best, and
each takes time."""
SEED = 1


def order_above(buffers: Sequence[Buffer], order: Sequence[int]) -> list[list[int]]:
    """For each buffer those live with it that come before it in the order: they lie below it.

    At any sizes, each may lie at the end of the highest of those below it: no two overlap.

    >>> order_above([Buffer(64, 0, 1), Buffer(128, 1, 2)], [1, 0])
    [[1], []]
    """
    position = {index: k for k, index in enumerate(order)}
    return [
        [j for j in neighbours if position[j] < position[index]]
        for index, neighbours in enumerate(_neighbours(buffers))
    ]


def find_order(
    cases: Sequence[Sequence[Buffer]], *, effort: int = 1, compiler: Compiler = interpreted
) -> list[int]:
    """An order of buffers, from the lowest to the highest, that is good in every case of sizes.

    The cases have the same lifetimes; the last one matters most. The search minimizes the heights above the
    lower bounds of the cases; `effort` multiplies its steps. The `compiler` turns it into machine code.

    >>> find_order([[Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)]])
    [1, 0, 2]
    """
    searchable = [
        case for case in cases if sum(buffer.size for buffer in case) < LOCAL_SEARCH_BYTES
    ]
    if not searchable:
        return _by_offset(best_fit(cases[-1]))
    stack = _stack_of(searchable)
    run = compiler(improve, Stack)
    starts: list[tuple[int, list[int]]] = []
    for order in _orders(searchable, compiler):
        starts.append((_improved(stack, order, run, 0), order))
        if starts[-1][0] == 0:
            return order
    steps = effort * min(MOST_STEPS, STEPS_FOR_EACH * len(stack.order))
    best_starts = [order for _, order in sorted(starts, key=lambda each: each[0])[:STARTS]]
    improved: list[list[int]] = []
    for order in best_starts:
        cost = _improved(stack, order, run, steps // (2 * len(best_starts)))
        improved.append(list(stack.order))
        if cost == 0:
            return improved[-1]
    stack.weight[-1] = LAST_WEIGHT_THEN
    best = min([*improved, *best_starts], key=lambda order: _improved(stack, order, run, 0))
    _improved(stack, best, run, steps // 2)
    return list(stack.order)


def _orders(cases: Sequence[Sequence[Buffer]], compiler: Compiler) -> Iterator[list[int]]:
    """Orders to start from, each good in one case."""
    yield _by_offset(place(cases[-1], compiler=compiler).offsets)
    others = cases[-2::-1]
    if len(cases[-1]) > MANY:
        others = others[: MOST_CASES - 1]
    for case in others:
        yield _by_offset(best_fit(case))
    if len(cases[-1]) <= MAX_SEARCHED:
        for case in others:
            yield _by_offset(place(case, steps=STEPS_AT_FIRST, compiler=compiler).offsets)


def _by_offset(offsets: Sequence[int]) -> list[int]:
    return sorted(range(len(offsets)), key=lambda i: (offsets[i], i))


def _improved(stack: Stack, order: Sequence[int], run: Improve, steps: int) -> int:
    """Improve an order for `steps` steps; it is then in the stack. Returns its cost."""
    stack.order[:] = array("q", order)
    return run(stack, steps, SEED)


def _neighbours(buffers: Sequence[Buffer]) -> list[list[int]]:
    """For each buffer those live together with it."""
    return meeting([(buffer.first, buffer.last) for buffer in buffers])


def _stack_of(cases: Sequence[Sequence[Buffer]]) -> Stack:
    buffers = cases[0]
    count = len(buffers)
    neighbours = _neighbours(buffers)
    ends = array("q", bytes(8 * count * len(cases)))
    places = array("q", bytes(8 * count))
    return Stack(
        size=array("q", [case[i].size for i in range(count) for case in cases]),
        bound=array("q", [max(1, lower_bound(case)) for case in cases]),
        weight=array("q", [*[1] * (len(cases) - 1), LAST_WEIGHT]),
        neighbours=array("q", chain(*neighbours)),
        neighbours_from=array("q", accumulate(map(len, neighbours), initial=0)),
        order=places[:],
        end=ends[:],
        words=array("q", bytes(8 * 5)),
        trial=places[:],
        trial_end=ends[:],
        position=places[:],
        chain=places[:],
    )
