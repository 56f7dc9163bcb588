"""Checks a memory plan without trusting, or sharing a line with, whatever planned it.

No two stretches of the arena in use in the same epoch overlap; the arena ends where the last one does;
views lie inside their roots; every address that the program uses lies in a stretch in use at that time.

>>> check(Plan(128, [Span("a", 0, 64, 0, 1), Span("b", 64, 64, 1, 2), Span("c", 0, 64, 2, 2)], []))
>>> check(Plan(128, [Span("a", 0, 128, 0, 1), Span("b", 64, 64, 1, 2)], []))
Traceback (most recent call last):
    ...
dlc.runtime.plan_check.BadPlan: a (bytes 0 to 128) and b (bytes 64 to 128) overlap in epoch 1
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class BadPlan(ValueError):
    """The plan would let one value overwrite another; the message names them."""


class Span(NamedTuple):
    """A stretch of the arena, in use from epoch `first` to epoch `last`, both included."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def __str__(self) -> str:
        return f"{self.name} (bytes {self.offset} to {self.end})"


class Extent(NamedTuple):
    """A view: bytes inside root number `root`."""

    name: str
    root: int
    offset: int
    bytes: int


class Plan(NamedTuple):
    """A memory plan in numbers."""

    arena: int
    roots: Sequence[Span]
    views: Sequence[Extent]


def check(plan: Plan, uses: Iterable[tuple[int, int]] = ()) -> None:
    """Raises BadPlan unless the plan is right; each use is an epoch and an offset into the arena."""
    end = max((root.end for root in plan.roots), default=0)
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
    # An empty value has an address too, which belongs to nobody.
    empty = {root.offset for root in plan.roots if not root.bytes}
    _check_overlaps(
        [root for root in plan.roots if root.bytes], [u for u in uses if u[1] not in empty]
    )


def _check_overlaps(roots: Sequence[Span], uses: Sequence[tuple[int, int]]) -> None:
    """Walk the epochs in which something begins, is used or ends; keep what is in use in order of place."""
    begins = [(root.first, 0, index) for index, root in enumerate(roots)]
    ends = [(root.last, 2, index) for index, root in enumerate(roots)]
    alive: list[tuple[int, int]] = []  # offset, index
    for epoch, event, subject in sorted([*begins, *((e, 1, at) for e, at in uses), *ends]):
        if event == 1:
            below = bisect_right(alive, (subject, len(roots))) - 1
            if below < 0 or subject >= roots[alive[below][1]].end:
                raise BadPlan(
                    f"byte {subject} of the arena is used in epoch {epoch} by nobody's leave"
                )
            continue
        root = roots[subject]
        place = bisect_right(alive, (root.offset, subject))
        if event == 2:
            del alive[place - 1]
            continue
        for _, other in alive[max(0, place - 1) : place + 1]:
            if roots[other].offset < root.end and root.offset < roots[other].end:
                raise BadPlan(f"{roots[other]} and {root} overlap in epoch {epoch}")
        alive.insert(place, (root.offset, subject))
