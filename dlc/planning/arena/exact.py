"""Branch and bound: can these buffers be placed below a capacity, and where?

If any placement exists, so does one in which each buffer lies on the floor or on another buffer: one with
the least sum of offsets. This is a depth-first search for such a placement. A *section* is a maximal set
of buffers that are live together, a maximal clique of the interval graph, which has at most one for each
interval (Gavril 1972). `low` is a lower bound on the offset of an unplaced buffer. Each step places a
buffer whose `low` is the lowest of all at that offset; if this fails, the buffer lies higher, on some
unplaced buffer that it overlaps in time.

Sections, their bounds, the search from the lowest offset up and its decomposition are MiniMalloc's
(Moffitt, ASPLOS 2023). The tree is pruned by four rules:

- in each section the unplaced buffers lie above the lowest `low` of them, its `floor`, and the sum of their
  sizes must fit between that and the capacity;
- a buffer with nothing under its `low` is lifted;
- no buffer may cover a gap into which an unplaced buffer would fit unhindered;
- once no unplaced buffer crosses a moment, the parts before and after it are searched separately, and if
one
  has no placement the others are not searched.

It branches in the section, among those of the lowest buffers, where fewest of them can be next. There it
takes a buffer that fills the gap between its neighbours on both sides, or on one, and of those the first
in the order given, so that no narrow gaps are left.

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
"""The outcomes of a search; UNKNOWN if it reached its limit."""

STEPS = 0
"""Word of `words`: the buffers and sections visited, in proportion to the time."""
TRAIL, PENDING, IS_DEAD, IS_FULL = 1, 2, 3, 4
"""Words of `words`: the lengths of the undo trail and of the list of pending parts; whether the decisions
so far allow no placement; whether the trail is full."""
NONE = -1


@dataclass(frozen=True, slots=True)
class Tables:
    """The input and the state of a search; built by `dlc.planning.arena.problem`.

    Buffer `i` is in the sections [`first[i]`, `end[i]`). Lists of lists are flat, with the index at which
    each begins.
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
    """The buffers in the order in which they are tried."""

    offset: Ints
    """The placement, if one is found."""
    words: Ints

    # By buffer; the index after the last is the head of the linked list of unplaced buffers, in order.
    low: Ints
    next: Ints
    before: Ints
    is_placed: Ints

    # By section.
    floor: Ints
    top: Ints
    """The end of its highest placed buffer."""
    load: Ints
    """The total size of its unplaced buffers."""
    crossing: Ints
    """How many unplaced buffers are in this section and in the next one."""
    choices: Ints
    """How many buffers may be placed next in it."""
    is_stale: Ints

    # The undo trail: placements, and old values of `low`, `floor` and `top`.
    undo_kind: Ints
    undo_index: Ints
    undo_value: Ints

    # The stack of decisions, each about the sections from `begin` to `stop`.
    begin: Ints
    stop: Ints
    parent: Ints
    chosen: Ints
    trail: Ints
    rest: Ints
    pending: Ints

    # The linked list of parts still to be searched.
    part_begin: Ints
    part_stop: Ints
    part_parent: Ints
    part_next: Ints


Search: TypeAlias = Callable[[Tables, int, int], int]
"""`search` below, interpreted or compiled."""

_PLACED, _LOW, _FLOOR, _TOP = 0, 1, 2, 3


def search(t: Tables, capacity: int, limit: int) -> int:
    """Look for a placement below `capacity` in about `limit` steps.

    Returns FOUND, with the placement in `offset`; IMPOSSIBLE; or UNKNOWN. The steps are in `words[STEPS]`.
    """
    _start(t)
    top = _open(t, NONE, _split(t, 0, len(t.floor), NONE, NONE))
    while top != NONE:
        buffer = _next_choice(t, top, capacity)
        if t.words[IS_FULL] or t.words[STEPS] >= limit:
            return UNKNOWN
        if t.words[IS_DEAD]:
            top = t.parent[top]
            if top == NONE:
                return IMPOSSIBLE
            buffer = t.chosen[top]
            _take_back(t, t.trail[top])
            t.words[PENDING] = t.pending[top]
            _lift(t, buffer, capacity)
            continue
        t.trail[top] = t.words[TRAIL]
        t.chosen[top] = buffer
        t.offset[buffer] = t.low[buffer]
        if not _leaves_room(t, buffer):
            _put(t, buffer, capacity)
            if not t.words[IS_DEAD]:
                top = _open(t, top, _split(t, t.begin[top], t.stop[top], top, t.rest[top]))
                continue
            _take_back(t, t.trail[top])
        _lift(t, buffer, capacity)
    return FOUND


def _start(t: Tables) -> None:
    count = len(t.order)
    for k in range(len(t.words)):
        t.words[k] = 0
    for s in range(len(t.floor)):
        t.floor[s] = 0
        t.top[s] = 0
        t.load[s] = 0
        t.crossing[s] = 0
        t.is_stale[s] = 0
    last = count
    for k in range(count):
        i = t.order[k]
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


def _open(t: Tables, top: int, part: int) -> int:
    """Push a decision about a part; NONE if there is no part."""
    if part == NONE:
        return NONE
    top += 1
    t.begin[top] = t.part_begin[part]
    t.stop[top] = t.part_stop[part]
    t.parent[top] = t.part_parent[part]
    t.rest[top] = t.part_next[part]
    t.pending[top] = t.words[PENDING]
    return top


# What to decide.


def _next_choice(t: Tables, top: int, capacity: int) -> int:
    """The buffer to be placed next in a part; NONE if it has no placement."""
    lowest = NONE
    while lowest == NONE:
        if t.words[IS_DEAD] or t.words[IS_FULL]:
            return NONE
        lowest = _lowest(t, t.begin[top], t.stop[top], capacity)
    section = _section(t, t.begin[top], t.stop[top], capacity)
    best = NONE
    most = -1
    i = t.next[len(t.order)]
    while i != len(t.order):
        if t.low[i] == lowest and t.first[i] <= section and section < t.end[i]:
            walls = _walls(t, i, t.begin[top], t.stop[top])
            if walls > most:
                most = walls
                best = i
        i = t.next[i]
    return best


def _lowest(t: Tables, begin: int, stop: int, capacity: int) -> int:
    """The lowest `low` in a part; also counts the buffers that could lie there in each section.

    NONE if some of them had nothing under them: they are lifted, and the search for the lowest repeats.
    """
    lowest = capacity + 1
    i = t.next[len(t.order)]
    while i != len(t.order):
        if t.low[i] < lowest and begin <= t.first[i] and t.end[i] <= stop:
            lowest = t.low[i]
        i = t.next[i]
    for s in range(begin, stop):
        t.choices[s] = 0
    t.words[STEPS] += len(t.order)
    lifted = 0
    i = t.next[len(t.order)]
    while i != len(t.order):
        if t.low[i] == lowest and begin <= t.first[i] and t.end[i] <= stop:
            if _aligned(t, i, _highest_top(t, i)) != lowest:
                _lift(t, i, capacity)
                lifted = 1
            for s in range(t.first[i], t.end[i]):
                t.choices[s] += 1
        i = t.next[i]
    return NONE if lifted else lowest


def _section(t: Tables, begin: int, stop: int, capacity: int) -> int:
    """The section in which to branch: that of fewest choices, and among those of least free space."""
    section = NONE
    least = 0
    most = 0
    for s in range(begin, stop):
        if t.choices[s] > 0:
            needed = t.floor[s] + t.load[s]
            choices = t.choices[s] + (needed < capacity)
            is_less = choices < least or (choices == least and needed > most)
            if section == NONE or is_less:
                section = s
                least = choices
                most = needed
    return section


def _walls(t: Tables, buffer: int, begin: int, stop: int) -> int:
    """On how many sides a buffer at its `low` would leave no gap beside it."""
    before = t.first[buffer] - 1
    behind = t.end[buffer]
    at_begin = before < begin or t.floor[before] != t.low[buffer]
    at_stop = behind >= stop or t.floor[behind] != t.low[buffer]
    return at_begin + at_stop


def _highest_top(t: Tables, buffer: int) -> int:
    """The end of the highest buffer placed in its sections."""
    most = 0
    for s in range(t.first[buffer], t.end[buffer]):
        most = max(most, t.top[s])
    t.words[STEPS] += t.end[buffer] - t.first[buffer]
    return most


def _leaves_room(t: Tables, buffer: int) -> int:
    """Whether a buffer at its `low` would cover a gap into which an unplaced one fits."""
    at = t.low[buffer]
    least = at
    for s in range(t.first[buffer], t.end[buffer]):
        least = min(least, t.top[s])
    for k in range(t.meets_from[buffer], t.meets_from[buffer + 1]):
        i = t.meets[k]
        is_within = t.first[buffer] <= t.first[i] and t.end[i] <= t.end[buffer]
        if t.is_placed[i] or not is_within or least + t.size[i] > at:
            continue
        if _aligned(t, i, _highest_top(t, i)) + t.size[i] <= at:
            return 1
    return 0


def _aligned(t: Tables, buffer: int, offset: int) -> int:
    """The offset rounded up to the alignment of a buffer."""
    return (offset + t.alignment[buffer] - 1) // t.alignment[buffer] * t.alignment[buffer]


# Deciding.


def _put(t: Tables, buffer: int, capacity: int) -> None:
    """Place a buffer at its `low` and raise what must lie above it."""
    above = t.low[buffer] + t.size[buffer]
    from_section = t.first[buffer]
    to_section = t.end[buffer]
    _mark(t, _PLACED, buffer, 0)
    t.is_placed[buffer] = 1
    t.low[buffer] = capacity  # so that it is never the lowest again
    t.next[t.before[buffer]] = t.next[buffer]
    t.before[t.next[buffer]] = t.before[buffer]
    for s in range(from_section, to_section):
        t.load[s] -= t.size[buffer]
        t.is_stale[s] = 1
        _mark(t, _TOP, s, t.top[s])
        t.top[s] = above
        if s + 1 < to_section:
            t.crossing[s] -= 1
    t.words[STEPS] += t.meets_from[buffer + 1] - t.meets_from[buffer]
    for k in range(t.meets_from[buffer], t.meets_from[buffer + 1]):
        i = t.meets[k]
        if t.is_placed[i] == 0 and t.low[i] < above:
            _raise(t, i, _aligned(t, i, above), capacity)
            from_section = min(from_section, t.first[i])
            to_section = max(to_section, t.end[i])
    for s in range(from_section, to_section):
        _settle(t, s, capacity)


def _lift(t: Tables, buffer: int, capacity: int) -> None:
    """Raise the `low` of a buffer that does not lie there: it lies on an unplaced one."""
    low = capacity
    for k in range(t.meets_from[buffer], t.meets_from[buffer + 1]):
        i = t.meets[k]
        if t.is_placed[i] == 0:
            low = min(low, t.low[i] + t.size[i])
    t.words[STEPS] += t.meets_from[buffer + 1] - t.meets_from[buffer]
    _raise(t, buffer, _aligned(t, buffer, max(low, t.low[buffer] + 1)), capacity)
    for s in range(t.first[buffer], t.end[buffer]):
        _settle(t, s, capacity)


def _raise(t: Tables, buffer: int, low: int, capacity: int) -> None:
    """Raise the `low` of a buffer."""
    for s in range(t.first[buffer], t.end[buffer]):
        if t.floor[s] == t.low[buffer]:
            t.is_stale[s] = 1
    t.words[STEPS] += t.end[buffer] - t.first[buffer]
    _mark(t, _LOW, buffer, t.low[buffer])
    t.low[buffer] = low
    if low + t.size[buffer] > capacity:
        t.words[IS_DEAD] = 1


def _settle(t: Tables, section: int, capacity: int) -> None:
    """Recompute the floor of a section that may have changed, and check that its load still fits."""
    if t.is_stale[section] == 0:
        return
    t.is_stale[section] = 0
    if t.words[IS_DEAD] or t.load[section] == 0:
        return
    t.words[STEPS] += t.members_from[section + 1] - t.members_from[section]
    floor = capacity
    for k in range(t.members_from[section], t.members_from[section + 1]):
        floor = min(floor, t.low[t.members[k]])
    if floor != t.floor[section]:
        _mark(t, _FLOOR, section, t.floor[section])
        t.floor[section] = floor
    if floor + t.load[section] > capacity:
        t.words[IS_DEAD] = 1


# Taking back.


def _mark(t: Tables, kind: int, index: int, value: int) -> None:
    at = t.words[TRAIL]
    if at == len(t.undo_kind):
        t.words[IS_FULL] = 1
        return
    t.undo_kind[at] = kind
    t.undo_index[at] = index
    t.undo_value[at] = value
    t.words[TRAIL] = at + 1


def _take_back(t: Tables, mark: int) -> None:
    """Undo everything since the trail was `mark` long, the latest first."""
    t.words[IS_DEAD] = 0
    while t.words[TRAIL] > mark:
        t.words[TRAIL] -= 1
        at = t.words[TRAIL]
        index = t.undo_index[at]
        if t.undo_kind[at] == _LOW:
            t.low[index] = t.undo_value[at]
        elif t.undo_kind[at] == _FLOOR:
            t.floor[index] = t.undo_value[at]
        elif t.undo_kind[at] == _TOP:
            t.top[index] = t.undo_value[at]
        else:
            _unplace(t, index)


def _unplace(t: Tables, buffer: int) -> None:
    t.is_placed[buffer] = 0
    t.low[buffer] = t.offset[buffer]
    t.next[t.before[buffer]] = buffer
    t.before[t.next[buffer]] = buffer
    for s in range(t.first[buffer], t.end[buffer]):
        t.load[s] += t.size[buffer]
        if s + 1 < t.end[buffer]:
            t.crossing[s] += 1
