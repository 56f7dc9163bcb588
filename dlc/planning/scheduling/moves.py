"""Local search for an order that holds less: stretches of it are moved to where else they may stand.

The chores run one after the other here. What holds less at the peak is kept, and of what holds as much
that which holds less above what is needed anyway; what holds the same only if the place of the peak has
moved, so that all else stays as it was. Places near the peak are tried more often.

Like the searches of placement, this is about integers and arrays of them only, and is compiled to machine
code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.planning.arena.exact import Ints

LEAST, PEAK, AT, REST, STATE, STEPS, LOW, HIGH = 0, 1, 2, 3, 4, 5, 6, 7
"""Words of `words`: what is needed anyway; the most that is held, and at which place of the order; what is
held above the least, over all places; the state of the random numbers; how much was looked at; the first
and the last place that is changed."""

LONGEST = 8
"""So many chores are moved together at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """An order of chores. Lists of lists are flat, with the place where each begins."""

    size: Ints
    """The bytes of each value."""
    inside: Ints
    """What each chore holds besides."""
    reads: Ints
    reads_from: Ints
    makes: Ints
    makes_from: Ints
    over: Ints
    over_from: Ints
    before: Ints
    before_from: Ints
    after: Ints
    after_from: Ints

    order: Ints
    """Where to begin, and what is found."""
    words: Ints

    trial: Ints
    """The order that is tried."""
    place: Ints
    """The place of each chore in it."""
    last: Ints
    """The place of the last reader of each value, or of its maker."""
    home: Ints
    """In whose place each value lies."""
    until: Ints
    """How long the place of each value is needed."""


Improve: TypeAlias = Callable[[Line, int, int], int]
"""`improve` below, or the same compiled."""


def improve(t: Line, limit: int, seed: int) -> int:
    """Change the order for the better until it holds the least, or for about `limit` steps.

    Gives the most that it holds.
    """
    t.words[STATE] = seed
    t.words[STEPS] = 0
    for k in range(len(t.order)):
        t.trial[k] = t.order[k]
        t.place[t.order[k]] = k
    _judge(t)
    peak = t.words[PEAK]
    at = t.words[AT]
    rest = t.words[REST]
    while peak > t.words[LEAST] and t.words[STEPS] < limit:
        if _change(t, at):
            _judge(t)
            same = t.words[PEAK] == peak
            less = t.words[REST] < rest
            moved = t.words[REST] == rest and t.words[LOW] <= at and at <= t.words[HIGH]
            if t.words[PEAK] < peak or (same and (less or moved)):
                peak = t.words[PEAK]
                at = t.words[AT]
                rest = t.words[REST]
                for k in range(t.words[LOW], t.words[HIGH] + 1):
                    t.order[k] = t.trial[k]
            else:
                for k in range(t.words[LOW], t.words[HIGH] + 1):
                    t.trial[k] = t.order[k]
                    t.place[t.order[k]] = k
    return peak


def _judge(t: Line) -> None:
    """What the order that is tried holds."""
    for k in range(len(t.trial)):
        i = t.trial[k]
        for n in range(t.makes_from[i], t.makes_from[i + 1]):
            t.last[t.makes[n]] = k
        for n in range(t.reads_from[i], t.reads_from[i + 1]):
            t.last[t.reads[n]] = k
    held = 0
    t.words[PEAK] = 0
    t.words[REST] = 0
    for k in range(len(t.trial)):
        i = t.trial[k]
        held += _made(t, i, k)
        here = held + t.inside[i]
        if here > t.words[PEAK]:
            t.words[PEAK] = here
            t.words[AT] = k
        t.words[REST] += max(0, here - t.words[LEAST])
        held -= _freed(t, i, k)
    t.words[STEPS] += len(t.trial) + len(t.reads)


def _made(t: Line, chore: int, at: int) -> int:
    """The bytes that a chore takes for what it makes."""
    dying = -1
    for n in range(t.over_from[chore], t.over_from[chore + 1]):
        if t.until[t.home[t.over[n]]] == at:
            dying = t.home[t.over[n]]
    taken = 0
    for n in range(t.makes_from[chore], t.makes_from[chore + 1]):
        value = t.makes[n]
        if dying >= 0:
            t.home[value] = dying
        else:
            t.home[value] = value
            taken += t.size[value]
        t.until[t.home[value]] = t.last[value]
    return taken


def _freed(t: Line, chore: int, at: int) -> int:
    """The bytes of the places that are not needed behind a chore."""
    freed = 0
    for n in range(t.reads_from[chore], t.reads_from[chore + 1]):
        home = t.home[t.reads[n]]
        if t.until[home] == at:
            freed += t.size[home]
            t.until[home] = -1
    for n in range(t.makes_from[chore], t.makes_from[chore + 1]):
        home = t.home[t.makes[n]]
        if t.until[home] == at:
            freed += t.size[home]
            t.until[home] = -1
    return freed


# Changes.


def _random(t: Line, count: int) -> int:
    """A number below `count`: the generator of the C standard's example, from its upper bits."""
    state = t.words[STATE] * 1103515245 + 12345
    t.words[STATE] = state - state // 2147483648 * 2147483648
    return t.words[STATE] // 65536 * count // 32768


def _change(t: Line, peak: int) -> int:
    """Move a stretch of the order that is tried; whether there was anywhere to move it."""
    t.words[STEPS] += 1
    count = len(t.trial)
    first = _random(t, count)
    if _random(t, 3) > 0:
        reach = 4 + count // 8
        first = min(count - 1, max(0, peak - reach + _random(t, 2 * reach + 1)))
    last = first
    if _random(t, 4) == 0:
        last = min(count - 1, first + _random(t, LONGEST))
    if _random(t, 2) == 0:
        return _move_up(t, first, last)
    return _move_down(t, first, last)


def _move_up(t: Line, first: int, last: int) -> int:
    """Let a stretch run later, behind some of those that need nothing of it."""
    end = last + 1
    while end < len(t.trial) and not _any_within(t, t.trial[end], first, last):
        end += 1
    if end == last + 1:
        return 0
    _rotate(t, first, last + 1, last + 2 + _random(t, end - last - 1))
    return 1


def _any_within(t: Line, chore: int, first: int, last: int) -> int:
    """Whether a chore needs any in a stretch."""
    t.words[STEPS] += 1
    for n in range(t.before_from[chore], t.before_from[chore + 1]):
        at = t.place[t.before[n]]
        if first <= at and at <= last:
            return 1
    return 0


def _move_down(t: Line, first: int, last: int) -> int:
    """Let a stretch run earlier, before some of those of which it needs nothing."""
    begin = first - 1
    while begin >= 0 and not _any_needs(t, t.trial[begin], first, last):
        begin -= 1
    if begin == first - 1:
        return 0
    _rotate(t, begin + 1 + _random(t, first - begin - 1), first, last + 1)
    return 1


def _any_needs(t: Line, chore: int, first: int, last: int) -> int:
    """Whether a chore is needed by any in a stretch."""
    t.words[STEPS] += 1
    for n in range(t.after_from[chore], t.after_from[chore + 1]):
        at = t.place[t.after[n]]
        if first <= at and at <= last:
            return 1
    return 0


def _rotate(t: Line, low: int, middle: int, high: int) -> None:
    """Let what stands from `low` to before `middle` change places with what stands from there to `high`."""
    for k in range(low, middle):
        t.trial[high - middle + k] = t.order[k]
    for k in range(middle, high):
        t.trial[low + k - middle] = t.order[k]
    for k in range(low, high):
        t.place[t.trial[k]] = k
    t.words[LOW] = low
    t.words[HIGH] = high - 1
