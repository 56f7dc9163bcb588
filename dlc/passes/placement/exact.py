"""The exact search: can these buffers be placed below a capacity, and where?

It is a depth-first search in the manner of MiniMalloc (Moffitt, ASPLOS 2023). Buffers are put down from
the lowest offset to the highest, each on the floor or on another, so an unplaced buffer lies no lower
than what is under it: that is its `low`. A *section* is a set of buffers alive together, and all there
are (Gavril 1972: an interval graph has no more than one such set per interval). What cuts the tree:

- no buffer starts at or above the lowest end that an unplaced one could have: that one fits below;
- equal offsets are taken in the order given (`rank`), so that no placement is met twice;
- in each section the unplaced buffers lie above the lowest `low` of them and above what was placed
  last, so that offset and the sum of their sizes may not exceed the capacity;
- when no unplaced buffer crosses a moment any more, the parts before and after it are searched apart,
  and if one has no placement the others are not looked at.

Everything is an integer or an array of them: `dlc.codegen.integer_functions` compiles this file to
machine code, which gives the same answers some three hundred times as fast.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Ints: TypeAlias = "array[int]"

IMPOSSIBLE, FOUND, UNKNOWN = 0, 1, 2
"""What a search may say; the last one where its limit was reached."""

STEPS = 0
"""Word of `words`: how many buffers and sections were looked at; the time that it takes goes by that."""
TRAIL, PENDING = 1, 2
"""Words of `words`: how much of the trail and of the pending parts is in use."""
NONE = -1


@dataclass(frozen=True, slots=True)
class Tables:
    """What a search reads and where it keeps its state; made by `dlc.passes.placement.problem`.

    Buffer `i` is in the sections `first[i]` to before `end[i]`. Lists of lists are flat, with the
    place where each begins.
    """

    size: Ints
    alignment: Ints
    first: Ints
    end: Ints
    meets: Ints
    meets_from: Ints
    members: Ints
    members_from: Ints
    order: Ints
    """The buffers in the order in which equal offsets are tried."""
    rank: Ints
    """The place of each buffer in it."""

    offset: Ints
    """The answer, where there is one."""
    words: Ints

    # By buffer; one more than there are heads the list of the unplaced.
    low: Ints
    next: Ints
    before: Ints
    is_placed: Ints

    # By section.
    floor: Ints
    load: Ints
    """The sizes of its unplaced buffers together."""
    crossing: Ints
    """How many unplaced buffers are in this section and in the next one."""
    is_stale: Ints

    # What to take back: a buffer placed, or an older `low` or `floor`.
    undo_kind: Ints
    undo_index: Ints
    undo_value: Ints

    # Decisions taken, one on top of the other, each about the sections from `begin` to `stop`.
    begin: Ints
    stop: Ints
    parent: Ints
    at: Ints
    chosen: Ints
    ceiling: Ints
    trail: Ints
    rest: Ints
    pending: Ints

    # Parts still to be searched, as a list in which each knows the one after it.
    part_begin: Ints
    part_stop: Ints
    part_parent: Ints
    part_next: Ints


Search: TypeAlias = Callable[[Tables, int, int], int]
"""`search` below, or the same compiled."""

_PLACED, _LOW, _FLOOR = 0, 1, 2


def search(t: Tables, capacity: int, limit: int) -> int:
    """Look for a placement below `capacity` in about `limit` steps.

    Gives FOUND, with the answer in `offset`; IMPOSSIBLE; or UNKNOWN. The steps are in `words[STEPS]`.
    """
    _start(t)
    top = _open(t, NONE, _split(t, 0, len(t.floor), NONE, NONE), capacity)
    while top != NONE:
        buffer = _next_choice(t, top)
        if buffer == NONE:
            top = t.parent[top]
            if top == NONE:
                return IMPOSSIBLE
            _take_back(t, t.trail[top])
            t.words[PENDING] = t.pending[top]
            continue
        if t.words[STEPS] >= limit or t.words[TRAIL] + len(t.low) + len(t.floor) > len(t.undo_kind):
            return UNKNOWN
        t.words[STEPS] += len(t.order)
        t.at[top] = t.low[buffer]
        t.chosen[top] = buffer
        if not _has_room(t, buffer, capacity):
            continue
        if _put(t, buffer, capacity):
            t.offset[buffer] = t.at[top]
            top = _open(t, top, _parts_after(t, top, buffer), capacity)
        else:
            _take_back(t, t.trail[top])
    return FOUND


def _start(t: Tables) -> None:
    count = len(t.order)
    t.words[STEPS] = 0
    t.words[TRAIL] = 0
    t.words[PENDING] = 0
    for s in range(len(t.floor)):
        t.floor[s] = 0
        t.load[s] = 0
        t.crossing[s] = 0
        t.is_stale[s] = 0
    last = count
    for k in range(count):
        i = t.order[k]
        t.rank[i] = k
        t.low[i] = 0
        t.is_placed[i] = 0
        t.next[last] = i
        t.before[i] = last
        last = i
        for s in range(t.first[i], t.end[i]):
            t.load[s] += t.size[i]
            if s + 1 < t.end[i]:
                t.crossing[s] += 1
    t.next[last] = count
    t.before[count] = last


# Parts.


def _split(t: Tables, begin: int, stop: int, parent: int, rest: int) -> int:
    """The parts of these sections that share no unplaced buffer, as a list in front of `rest`."""
    last = stop
    for back in range(stop - begin):
        s = stop - 1 - back
        if s == begin or t.crossing[s - 1] == 0:
            if t.load[s] > 0:
                part = t.words[PENDING]
                t.words[PENDING] += 1
                t.part_begin[part] = s
                t.part_stop[part] = last
                t.part_parent[part] = parent
                t.part_next[part] = rest
                rest = part
            last = s
    return rest


def _parts_after(t: Tables, top: int, buffer: int) -> int:
    """The parts to be searched when a decision has placed a buffer."""
    return _split(t, t.begin[top], t.stop[top], top, t.rest[top])


def _open(t: Tables, top: int, part: int, capacity: int) -> int:
    """Begin to decide about a part, on top of the decisions so far; NONE if there is no part."""
    if part == NONE:
        return NONE
    top += 1
    begin = t.part_begin[part]
    stop = t.part_stop[part]
    parent = t.part_parent[part]
    t.begin[top] = begin
    t.stop[top] = stop
    t.parent[top] = parent
    t.at[top] = NONE if parent == NONE else t.at[parent]
    t.chosen[top] = NONE if parent == NONE else t.chosen[parent]
    t.trail[top] = t.words[TRAIL]
    t.rest[top] = t.part_next[part]
    t.pending[top] = t.words[PENDING]
    t.ceiling[top] = _ceiling(t, begin, stop, capacity)
    return top


def _ceiling(t: Tables, begin: int, stop: int, capacity: int) -> int:
    """The highest offset at which the next buffer of a part may be put."""
    most = 0
    for s in range(begin, stop):
        most = max(most, t.load[s])
    ceiling = capacity - most
    i = t.next[len(t.order)]
    while i != len(t.order):
        if begin <= t.first[i] and t.end[i] <= stop:
            ceiling = min(ceiling, t.low[i] + t.size[i] - 1)
        i = t.next[i]
    return ceiling


# Buffers.


def _next_choice(t: Tables, top: int) -> int:
    """The unplaced buffer after the one chosen last, by offset and then by rank; NONE after the last."""
    begin = t.begin[top]
    stop = t.stop[top]
    at = t.at[top]
    rank = NONE if t.chosen[top] == NONE else t.rank[t.chosen[top]]
    best = NONE
    lowest = t.ceiling[top] + 1
    i = t.next[len(t.order)]
    while i != len(t.order):
        low = t.low[i]
        is_later = low > at or (low == at and t.rank[i] > rank)
        if low < lowest and is_later and begin <= t.first[i] and t.end[i] <= stop:
            best = i
            lowest = low
        i = t.next[i]
    return best


def _has_room(t: Tables, buffer: int, capacity: int) -> int:
    """Whether in each of its sections the unplaced buffers fit above where it would start."""
    most = capacity - t.low[buffer]
    for s in range(t.first[buffer], t.end[buffer]):
        if t.load[s] > most:
            return 0
    return 1


def _put(t: Tables, buffer: int, capacity: int) -> int:
    """Place a buffer at its `low` and raise what must lie above it; whether all may still fit."""
    above = t.low[buffer] + t.size[buffer]
    from_section = t.first[buffer]
    to_section = t.end[buffer]
    _mark(t, _PLACED, buffer, 0)
    t.is_placed[buffer] = 1
    t.next[t.before[buffer]] = t.next[buffer]
    t.before[t.next[buffer]] = t.before[buffer]
    for s in range(from_section, to_section):
        t.load[s] -= t.size[buffer]
        t.is_stale[s] = 1
        if s + 1 < t.end[buffer]:
            t.crossing[s] -= 1
    t.words[STEPS] += t.meets_from[buffer + 1] - t.meets_from[buffer]
    fits = 1
    for k in range(t.meets_from[buffer], t.meets_from[buffer + 1]):
        i = t.meets[k]
        if t.is_placed[i] or t.low[i] >= above:
            continue
        low = (above + t.alignment[i] - 1) // t.alignment[i] * t.alignment[i]
        for s in range(t.first[i], t.end[i]):
            if t.floor[s] == t.low[i]:
                t.is_stale[s] = 1
        t.words[STEPS] += t.end[i] - t.first[i]
        from_section = min(from_section, t.first[i])
        to_section = max(to_section, t.end[i])
        _mark(t, _LOW, i, t.low[i])
        t.low[i] = low
        if low + t.size[i] > capacity:
            fits = 0
            break
    for s in range(from_section, to_section):
        if t.is_stale[s]:
            t.is_stale[s] = 0
            if fits and t.load[s] > 0:
                fits = _raise_floor(t, s, capacity)
    return fits


def _raise_floor(t: Tables, section: int, capacity: int) -> int:
    """Find the lowest `low` in a section again; whether its unplaced buffers may still fit."""
    t.words[STEPS] += t.members_from[section + 1] - t.members_from[section]
    floor = capacity
    for k in range(t.members_from[section], t.members_from[section + 1]):
        i = t.members[k]
        if not t.is_placed[i]:
            floor = min(floor, t.low[i])
    if floor != t.floor[section]:
        _mark(t, _FLOOR, section, t.floor[section])
        t.floor[section] = floor
    return floor + t.load[section] <= capacity


# Taking back.


def _mark(t: Tables, kind: int, index: int, value: int) -> None:
    at = t.words[TRAIL]
    t.undo_kind[at] = kind
    t.undo_index[at] = index
    t.undo_value[at] = value
    t.words[TRAIL] = at + 1


def _take_back(t: Tables, mark: int) -> None:
    """Undo everything since the trail was `mark` long, the latest first."""
    while t.words[TRAIL] > mark:
        t.words[TRAIL] -= 1
        at = t.words[TRAIL]
        index = t.undo_index[at]
        if t.undo_kind[at] == _LOW:
            t.low[index] = t.undo_value[at]
        elif t.undo_kind[at] == _FLOOR:
            t.floor[index] = t.undo_value[at]
        else:
            _unplace(t, index)


def _unplace(t: Tables, buffer: int) -> None:
    t.is_placed[buffer] = 0
    t.next[t.before[buffer]] = buffer
    t.before[t.next[buffer]] = buffer
    for s in range(t.first[buffer], t.end[buffer]):
        t.load[s] += t.size[buffer]
        if s + 1 < t.end[buffer]:
            t.crossing[s] += 1
