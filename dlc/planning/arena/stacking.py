"""Local search for an order of buffers that is good at several sizes at once.

An order from the lowest to the highest is a placement at any sizes: each buffer lies where the highest of
those before it that are alive with it ends. What makes it too high in a *case* of sizes is a critical
chain: buffers that lie end to end from the bottom to the top. Some of a chain are put elsewhere in the
order; what makes the cases together worse is taken back.

Like `exact`, this is about integers and arrays of them only, and is compiled to machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.planning.arena.exact import Ints

MILLION = 1_000_000

COST, STATE, STEPS, CHAIN, CHANGED = 0, 1, 2, 3, 4
"""Words of `words`: how bad all cases are together, in millionths of their bounds; the state of the random
numbers; how many ends were looked at; the length of the chain; the first place in the order that is being
changed."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An order with the end of each buffer in each case: that of buffer `i` in case `c` is at
    `i * cases + c`, as is its size. `near` lists the buffers alive together with each."""

    size: Ints
    bound: Ints
    weight: Ints
    """How bad it is in each case to be higher than the bound."""
    near: Ints
    near_from: Ints

    order: Ints
    """From the lowest to the highest: where to begin, and what is found."""
    end: Ints
    words: Ints

    trial: Ints
    """The order that is tried."""
    trial_end: Ints
    place: Ints
    """The place of each buffer in it."""
    chain: Ints


Improve: TypeAlias = Callable[[Stack, int, int], int]
"""`improve` below, or the same compiled."""


def improve(t: Stack, limit: int, seed: int) -> int:
    """Change the order for the better until no case is above its bound, or for about `limit` steps.

    Gives how bad it is: for each case what it is too high, in millionths of its bound, times its weight.
    """
    t.words[STATE] = seed
    t.words[STEPS] = 0
    for k in range(len(t.order)):
        t.trial[k] = t.order[k]
    t.words[CHANGED] = 0
    _stack(t)
    _judge(t)
    _keep(t)
    while t.words[COST] > 0 and t.words[STEPS] < limit:
        cost = t.words[COST]
        _find_chain(t, _case(t))
        t.words[CHANGED] = len(t.order)
        for _ in range(1 + (_random(t, 3) == 0)):
            _move(t, t.chain[_random(t, t.words[CHAIN])], _random(t, len(t.order)))
        _stack(t)
        _judge(t)
        if t.words[COST] <= cost:
            _keep(t)
        else:
            t.words[COST] = cost
            _drop(t)
    return t.words[COST]


def _random(t: Stack, count: int) -> int:
    """A number below `count`: the generator of the C standard's example, from its upper bits."""
    state = t.words[STATE] * 1103515245 + 12345
    t.words[STATE] = state - state // 2147483648 * 2147483648
    return t.words[STATE] // 65536 * count // 32768


def _stack(t: Stack) -> None:
    """Find the ends again from the first place on that is changed."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        t.place[t.trial[k]] = k
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.trial[k]
        for c in range(cases):
            t.trial_end[i * cases + c] = 0
        for n in range(t.near_from[i], t.near_from[i + 1]):
            j = t.near[n]
            if t.place[j] < k:
                for c in range(cases):
                    end = t.trial_end[j * cases + c]
                    if end > t.trial_end[i * cases + c]:
                        t.trial_end[i * cases + c] = end
        for c in range(cases):
            t.trial_end[i * cases + c] += t.size[i * cases + c]
        t.words[STEPS] += (t.near_from[i + 1] - t.near_from[i]) * cases


def _judge(t: Stack) -> None:
    """How bad the cases are."""
    t.words[COST] = 0
    for c in range(len(t.bound)):
        t.words[COST] += _excess(t, c)


def _excess(t: Stack, case: int) -> int:
    """How bad a case is: what it is too high, weighed."""
    excess = t.trial_end[_highest(t, case)] - t.bound[case]
    return excess * MILLION // t.bound[case] * t.weight[case]


def _highest(t: Stack, case: int) -> int:
    """Where the largest end of a case stands."""
    highest = case
    for k in range(len(t.order)):
        at = k * len(t.bound) + case
        if t.trial_end[at] > t.trial_end[highest]:
            highest = at
    return highest


def _case(t: Stack) -> int:
    """The worst case, or three times in ten any that is too high."""
    skip = _random(t, len(t.bound)) if _random(t, 10) < 3 else -1
    found = 0
    most = -1
    for k in range(len(t.bound)):
        excess = _excess(t, k)
        if skip >= 0 and k >= skip and excess > 0:
            return k
        if excess > most:
            most = excess
            found = k
    return found


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
    found = buffer
    count = 0
    for n in range(t.near_from[buffer], t.near_from[buffer + 1]):
        j = t.near[n]
        if t.end[j * cases + case] == start and t.size[j * cases + case] > 0:
            count += 1
            if _random(t, count) == 0:
                found = j
    return found


def _move(t: Stack, buffer: int, to: int) -> None:
    """Put a buffer at another place of the order that is tried."""
    at = 0
    while t.trial[at] != buffer:
        at += 1
    lower = min(at, to)
    t.words[CHANGED] = min(t.words[CHANGED], lower)
    while at < to:
        t.trial[at] = t.trial[at + 1]
        at += 1
    while at > to:
        t.trial[at] = t.trial[at - 1]
        at -= 1
    t.trial[to] = buffer


def _keep(t: Stack) -> None:
    """What was tried is the order from now on."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.trial[k]
        t.order[k] = i
        for c in range(cases):
            t.end[i * cases + c] = t.trial_end[i * cases + c]


def _drop(t: Stack) -> None:
    """What was tried was the order before."""
    cases = len(t.bound)
    for k in range(t.words[CHANGED], len(t.order)):
        i = t.order[k]
        t.trial[k] = i
        t.place[i] = k
        for c in range(cases):
            t.trial_end[i * cases + c] = t.end[i * cases + c]
