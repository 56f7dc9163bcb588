"""Checks a memory plan without trusting, or sharing a line with, whatever planned it.

No two stretches of the arena in use in the same epoch overlap, and the arena ends where the last one does;
views lie inside their roots, all addresses that the program uses in stretches in use at that time. Bounds
are what they are said to be: so much is in use at once, and so much beside a witness in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from dlc.runtime.plan import Plan, Span, Use

MAX_WITNESSES = 16
"""A compiler needs one for each case of sizes; to look at one takes as long as the program is."""

Call = tuple[set[int], set[int], set[int]]  # roots that it reads, writes, and begins to write anew


class BadPlan(ValueError):
    """The plan would let one value overwrite another, or promises too much; the message says where."""


def check(plan: Plan, uses: Sequence[Use]) -> None:
    """Raises BadPlan unless the plan is right for a program with these uses, in order of epochs."""
    if plan.arena != (end := max([root.end for root in plan.roots], default=0)):
        raise BadPlan(f"the arena has {plan.arena} bytes, what lies in it ends at {end}")
    for root in plan.roots:
        if root.bytes < 0 or root.offset < 0 or root.offset % 64 or root.first > root.last:
            raise BadPlan(f"{root} is negative, not at a multiple of 64, or ends before it begins")
    for view in plan.views:
        if not 0 <= view.root < len(plan.roots):
            raise BadPlan(f"the view {view.name} is of a root that does not exist")
        if not 0 <= view.offset <= view.offset + view.bytes <= plan.roots[view.root].bytes:
            raise BadPlan(f"the view {view.name} leaves its root {plan.roots[view.root]}")
    witnesses = {at for at in plan.witnesses if 0 <= at < len(uses)}
    if len(witnesses) > MAX_WITNESSES:
        raise BadPlan(f"it has {len(witnesses)} witnesses; at most {MAX_WITNESSES} are looked at")
    in_use, calls = _check_epochs(plan.roots, uses)
    if plan.order_bound != in_use:
        raise BadPlan(f"{in_use} bytes are in use at once, the plan says {plan.order_bound}")
    held = 0
    for at in witnesses:
        there = _held(calls, at, at) | _held(calls, *(uses[at].loop or (at, at)))
        held = max(held, sum(plan.roots[index].bytes for index in there))
    if plan.any_order_bound > held:
        raise BadPlan(f"no witness takes over {held} bytes, the plan says {plan.any_order_bound}")


def _check_epochs(roots: Sequence[Span], uses: Sequence[Use]) -> tuple[int, list[Call]]:
    """Walk the epochs: the most bytes in use at once, and the roots that each call reads and writes."""
    events = [(use.epoch, 1, index) for index, use in enumerate(uses)]
    for index, root in enumerate(roots):
        events += [(root.first, 0, index), (root.last, 2, index)] if root.bytes else []
    empty = {root.offset for root in roots if not root.bytes}  # which has an address, nobody's
    alive: list[tuple[int, int]] = []  # offset and index of what is in use, in order of place
    calls: list[Call] = [(set(), set(), set())] * len(uses)
    in_use = most = 0

    def owner(address: int) -> int:
        below = bisect_right(alive, (address, len(roots))) - 1
        if below >= 0 and address < roots[alive[below][1]].end:
            return alive[below][1]
        if address in empty:
            return -1
        raise BadPlan(f"byte {address} of the arena is used in epoch {epoch} by nobody's leave")

    for epoch, event, index in sorted(events):
        if event == 1:
            reads, writes = ({*map(owner, at)} - {-1} for at in uses[index][1:3])
            anew = {root for root in writes - reads if roots[root].offset in uses[index].writes}
            calls[index] = reads, writes, anew
            continue
        place = bisect_right(alive, (roots[index].offset, index))
        if event == 2:
            del alive[place - 1]
            in_use -= roots[index].bytes
            continue
        for _, other in alive[max(0, place - 1) : place + 1]:
            if roots[other].offset < roots[index].end and roots[index].offset < roots[other].end:
                raise BadPlan(f"{roots[other]} and {roots[index]} overlap in epoch {epoch}")
        alive.insert(place, (roots[index].offset, index))
        most = max(most, in_use := in_use + roots[index].bytes)
    return most, calls


def _held(calls: Sequence[Call], first: int, last: int) -> set[int]:
    """What a call, or all of a loop with others, reads, writes and stands between in any order."""
    reads, writes, anew = ({r for c in calls[first : last + 1] for r in c[k]} for k in range(3))
    needed, made, held, follows = set(reads), set[int](), set[int](), set(writes)
    anew -= reads  # what is written anew is something else from then on
    for read, written, new in reversed(calls[:first]):
        if needed & written:
            made |= written - anew
            needed = (needed - new) | read
        anew |= new
    for read, written, new in calls[last + 1 :]:
        held |= made & read if follows & read else set()
        follows = follows | written if follows & read else follows - new
        made -= new
    if first < last:  # of a loop, only what others see
        others = set[int]().union(*(a | b for a, b, _ in [*calls[:first], *calls[last + 1 :]]))
        return held | (reads | writes) & others
    return held | reads | writes
