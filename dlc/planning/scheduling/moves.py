"""Local search for an order with a lower memory peak: segments of it move to other legal positions.

The tasks run one after the other here. A move is kept if it lowers the peak, or keeps the peak and lowers
the excess, the bytes above the lower bound summed over all positions. A move that changes neither is kept
only if it moved the peak, so that the rest of the order stays. Positions near the peak are tried more
often.

Like the searches of the arena, this uses only integers and arrays of integers, and is compiled to machine
code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.planning.arena.exact import Ints

LOWER_BOUND, PEAK, PEAK_POSITION, EXCESS, STATE, STEPS, LOW, HIGH = 0, 1, 2, 3, 4, 5, 6, 7
"""Words of `words`: the lower bound on the peak; the peak of the trial order and its position; the bytes
above the bound, summed over all positions; the state of the random numbers; the steps done; the first and
the last position that the move changes. All memory is in bytes."""

LONGEST = 8
"""The most tasks in a segment that is moved."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """A task graph, an order of its tasks and the state of the search.

    Lists of lists are flat: `reads[reads_from[i]]` is the first value that task `i` reads.
    """

    size: Ints
    """The bytes of each value."""
    inside: Ints
    """The bytes that are live only during each task."""
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
    """The best order so far; at first the one to improve."""
    words: Ints

    trial: Ints
    """The order under trial."""
    position: Ints
    """The position of each task in the trial order."""
    last_read: Ints
    """The position of the last reader of each value, or of its writer if nothing reads it."""
    slot: Ints
    """The value whose memory each value takes over; itself if it is allocated anew."""
    last_use: Ints
    """The last position that needs the memory of each value."""


Improve: TypeAlias = Callable[[SearchState, int, int], int]
"""`improve` below, interpreted or compiled."""


def improve(t: SearchState, limit: int, seed: int) -> int:
    """Improve the order until it meets the lower bound, or for about `limit` steps.

    Returns its peak in bytes.
    """
    t.words[STATE] = seed
    t.words[STEPS] = 0
    for k in range(len(t.order)):
        t.trial[k] = t.order[k]
        t.position[t.order[k]] = k
    _evaluate(t)
    peak = t.words[PEAK]
    peak_position = t.words[PEAK_POSITION]
    excess = t.words[EXCESS]
    while peak > t.words[LOWER_BOUND] and t.words[STEPS] < limit:
        if _change(t, peak_position):
            _evaluate(t)
            same_peak = t.words[PEAK] == peak
            less_excess = t.words[EXCESS] < excess
            elsewhere = (
                t.words[EXCESS] == excess
                and t.words[LOW] <= peak_position
                and peak_position <= t.words[HIGH]
            )
            if t.words[PEAK] < peak or (same_peak and (less_excess or elsewhere)):
                peak = t.words[PEAK]
                peak_position = t.words[PEAK_POSITION]
                excess = t.words[EXCESS]
                for k in range(t.words[LOW], t.words[HIGH] + 1):
                    t.order[k] = t.trial[k]
            else:
                for k in range(t.words[LOW], t.words[HIGH] + 1):
                    t.trial[k] = t.order[k]
                    t.position[t.order[k]] = k
    return peak


def _evaluate(t: SearchState) -> None:
    """Compute the peak and the excess of the trial order."""
    for position in range(len(t.trial)):
        task = t.trial[position]
        for k in range(t.makes_from[task], t.makes_from[task + 1]):
            t.last_read[t.makes[k]] = position
        for k in range(t.reads_from[task], t.reads_from[task + 1]):
            t.last_read[t.reads[k]] = position
    held_bytes = 0
    t.words[PEAK] = 0
    t.words[EXCESS] = 0
    for position in range(len(t.trial)):
        task = t.trial[position]
        held_bytes += _allocated(t, task, position)
        live_bytes = held_bytes + t.inside[task]
        if live_bytes > t.words[PEAK]:
            t.words[PEAK] = live_bytes
            t.words[PEAK_POSITION] = position
        t.words[EXCESS] += max(0, live_bytes - t.words[LOWER_BOUND])
        held_bytes -= _freed(t, task, position)
    t.words[STEPS] += len(t.trial) + len(t.reads)


def _allocated(t: SearchState, task: int, position: int) -> int:
    """The bytes that a task allocates for its results."""
    dying_slot = -1
    for n in range(t.over_from[task], t.over_from[task + 1]):
        if t.last_use[t.slot[t.over[n]]] == position:
            dying_slot = t.slot[t.over[n]]
    allocated = 0
    for n in range(t.makes_from[task], t.makes_from[task + 1]):
        value = t.makes[n]
        if dying_slot >= 0:
            t.slot[value] = dying_slot
        else:
            t.slot[value] = value
            allocated += t.size[value]
        t.last_use[t.slot[value]] = t.last_read[value]
    return allocated


def _freed(t: SearchState, task: int, position: int) -> int:
    """The bytes that are dead after a task."""
    freed = 0
    for n in range(t.reads_from[task], t.reads_from[task + 1]):
        slot = t.slot[t.reads[n]]
        if t.last_use[slot] == position:
            freed += t.size[slot]
            t.last_use[slot] = -1
    for n in range(t.makes_from[task], t.makes_from[task + 1]):
        slot = t.slot[t.makes[n]]
        if t.last_use[slot] == position:
            freed += t.size[slot]
            t.last_use[slot] = -1
    return freed


# Changes.


def _random(t: SearchState, count: int) -> int:
    """A random number below `count`, from the linear congruential generator of the C standard."""
    state = t.words[STATE] * 1103515245 + 12345
    t.words[STATE] = state - state // 2147483648 * 2147483648
    return t.words[STATE] // 65536 * count // 32768


def _change(t: SearchState, peak_position: int) -> int:
    """Move a random segment of the trial order; 0 if it can move nowhere."""
    t.words[STEPS] += 1
    count = len(t.trial)
    first = _random(t, count)
    if _random(t, 3) > 0:
        reach = 4 + count // 8
        first = min(count - 1, max(0, peak_position - reach + _random(t, 2 * reach + 1)))
    last = first
    if _random(t, 4) == 0:
        last = min(count - 1, first + _random(t, LONGEST))
    if _random(t, 2) == 0:
        return _move_up(t, first, last)
    return _move_down(t, first, last)


def _move_up(t: SearchState, first: int, last: int) -> int:
    """Run a segment later, after some tasks that do not depend on it."""
    end = last + 1
    while end < len(t.trial) and not _depends_on(t, t.trial[end], first, last):
        end += 1
    if end == last + 1:
        return 0
    _rotate(t, first, last + 1, last + 2 + _random(t, end - last - 1))
    return 1


def _depends_on(t: SearchState, task: int, first: int, last: int) -> int:
    """Whether a task depends on one of a segment."""
    t.words[STEPS] += 1
    for n in range(t.before_from[task], t.before_from[task + 1]):
        position = t.position[t.before[n]]
        if first <= position and position <= last:
            return 1
    return 0


def _move_down(t: SearchState, first: int, last: int) -> int:
    """Run a segment earlier, before some tasks on which it does not depend."""
    begin = first - 1
    while begin >= 0 and not _is_needed_by(t, t.trial[begin], first, last):
        begin -= 1
    if begin == first - 1:
        return 0
    _rotate(t, begin + 1 + _random(t, first - begin - 1), first, last + 1)
    return 1


def _is_needed_by(t: SearchState, task: int, first: int, last: int) -> int:
    """Whether one of a segment depends on a task."""
    t.words[STEPS] += 1
    for n in range(t.after_from[task], t.after_from[task + 1]):
        position = t.position[t.after[n]]
        if first <= position and position <= last:
            return 1
    return 0


def _rotate(t: SearchState, low: int, middle: int, high: int) -> None:
    """Swap the positions [low, middle) with [middle, high) in the trial order."""
    for k in range(low, middle):
        t.trial[high - middle + k] = t.order[k]
    for k in range(middle, high):
        t.trial[low + k - middle] = t.order[k]
    for k in range(low, high):
        t.position[t.trial[k]] = k
    t.words[LOW] = low
    t.words[HIGH] = high - 1
