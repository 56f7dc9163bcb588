"""Checks a memory plan without trusting, or sharing a line with, whatever planned it.

No two stretches of the arena in use in the same epoch overlap; the arena ends where the last one does;
views lie inside their roots; every address that the program uses lies in a stretch in use at that time.
The bounds are what they are said to be: as much is in use at once, and some call takes at least as much.

>>> a, b = Span("a", 0, 64, 0, 1), Span("b", 64, 64, 1, 2)
>>> check(Plan(128, 128, 64, [a, b, Span("c", 0, 64, 2, 2)], []), [Use(1, (0, 64))])
>>> check(Plan(128, 192, 0, [a._replace(bytes=128), b], []), [])
Traceback (most recent call last):
    ...
dlc.runtime.plan_check.BadPlan: a (bytes 0 to 128) and b (bytes 64 to 128) overlap in epoch 1
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from typing import NamedTuple


class BadPlan(ValueError):
    """The plan would let one value overwrite another, or promises too much; the message says where."""


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


class Use(NamedTuple):
    """A call in an epoch, and the addresses in the arena that it is given."""

    epoch: int
    addresses: Sequence[int]


class Plan(NamedTuple):
    """A memory plan in numbers; `order_bound` and `any_order_bound` are bytes, as `arena` is."""

    arena: int
    order_bound: int
    any_order_bound: int
    roots: Sequence[Span]
    views: Sequence[Extent]


def check(plan: Plan, uses: Sequence[Use]) -> None:
    """Raises BadPlan unless the plan is right for a program with these uses."""
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
    in_use, by_call = _check_epochs(plan.roots, uses)
    if plan.order_bound != in_use:
        raise BadPlan(f"{in_use} bytes are in use at once, the plan says {plan.order_bound}")
    if plan.any_order_bound > by_call:
        raise BadPlan(
            f"no call takes more than {by_call} bytes, the plan says {plan.any_order_bound}"
        )


def _check_epochs(roots: Sequence[Span], uses: Sequence[Use]) -> tuple[int, int]:
    """Walk the epochs in which something begins, is used or ends; keep what is in use in order of place.

    Gives the most bytes in use at once, and the most in the roots that one call is given.
    """
    # An empty value has an address too, which belongs to nobody.
    empty = {root.offset for root in roots if not root.bytes}
    begins = [(root.first, 0, index) for index, root in enumerate(roots) if root.bytes]
    ends = [(root.last, 2, index) for index, root in enumerate(roots) if root.bytes]
    calls = [(use.epoch, 1, index) for index, use in enumerate(uses)]
    alive: list[tuple[int, int]] = []  # offset, index
    in_use = most = by_call = 0
    for epoch, event, subject in sorted([*begins, *calls, *ends]):
        if event == 1:
            given = {
                owner
                for at in uses[subject].addresses
                if (owner := _owner(at, epoch, alive, roots, empty)) is not None
            }
            by_call = max(by_call, sum(roots[index].bytes for index in given))
            continue
        root = roots[subject]
        place = bisect_right(alive, (root.offset, subject))
        if event == 2:
            del alive[place - 1]
            in_use -= root.bytes
            continue
        for _, other in alive[max(0, place - 1) : place + 1]:
            if roots[other].offset < root.end and root.offset < roots[other].end:
                raise BadPlan(f"{roots[other]} and {root} overlap in epoch {epoch}")
        alive.insert(place, (root.offset, subject))
        in_use += root.bytes
        most = max(most, in_use)
    return most, by_call


def _owner(
    address: int,
    epoch: int,
    alive: Sequence[tuple[int, int]],
    roots: Sequence[Span],
    empty: Container[int],
) -> int | None:
    """The root in use that an address lies in; None if it is only that of an empty value."""
    below = bisect_right(alive, (address, len(roots))) - 1
    if below < 0 or address >= roots[alive[below][1]].end:
        if address in empty:
            return None
        raise BadPlan(f"byte {address} of the arena is used in epoch {epoch} by nobody's leave")
    return alive[below][1]
