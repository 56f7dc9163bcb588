"""The independent checker of memory plans, against a checker that looks at every pair and every byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from dlc.runtime.plan_check import BadPlan, Extent, Plan, Span, Use, check

A = Span("a", 0, 128, 0, 2)
B = Span("b", 128, 64, 1, 3)
C = Span("c", 0, 64, 3, 4)


def plan_of(
    arena: int, roots: Sequence[Span], views: Sequence[Extent], any_order_bound: int = 0
) -> Plan:
    """A plan whose bound for its order is right."""
    return Plan(arena, most_in_use(roots), any_order_bound, roots, views)


def most_in_use(roots: Sequence[Span]) -> int:
    return max((sum(r.bytes for r in roots if r.first <= e <= r.last) for e in range(9)), default=0)


def use(epoch: int, *addresses: int) -> Use:
    return Use(epoch, addresses)


def test_a_right_plan_passes() -> None:
    check(
        plan_of(192, [A, B, C], [Extent("half", 0, 64, 64)]),
        [use(0, 0), use(2, 127), use(3, 128), use(4, 63)],
    )


def test_an_empty_plan_passes() -> None:
    check(plan_of(0, [], []), [])


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of(192, [A, B._replace(offset=64, bytes=128)], []), "overlap in epoch 1"),
        (plan_of(192, [A, B, C._replace(first=2)], []), "overlap in epoch 2"),
        (plan_of(256, [A, B], []), "the arena has 256 bytes, what lies in it ends at 192"),
        (plan_of(128, [A, B], []), "the arena has 128 bytes, what lies in it ends at 192"),
        (plan_of(64, [A], []), "the arena has 64 bytes"),
        (plan_of(192, [A._replace(offset=-64), B], []), "negative"),
        (plan_of(192, [A, B, C._replace(bytes=-1)], []), "negative"),
        (plan_of(192, [A, B, C._replace(offset=8)], []), "multiple of 64"),
        (plan_of(192, [A, B, C._replace(first=5)], []), "ends before it begins"),
        (plan_of(192, [A, B], [Extent("v", 2, 0, 1)]), "a root that does not exist"),
        (plan_of(192, [A, B], [Extent("v", -1, 0, 1)]), "a root that does not exist"),
        (plan_of(192, [A, B], [Extent("v", 1, 0, 65)]), "leaves its root"),
        (plan_of(192, [A, B], [Extent("v", 1, -1, 4)]), "leaves its root"),
        (plan_of(192, [A, B], [Extent("v", 1, 4, -4)]), "leaves its root"),
    ],
)
def test_a_wrong_plan_is_refused(plan: Plan, why: str) -> None:
    with pytest.raises(BadPlan, match=why):
        check(plan, [])


@pytest.mark.parametrize(
    ("epoch", "address"), [(3, 0), (0, 128), (4, 64), (9, 0), (0, -1), (1, 1000)]
)
def test_an_address_that_belongs_to_nobody_in_its_epoch_is_refused(
    epoch: int, address: int
) -> None:
    with pytest.raises(BadPlan, match="by nobody's leave"):
        check(plan_of(192, [A, B, C._replace(first=4)], []), [use(epoch, address)])


@pytest.mark.parametrize("said", [0, 128, 191, 193, 256])
def test_another_bound_for_the_order_than_what_is_in_use_at_once_is_refused(said: int) -> None:
    with pytest.raises(BadPlan, match=f"192 bytes are in use at once, the plan says {said}"):
        check(Plan(192, said, 0, [A, B, C], []), [])


def test_a_bound_for_any_order_is_what_some_call_takes_or_less() -> None:
    calls = [use(0, 0), use(2, 0, 64, 128), use(3, 128, 0)]
    for bound in (0, 128, 192):
        check(plan_of(192, [A, B, C], [], bound), calls)
    with pytest.raises(BadPlan, match="no call takes more than 192 bytes, the plan says 193"):
        check(plan_of(192, [A, B, C], [], 193), calls)
    with pytest.raises(BadPlan, match="no call takes more than 0 bytes, the plan says 1"):
        check(plan_of(192, [A, B, C], [], 1), [])


def test_an_empty_value_may_lie_anywhere_and_be_used_at_any_time() -> None:
    empty = Span("empty", 64, 0, 0, 0)
    check(plan_of(192, [A, B, C, empty], []), [use(0, 64), use(4, 64)])


def test_the_checker_agrees_with_looking_at_every_pair() -> None:
    random_ = random.Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(3000):
        roots = [_random_span(random_, index) for index in range(random_.randint(1, 6))]
        plan = plan_of(max(root.end for root in roots), roots, [])
        uses = [
            use(random_.randrange(5), random_.randrange(0, 512))
            for _ in range(random_.randrange(3))
        ]
        expected = _right_by_hand(roots, uses)
        verdicts[expected] += 1
        assert _accepted(plan, uses) == expected, (plan, uses)
    assert min(verdicts.values()) > 300


def _random_span(random_: random.Random, index: int) -> Span:
    first = random_.randrange(5)
    last = random_.randint(first, 4)
    return Span(
        str(index), 64 * random_.randrange(6), random_.choice([1, 64, 100, 192]), first, last
    )


def _right_by_hand(roots: list[Span], uses: list[Use]) -> bool:
    apart = all(
        one.end <= two.offset
        or two.end <= one.offset
        or one.last < two.first
        or two.last < one.first
        for i, one in enumerate(roots)
        for two in roots[:i]
    )
    return apart and all(
        any(r.first <= epoch <= r.last and r.offset <= at < r.end for r in roots)
        for epoch, addresses in uses
        for at in addresses
    )


def _accepted(plan: Plan, uses: list[Use]) -> bool:
    try:
        check(plan, uses)
    except BadPlan:
        return False
    return True
