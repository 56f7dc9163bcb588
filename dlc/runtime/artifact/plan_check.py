"""Checks a memory plan without trusting, or sharing a line with, whatever planned it.

No two roots of the arena in use in the same wave overlap, and the arena ends where the last one does;
views lie inside their roots, all addresses that the program uses in roots in use at that time. Bounds
are what they are said to be: so much is in use at once, and so much beside a witness in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlc.runtime.artifact.plan import Plan, Span, Use

MAX_WITNESSES = 16
"""A compiler needs one for each case of sizes; to look at one takes as long as the program is."""


class BadPlan(ValueError):
    """The plan would let one value overwrite another, or promises too much; the message says where."""


class Call(NamedTuple):
    """The roots that a call reads and writes, by number."""

    reads: set[int]
    writes: set[int]
    renews: set[int]
    """Those that it begins to write anew: what was in them before is of no use after it."""


def check(plan: Plan, uses: Sequence[Use]) -> None:
    """Raises BadPlan unless the plan is right for a program with these uses, in order of waves."""
    _check_places(plan)
    witnesses = {number for number in plan.witnesses if 0 <= number < len(uses)}
    if len(witnesses) > MAX_WITNESSES:
        raise BadPlan(f"it has {len(witnesses)} witnesses; at most {MAX_WITNESSES} are looked at")
    most_in_use, calls = _check_waves(plan.roots, uses)
    if plan.order_bound != most_in_use:
        raise BadPlan(f"{most_in_use} bytes are in use at once, the plan says {plan.order_bound}")
    most_held = 0
    for number in witnesses:
        first, last = uses[number].loop or (number, number)
        roots = _held(calls, number, number) | _held(calls, first, last)
        most_held = max(most_held, sum(plan.roots[root].bytes for root in roots))
    if plan.any_order_bound > most_held:
        raise BadPlan(
            f"no witness takes over {most_held} bytes, the plan says {plan.any_order_bound}"
        )


def _check_places(plan: Plan) -> None:
    """Every root lies in the arena, which ends with the last one, and every view in its root."""
    end = max([root.end for root in plan.roots], default=0)
    if plan.arena != end:
        raise BadPlan(f"the arena has {plan.arena} bytes, what lies in it ends at {end}")
    for root in plan.roots:
        if root.bytes < 0 or root.offset < 0 or root.offset % 64 or root.first > root.last:
            raise BadPlan(f"{root} is negative, not at a multiple of 64, or ends before it begins")
    for view in plan.views:
        if not 0 <= view.root < len(plan.roots):
            raise BadPlan(f"the view {view.name} is of a root that does not exist")
        if not 0 <= view.offset <= view.offset + view.bytes <= plan.roots[view.root].bytes:
            raise BadPlan(f"the view {view.name} leaves its root {plan.roots[view.root]}")


def _check_waves(roots: Sequence[Span], uses: Sequence[Use]) -> tuple[int, list[Call]]:
    """Walk through the waves in order: the most bytes in use at once, and the roots of each call.

    A root is in use from before the first call of its first wave to after the last one of its last.
    """
    begins: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    calls_of: dict[int, list[int]] = defaultdict(list)
    for number, root in enumerate(roots):
        if root.bytes:
            begins[root.first].append(number)
            ends[root.last].append(number)
    for number, use in enumerate(uses):
        calls_of[use.wave].append(number)
    arena = _Arena(roots)
    calls = [Call(set(), set(), set())] * len(uses)
    most_in_use = 0
    for wave in sorted({*begins, *calls_of, *ends}):
        for number in begins[wave]:
            arena.begin(number, wave)
        most_in_use = max(most_in_use, arena.in_use)
        for number in calls_of[wave]:
            calls[number] = arena.call(uses[number], wave)
        for number in ends[wave]:
            arena.end(number)
    return most_in_use, calls


class _Arena:
    """The roots that are in use at one moment of the walk."""

    def __init__(self, roots: Sequence[Span]) -> None:
        self._roots = roots
        self._empty = {root.offset for root in roots if not root.bytes}
        """Addresses that an empty root has, though none of the bytes there is its own."""
        self._alive: list[tuple[int, int]] = []
        """Offset and number of each root in use, in the order of their offsets; no two overlap."""
        self.in_use = 0
        """Their bytes."""

    def begin(self, number: int, wave: int) -> None:
        """A root comes into use; raises BadPlan where it overlaps one that is."""
        root = self._roots[number]
        place = bisect_right(self._alive, (root.offset, number))
        for _, neighbour in self._alive[max(0, place - 1) : place + 1]:
            other = self._roots[neighbour]
            if other.offset < root.end and root.offset < other.end:
                raise BadPlan(f"{other} and {root} overlap in wave {wave}")
        self._alive.insert(place, (root.offset, number))
        self.in_use += root.bytes

    def end(self, number: int) -> None:
        """A root is no longer in use."""
        root = self._roots[number]
        del self._alive[bisect_right(self._alive, (root.offset, number)) - 1]
        self.in_use -= root.bytes

    def call(self, use: Use, wave: int) -> Call:
        """The roots of a call; raises BadPlan for an address that is in none of those in use."""
        reads, writes = self._owners(use.reads, wave), self._owners(use.writes, wave)
        renews = {root for root in writes - reads if self._roots[root].offset in use.writes}
        return Call(reads, writes, renews)

    def _owners(self, addresses: Iterable[int], wave: int) -> set[int]:
        """The roots that addresses lie in, without those of empty roots."""
        owners: set[int] = set()
        for address in addresses:
            below = bisect_right(self._alive, (address, len(self._roots))) - 1
            number = self._alive[below][1] if below >= 0 else None
            if number is not None and address < self._roots[number].end:
                owners.add(number)
            elif address not in self._empty:
                raise BadPlan(
                    f"byte {address} of the arena is used in wave {wave} by nobody's leave"
                )
        return owners


def _held(calls: Sequence[Call], first: int, last: int) -> set[int]:
    """The roots that a call, or all of a loop with others, needs beside it in any order.

    These are what it reads and writes, and what its predecessors made for its successors. A call follows
    another one if it reads a root that the other one wrote, directly or by way of others.
    """
    before, within, after = calls[:first], calls[first : last + 1], calls[last + 1 :]
    reads, writes, renews = (set[int]().union(*roots) for roots in zip(*within, strict=True))
    made = _made_for_others(before, reads, renews - reads)
    held = _read_by_successors(after, writes, made)
    own = reads | writes
    if first < last:  # of a loop, only what others see
        own &= set[int]().union(*[call.reads | call.writes for call in [*before, *after]])
    return held | own


def _made_for_others(before: Sequence[Call], reads: set[int], renewed: set[int]) -> set[int]:
    """The roots in which predecessors of a call that reads these have left something for later.

    What is `renewed` from then on is something else.
    """
    needed, made, renewed = set(reads), set[int](), set(renewed)
    for call in reversed(before):
        if needed & call.writes:
            made |= call.writes - renewed
            needed = (needed - call.renews) | call.reads
        renewed |= call.renews
    return made


def _read_by_successors(after: Sequence[Call], writes: set[int], made: set[int]) -> set[int]:
    """Those of `made` that successors of a call which writes these read before they are renewed."""
    followed, made, held = set(writes), set(made), set[int]()
    for call in after:
        if followed & call.reads:
            held |= made & call.reads
            followed |= call.writes
        else:
            followed -= call.renews
        made -= call.renews
    return held
