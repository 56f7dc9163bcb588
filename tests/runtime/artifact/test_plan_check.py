"""The independent checker of memory plans, against a checker that looks at every pair and every byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from dlc.runtime.artifact.plan import Extent, Plan, Span, Use
from dlc.runtime.artifact.plan_check import BadPlan, check

A = Span("a", 0, 128, 0, 2)
B = Span("b", 128, 64, 1, 3)
C = Span("c", 0, 64, 3, 4)


def plan_of(
    arena: int,
    roots: Sequence[Span],
    views: Sequence[Extent],
    any_order_bound: int = 0,
    witnesses: Sequence[int] = (),
) -> Plan:
    """A plan whose bound for its order is right."""
    return Plan(arena, most_in_use(roots), any_order_bound, witnesses, roots, views)


def most_in_use(roots: Sequence[Span]) -> int:
    return max((sum(r.bytes for r in roots if r.first <= e <= r.last) for e in range(9)), default=0)


def use(wave: int, *addresses: int) -> Use:
    """A call that reads there."""
    return Use(wave, addresses, ())


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
        (plan_of(192, [A, B._replace(offset=64, bytes=128)], []), "overlap in wave 1"),
        (plan_of(192, [A, B, C._replace(first=2)], []), "overlap in wave 2"),
        (plan_of(256, [A, B], []), "the arena has 256 bytes, but its last root ends at 192"),
        (plan_of(128, [A, B], []), "the arena has 128 bytes, but its last root ends at 192"),
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
    ("wave", "address"), [(3, 0), (0, 128), (4, 64), (9, 0), (0, -1), (1, 1000)]
)
def test_an_address_that_belongs_to_nobody_in_its_epoch_is_refused(wave: int, address: int) -> None:
    with pytest.raises(BadPlan, match="where no root is live"):
        check(plan_of(192, [A, B, C._replace(first=4)], []), [use(wave, address)])


@pytest.mark.parametrize("said", [0, 128, 191, 193, 256])
def test_another_bound_for_the_order_than_what_is_in_use_at_once_is_refused(said: int) -> None:
    with pytest.raises(BadPlan, match=f"192 bytes are in use at once, the plan says {said}"):
        check(Plan(192, said, 0, (), [A, B, C], []), [])


def test_a_bound_for_any_order_is_what_a_witness_takes_or_less() -> None:
    calls = [use(0, 0), use(2, 0, 64, 128), use(3, 128, 0)]
    for bound in (0, 128, 192):
        check(plan_of(192, [A, B, C], [], bound, [0, 1]), calls)
    refuse_bound(193, [0, 1, 2], calls, most=192)
    refuse_bound(192, [0, 2], calls, most=128)
    refuse_bound(1, [], calls, most=0)
    refuse_bound(1, [-1, 3], calls, most=0)


def refuse_bound(bound: int, witnesses: Sequence[int], calls: Sequence[Use], *, most: int) -> None:
    said = f"no witness proves more than {most} bytes, the plan says {bound}"
    with pytest.raises(BadPlan, match=said):
        check(plan_of(192, [A, B, C], [], bound, witnesses), calls)


X, Y, Z, W, ASIDE = (
    Span("x", 0, 64, 0, 3),
    Span("y", 64, 64, 1, 2),
    Span("z", 128, 64, 2, 3),
    Span("w", 192, 64, 3, 3),
    Span("aside", 256, 64, 0, 3),
)
SKIP = [
    Use(0, [], [0]),
    Use(0, [], [256]),
    Use(1, [0], [64]),
    Use(2, [64], [128]),
    Use(3, [0, 128, 256], [192]),
]
"""x goes around y and z, aside around all of them."""


@pytest.mark.parametrize(("witness", "most"), [(0, 64), (1, 64), (2, 128), (3, 192), (4, 256)])
def test_what_its_predecessors_made_for_its_successors_counts_for_a_witness(
    witness: int, most: int
) -> None:
    plan = plan_of(320, [X, Y, Z, W, ASIDE], [], most, [witness])
    check(plan, SKIP)
    with pytest.raises(BadPlan, match=f"no witness proves more than {most} bytes"):
        check(plan._replace(any_order_bound=most + 1), SKIP)


def test_what_is_written_anew_is_nothing_that_was_kept() -> None:
    # In wave 2, after its last reader, x is written without being read, and that is read in wave 3.
    anew = [*SKIP[:3], Use(2, [], [0]), *SKIP[3:]]
    roots = [X, Y, Z, W, ASIDE]
    check(plan_of(320, roots, [], 128, [4]), anew)
    with pytest.raises(BadPlan, match="no witness proves more than 128 bytes"):
        check(plan_of(320, roots, [], 192, [4]), anew)


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
        any(r.first <= wave <= r.last and r.offset <= at < r.end for r in roots)
        for wave, addresses, *_ in uses
        for at in addresses
    )


def _accepted(plan: Plan, uses: list[Use]) -> bool:
    try:
        check(plan, uses)
    except BadPlan:
        return False
    return True
