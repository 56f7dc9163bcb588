"""Local search for an order of buffers that is good in several cases of sizes at once.

An order from the lowest to the highest is a placement at any sizes: each buffer lies at the end of the
highest of those before it that are live with it. The height in a *case* of sizes comes from a critical
chain: buffers that lie end to end from the bottom to the top. A move puts one or two buffers of a chain
elsewhere in the order; it is undone if it makes the cost of all cases worse.

Like `exact`, this uses only integers and arrays of integers, and is compiled to machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.planning.arena.exact import Ints

MILLION = 1_000_000

COST, STATE, STEPS, CHAIN, CHANGED = 0, 1, 2, 3, 4
"""Words of `words`: the cost of all cases, in millionths of their lower bounds; the state of the random
numbers; the steps done; the length of the chain; the first position of the order that the move changes."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An order with the end of each buffer in each case: that of buffer `i` in case `c` is at
    `i * cases + c`, as is its size. `near` lists the buffers alive together with each."""

    size: Ints
    bound: Ints
    weight: Ints
    """The weight of excess height in each case."""
    neighbours: Ints
    neighbours_from: Ints

    order: Ints
    """The best order so far, from the lowest to the highest; at first the one to improve."""
    end: Ints
    words: Ints

    trial: Ints
    """The order under trial."""
    trial_end: Ints
    position: Ints
    """The position of each buffer in the trial order."""
    chain: Ints


Improve: TypeAlias = Callable[[Stack, int, int], int]
"""`improve` below, interpreted or compiled."""


def improve(t: Stack, limit: int, seed: int) -> int:
    """Improve the order until no case exceeds its lower bound, or for about `limit` steps.

    Returns the cost: the excess height of each case, in millionths of its bound, times its weight.
    """
    t.words[STATE] = seed
    t.words[STEPS] = 0
    for k in range(len(t.order)):
        t.trial[k] = t.order[k]
    t.words[CHANGED] = 0
    _stack(t)
    _evaluate(t)
    _accept(t)
    while t.words[COST] > 0 and t.words[STEPS] < limit:
        cost = t.words[COST]
        _find_chain(t, _case(t))
        t.words[CHANGED] = len(t.order)
        for _ in range(1 + (_random(t, 3) == 0)):
            _move(t, t.chain[_random(t, t.words[CHAIN])], _random(t, len(t.order)))
        _stack(t)
        _evaluate(t)
        if t.words[COST] <= cost:
            _accept(t)
        else:
            t.words[COST] = cost
            _reject(t)
    return t.words[COST]


def _random(t: Stack, count: int) -> int:
    """A random number below `count`, from the linear congruential generator of the C standard."""
    state = t.words[STATE] * 1103515245 + 12345
    t.words[STATE] = state - state // 2147483648 * 2147483648
    return t.words[STATE] // 65536 * count // 32768


def _stack(t: Stack) -> None:
    """Recompute the ends of buffers from the first changed position on."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        t.position[t.trial[k]] = k
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.trial[k]
        for c in range(cases):
            t.trial_end[i * cases + c] = 0
        for n in range(t.neighbours_from[i], t.neighbours_from[i + 1]):
            j = t.neighbours[n]
            if t.position[j] < k:
                for c in range(cases):
                    end = t.trial_end[j * cases + c]
                    if end > t.trial_end[i * cases + c]:
                        t.trial_end[i * cases + c] = end
        for c in range(cases):
            t.trial_end[i * cases + c] += t.size[i * cases + c]
        t.words[STEPS] += (t.neighbours_from[i + 1] - t.neighbours_from[i]) * cases


def _evaluate(t: Stack) -> None:
    """Compute the cost of all cases."""
    t.words[COST] = 0
    for c in range(len(t.bound)):
        t.words[COST] += _excess(t, c)


def _excess(t: Stack, case: int) -> int:
    """The weighted excess height of a case."""
    excess = t.trial_end[_highest(t, case)] - t.bound[case]
    return excess * MILLION // t.bound[case] * t.weight[case]


def _highest(t: Stack, case: int) -> int:
    """The index of the largest end in a case."""
    highest = case
    for k in range(len(t.order)):
        index = k * len(t.bound) + case
        if t.trial_end[index] > t.trial_end[highest]:
            highest = index
    return highest


def _case(t: Stack) -> int:
    """The case of largest excess; three times in ten a random one with excess."""
    skip = _random(t, len(t.bound)) if _random(t, 10) < 3 else -1
    worst = 0
    most_excess = -1
    for k in range(len(t.bound)):
        excess = _excess(t, k)
        if skip >= 0 and k >= skip and excess > 0:
            return k
        if excess > most_excess:
            most_excess = excess
            worst = k
    return worst


def _find_chain(t: Stack, case: int) -> None:
    """Buffers that lie end to end, from the highest end of a case to the bottom."""
    cases = len(t.bound)
    i = _highest(t, case) // cases
    t.chain[0] = i
    t.words[CHAIN] = 1
    start = t.end[i * cases + case] - t.size[i * cases + case]
    while start > 0:
        i = _under(t, i, case, start)
        t.chain[t.words[CHAIN]] = i
        t.words[CHAIN] += 1
        start = t.end[i * cases + case] - t.size[i * cases + case]


def _under(t: Stack, buffer: int, case: int, start: int) -> int:
    """One of the buffers that end where this one starts."""
    cases = len(t.bound)
    below = buffer
    count = 0
    for n in range(t.neighbours_from[buffer], t.neighbours_from[buffer + 1]):
        j = t.neighbours[n]
        if t.end[j * cases + case] == start and t.size[j * cases + case] > 0:
            count += 1
            if _random(t, count) == 0:
                below = j
    return below


def _move(t: Stack, buffer: int, target: int) -> None:
    """Move a buffer to another position of the trial order."""
    position = 0
    while t.trial[position] != buffer:
        position += 1
    lower = min(position, target)
    t.words[CHANGED] = min(t.words[CHANGED], lower)
    while position < target:
        t.trial[position] = t.trial[position + 1]
        position += 1
    while position > target:
        t.trial[position] = t.trial[position - 1]
        position -= 1
    t.trial[target] = buffer


def _accept(t: Stack) -> None:
    """Accept the trial order."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.trial[k]
        t.order[k] = i
        for c in range(cases):
            t.end[i * cases + c] = t.trial_end[i * cases + c]


def _reject(t: Stack) -> None:
    """Reject the trial order."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.order[k]
        t.trial[k] = i
        t.position[i] = k
        for c in range(cases):
            t.trial_end[i * cases + c] = t.end[i * cases + c]
