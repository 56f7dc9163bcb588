"""For sizes that are known only when a model runs: which buffer lies above which.

An order that is good at one tuple of sizes may be bad at others, so it is looked at in several *cases* of
sizes. What is placed well in one case gives an order to begin with. The best of these in all cases are
improved by local search, a little each, and then what is best then; the steps are limited and the numbers
are drawn from a fixed seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena.buffers import Buffer, lower_bound, meeting
from dlc.planning.arena.greedy import best_fit
from dlc.planning.arena.portfolio import place
from dlc.planning.arena.stacking import Improve, Stack, improve

STEPS_FOR_EACH, MOST_STEPS = 400_000, 40_000_000
"""Steps of the local search, for each buffer and altogether at most: a tenth of a second."""
STARTS = 6
"""So many orders are improved, together in half of the steps, and the best of them in the other half."""
MAX_TOTAL = 1 << 43
"""The sizes of a case that is looked at sum up to less: a search counts in millionths of them."""
LAST_WEIGHT, LAST_WEIGHT_THEN = 100, 1_000_000
"""How much worse it is to be too high in the last case, the one that is promised and most often met. At
first a way may lead through orders that are; what is found then is not, if there is any that is not."""
MAX_SEARCHED, STEPS_AT_FIRST = 100, 1_000_000
"""Of so many buffers each case is also searched for an order to begin with, in so many steps."""
MANY, MOST_CASES = 300, 3
"""Of so many buffers only the last cases give an order to begin with: an order that is good there is mostly
the best of all, and each takes time."""
SEED = 1


def order_above(buffers: Sequence[Buffer], order: Sequence[int]) -> list[list[int]]:
    """For each buffer those alive with it that come before it in the order: they lie below it.

    At any sizes, each may lie where the highest of those below it ends: no two overlap.

    >>> order_above([Buffer(64, 0, 1), Buffer(128, 1, 2)], [1, 0])
    [[1], []]
    """
    place = {index: k for k, index in enumerate(order)}
    return [
        [j for j in near if place[j] < place[index]] for index, near in enumerate(_near(buffers))
    ]


def find_order(
    cases: Sequence[Sequence[Buffer]], *, effort: int = 1, compiler: Compiler = interpreted
) -> list[int]:
    """An order of buffers, from the lowest to the highest, that is good in every case of sizes.

    The cases have the same lives; the last one matters most. What the heights are above the lower bounds
    of their cases is as little as a search finds, and more `effort` lets it search longer. The `compiler`
    makes the search quick.

    >>> find_order([[Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)]])
    [1, 0, 2]
    """
    small = [case for case in cases if sum(buffer.size for buffer in case) < MAX_TOTAL]
    if not small:
        return _by_offset(best_fit(cases[-1]))
    stack = _stack_of(small)
    better = compiler(improve, Stack)
    begun: list[tuple[int, list[int]]] = []
    for order in _orders(small, compiler):
        begun.append((_improved(stack, order, better, 0), order))
        if begun[-1][0] == 0:
            return order
    steps = effort * min(MOST_STEPS, STEPS_FOR_EACH * len(stack.order))
    some = [order for _, order in sorted(begun, key=lambda each: each[0])[:STARTS]]
    found: list[list[int]] = []
    for order in some:
        cost = _improved(stack, order, better, steps // (2 * len(some)))
        found.append(list(stack.order))
        if cost == 0:
            return found[-1]
    stack.weight[-1] = LAST_WEIGHT_THEN
    best = min([*found, *some], key=lambda order: _improved(stack, order, better, 0))
    _improved(stack, best, better, steps // 2)
    return list(stack.order)


def _orders(cases: Sequence[Sequence[Buffer]], compiler: Compiler) -> Iterator[list[int]]:
    """Orders that are good in one case."""
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


def _improved(stack: Stack, order: Sequence[int], better: Improve, steps: int) -> int:
    """Improve an order by so many steps; it is in the stack. Gives how bad it is then."""
    stack.order[:] = array("q", order)
    return better(stack, steps, SEED)


def _near(buffers: Sequence[Buffer]) -> list[list[int]]:
    """For each buffer those alive together with it."""
    return meeting([(buffer.first, buffer.last) for buffer in buffers])


def _stack_of(cases: Sequence[Sequence[Buffer]]) -> Stack:
    buffers = cases[0]
    count = len(buffers)
    near = _near(buffers)
    ends = array("q", bytes(8 * count * len(cases)))
    places = array("q", bytes(8 * count))
    return Stack(
        size=array("q", [case[i].size for i in range(count) for case in cases]),
        bound=array("q", [max(1, lower_bound(case)) for case in cases]),
        weight=array("q", [*[1] * (len(cases) - 1), LAST_WEIGHT]),
        near=array("q", chain(*near)),
        near_from=array("q", accumulate(map(len, near), initial=0)),
        order=places[:],
        end=ends[:],
        words=array("q", bytes(8 * 5)),
        trial=places[:],
        trial_end=ends[:],
        place=places[:],
        chain=places[:],
    )
