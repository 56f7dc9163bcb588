"""Placement of buffers: valid, never below the bound, the best where that is known, always the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest

from dlc.codegen.integer_functions import compile_function
from dlc.driver.compile.native_planner import machine_code
from dlc.planning.arena import (
    Buffer,
    Search,
    Tables,
    find_order,
    find_overlap,
    height,
    lower_bound,
    order_above,
    place,
    portfolio,
    search,
)
from dlc.planning.arena import symbolic_order as order_module
from dlc.planning.arena.exact import FOUND, IMPOSSIBLE, STEPS
from dlc.planning.arena.greedy import best_fit, first_fit, sure_to_fit
from dlc.planning.arena.problem import Problem
from dlc.runtime.artifact.plan import Plan, Span
from dlc.runtime.artifact.plan_check import BadPlan, check

SETS = 150
"""Random sets in each quick test."""
ALL_SETS = 10_000
"""In each long one."""


@cache
def compiled() -> Search:
    return compile_function(search, Tables)


def random_buffers(random: Random, most: int, *, alignments: bool) -> list[Buffer]:
    """Up to `most` buffers, in one of several kinds of sets."""
    sizes = random.choice([range(1, 5), range(1, 100), (1, 2, 4, 64), range(64, 4096, 64)])
    choices = random.choice([(1,), (1, 2, 8)]) if alignments else (1,)
    moments = random.choice([4, 10, 40])
    longest = random.choice([2, moments // 2, moments])
    buffers: list[Buffer] = []
    for _ in range(random.randint(0, most)):
        first = random.randrange(moments)
        last = first + random.randrange(longest)
        buffers.append(Buffer(random.choice(sizes), first, last, random.choice(choices)))
    return buffers


def full_set(random: Random, most: int) -> list[Buffer]:
    """Buffers that take the same at every moment: where one or two end, others of the same size begin.

    That leaves no room for gaps: of one of a thousand such sets the bound is out of reach.
    """
    alive = [(size, 0) for size in parts(random, random.choice((5, 6)))]
    ended: list[Buffer] = []
    moment = 0
    while True:
        moment += 1
        random.shuffle(alive)
        ending = random.randint(1, 2)
        new = parts(random, sum(size for size, _ in alive[:ending]))
        if len(alive) + len(ended) + len(new) > most:
            return [*ended, *(Buffer(size, first, moment) for size, first in alive)]
        ended += [Buffer(size, first, moment - 1) for size, first in alive[:ending]]
        alive = [*alive[ending:], *((size, moment) for size in new)]


def parts(random: Random, total: int) -> list[int]:
    """Numbers from 1 to 3 with this sum."""
    found: list[int] = []
    while total:
        found.append(random.randint(1, min(3, total)))
        total -= found[-1]
    return found


def check_valid(buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
    """By comparing every pair, unlike the code under test."""
    for i, one in enumerate(buffers):
        assert offsets[i] >= 0
        assert offsets[i] % one.alignment == 0
        for j, other in enumerate(buffers[:i]):
            together = max(one.first, other.first) <= min(one.last, other.last)
            start = max(offsets[i], offsets[j])
            end = min(offsets[i] + one.size, offsets[j] + other.size)
            assert not together or start >= end, (one, other)


def least_height(buffers: list[Buffer]) -> int:
    """By brute force: some order exists in which putting each on what it meets below gives the best.

    Take a best placement, let everything fall as far as it goes, and go through it from the lowest
    offset up. So all sequences of buffers are tried, without those that cannot become better.
    """
    best = sum(buffer.size + buffer.alignment - 1 for buffer in buffers)

    def down(placed: dict[int, int]) -> None:
        nonlocal best
        if len(placed) == len(buffers):
            best = max((at + buffers[i].size for i, at in placed.items()), default=0)
            return
        lowest = max(placed.values(), default=0)
        for i, buffer in enumerate(buffers):
            if i not in placed:
                under = [
                    at + buffers[j].size for j, at in placed.items() if buffers[j].meets(buffer)
                ]
                at = -(-max(under, default=0) // buffer.alignment) * buffer.alignment
                if at >= lowest and at + buffer.size < best:
                    down({**placed, i: at})

    down({})
    return best


def can_be_placed(buffers: Sequence[Buffer], capacity: int) -> bool:
    """Whether any placement is this low, by the same brute force with a memory: quick for a dozen.

    Two are alive together if one is at the first moment of the other, so only these moments count. What
    is left at a moment lies above what was put down last and above what is there.
    """
    moments = sorted({buffer.first for buffer in buffers})
    spans = [
        [k for k, moment in enumerate(moments) if b.first <= moment <= b.last] for b in buffers
    ]
    hopeless: set[tuple[frozenset[int], tuple[int, ...], int]] = set()

    def down(left: frozenset[int], tops: tuple[int, ...], lowest: int) -> bool:
        if not left:
            return True
        needed = [max(lowest, top) for top in tops]
        for i in left:
            for k in spans[i]:
                needed[k] += buffers[i].size
        crowded = any(needed[k] > capacity for i in left for k in spans[i])
        if crowded or (left, tops, lowest) in hopeless:
            return False
        for i in left:
            at = max(tops[k] for k in spans[i])
            if at >= lowest:
                end = at + buffers[i].size
                raised = tuple(end if k in spans[i] else top for k, top in enumerate(tops))
                if down(left - {i}, raised, at):
                    return True
        hopeless.add((left, tops, lowest))
        return False

    return down(frozenset(range(len(buffers))), (0,) * len(moments), 0)


def check_sets(count: int) -> None:
    random = Random(1)
    for _ in range(count):
        buffers = random_buffers(random, 60, alignments=True)
        placed = place(buffers, compiler=machine_code)
        check_valid(buffers, placed.offsets)
        assert lower_bound(buffers) <= placed.least <= placed.height
        assert placed.height == height(buffers, placed.offsets)


def check_small_sets(count: int) -> None:
    """Sets of up to 12 are placed in the best way there is; brute force agrees."""
    random = Random(2)
    for _ in range(count):
        most = random.choice([6, 12, 12])
        kinds = random_buffers(random, most, alignments=False), full_set(random, most)
        buffers = random.choice(kinds)
        placed = place(buffers, compiler=machine_code)
        check_valid(buffers, placed.offsets)
        assert placed.height == placed.least == height(buffers, placed.offsets)
        assert not can_be_placed(buffers, placed.height - 1) or not buffers
        if len(buffers) <= 6:
            assert placed.height == least_height(buffers), buffers


def test_random_sets_are_placed_validly_and_never_below_the_bound() -> None:
    check_sets(SETS)


@pytest.mark.long
def test_ten_thousand_random_sets_are_placed_validly() -> None:
    check_sets(ALL_SETS)


def test_small_sets_are_placed_as_low_as_brute_force_finds() -> None:
    check_small_sets(SETS)


OUT_OF_REACH = [
    Buffer(size, first, last)
    for size, first, last in [
        (3, 0, 0), (2, 0, 1), (2, 1, 2), (1, 2, 2), (1, 2, 3), (1, 4, 4), (1, 1, 4), (2, 5, 5),
        (3, 3, 7), (1, 6, 7), (1, 6, 7),
    ]
]  # fmt: skip
"""What takes 5 at once at most, and needs 6."""


def test_brute_force_agrees_where_the_bound_is_out_of_reach() -> None:
    random = Random(3)
    for unit in (1, 7, 64):
        buffers = [Buffer(unit * b.size, b.first, b.last) for b in OUT_OF_REACH]
        backwards = [Buffer(b.size, 7 - b.last, 7 - b.first) for b in buffers]
        for some in (buffers, backwards, [*buffers, Buffer(unit, 8, 9)]):
            random.shuffle(some)
            placed = place(some, compiler=machine_code)
            assert placed.least == placed.height > lower_bound(some)
            assert can_be_placed(some, placed.height)
            assert not can_be_placed(some, placed.height - 1)


@pytest.mark.long
def test_ten_thousand_small_sets_are_placed_as_low_as_brute_force_finds() -> None:
    check_small_sets(ALL_SETS)


def hard_set(seed: int, count: int = 60) -> list[Buffer]:
    """A set that best fit does not place as low as can be."""
    random = Random(seed)
    while True:
        firsts = [random.randrange(40) for _ in range(count)]
        buffers = [
            Buffer(random.randrange(1, 50), first, first + random.randrange(12)) for first in firsts
        ]
        if height(buffers, best_fit(buffers)) > lower_bound(buffers):
            return buffers


def test_the_machine_code_gives_what_the_python_code_gives() -> None:
    for seed in range(3):
        buffers = [*hard_set(seed), Buffer(3, 5, 9, 8), Buffer(7, 0, 30, 4)]
        problem = Problem.of(buffers)
        tables = problem.tables
        for order in (*problem.orders, problem.perturbed_order(Random(seed))):
            for capacity in (lower_bound(buffers) - 1, lower_bound(buffers), 1 << 40):
                problem.put_in_order(order)
                slow = search(tables, capacity, 20_000), list(tables.offset), tables.words[STEPS]
                fast = compiled()(tables, capacity, 20_000)
                assert (fast, list(tables.offset), tables.words[STEPS]) == slow


def test_a_capacity_below_the_bound_is_impossible() -> None:
    buffers = hard_set(0)
    tables = Problem.of(buffers).tables
    assert search(tables, lower_bound(buffers) - 1, 1 << 40) == IMPOSSIBLE
    assert search(tables, sum(buffer.size for buffer in buffers), 1 << 40) == FOUND


def test_more_effort_never_places_higher_and_searches_where_best_fit_fails() -> None:
    for seed in range(5):
        buffers = hard_set(seed)
        heights = [
            place(buffers, effort=effort, compiler=machine_code).height for effort in (1, 4, 16)
        ]
        assert height(buffers, best_fit(buffers)) > heights[0] >= heights[1] >= heights[2]


def test_the_same_buffers_lie_at_the_same_offsets_whatever_was_placed_before() -> None:
    buffers = hard_set(7, 120)
    first = place(buffers, compiler=machine_code)
    place(hard_set(8), compiler=machine_code)
    assert place(buffers, compiler=machine_code) == first


def test_what_is_sure_to_fit_does_not_raise_a_placement() -> None:
    for seed in range(20):
        buffers = hard_set(seed)
        bound = lower_bound(buffers)
        easy = sure_to_fit(buffers, bound)
        offsets = [-1 if i in easy else at for i, at in enumerate(best_fit(buffers))]
        before = max(at + b.size for b, at in zip(buffers, offsets, strict=True) if at >= 0)
        first_fit(buffers, offsets, reversed(easy))
        check_valid(buffers, offsets)
        assert height(buffers, offsets) <= max(bound, before)


def test_an_overlap_is_found_wherever_a_valid_placement_is_changed_into_one() -> None:
    for seed in range(20):
        buffers = hard_set(seed)
        offsets = best_fit(buffers)
        assert find_overlap(buffers, offsets) is None
        upper = max(range(len(buffers)), key=offsets.__getitem__)
        lower = next(i for i, b in enumerate(buffers) if i != upper and b.meets(buffers[upper]))
        offsets[upper] = offsets[lower]
        assert find_overlap(buffers, offsets) is not None


def test_buffers_without_bytes_take_no_place() -> None:
    buffers = [Buffer(8, 0, 2), Buffer(0, 1, 1), Buffer(8, 1, 3)]
    placed = place(buffers)
    assert placed.height == 16
    assert placed.offsets[1] == 0
    assert find_overlap(buffers, placed.offsets) is None


def test_nothing_takes_nothing() -> None:
    assert place([]).height == 0


def cases_of(seed: int, count: int = 40) -> list[list[Buffer]]:
    """The same lives with sizes of which some grow."""
    random = Random(seed)
    lives = hard_set(seed, count)
    grows = [random.random() < 0.5 for _ in lives]
    return [
        [
            Buffer(b.size * (k if g else 9), b.first, b.last)
            for b, g in zip(lives, grows, strict=True)
        ]
        for k in (1, 4, 16, 64)
    ]


def placed_by(order: Sequence[int], buffers: Sequence[Buffer]) -> list[int]:
    """Offsets where each lies above those that `order_above` puts below it."""
    above = order_above(buffers, order)
    offsets = [0] * len(buffers)
    for index in order:
        offsets[index] = max((offsets[j] + buffers[j].size for j in above[index]), default=0)
    return offsets


def excess(order: Sequence[int], cases: Sequence[Sequence[Buffer]]) -> float:
    """What the heights are above their bounds, all together."""
    return sum(height(b, placed_by(order, b)) / lower_bound(b) - 1 for b in cases)


def test_an_order_is_a_valid_placement_at_any_sizes() -> None:
    random = Random(0)
    cases = cases_of(0)
    order = find_order(cases[:1])
    for _ in range(5):
        others = [Buffer(random.randrange(1, 99), b.first, b.last) for b in cases[0]]
        check_valid(others, placed_by(order, others))


def test_an_order_is_better_in_all_cases_together_than_what_is_best_in_one() -> None:
    for seed in range(3):
        cases = cases_of(seed)
        found = excess(find_order(cases, compiler=machine_code), cases)
        for case in cases:
            offsets = place(case, compiler=machine_code).offsets
            alone = sorted(range(len(case)), key=lambda i: (offsets[i], i))
            assert found <= excess(alone, cases)
        assert found < 0.02 * len(cases)


def test_orders_are_the_same_in_machine_code_and_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "STEPS_FOR_EACH", 10_000)
    monkeypatch.setattr(order_module, "STEPS_AT_FIRST", 10_000)
    monkeypatch.setattr(portfolio, "STEPS_FOR_EACH", 10_000)
    for seed in range(2):
        slow = find_order(cases_of(seed))
        assert find_order(cases_of(seed), compiler=machine_code) == slow


def test_sizes_beyond_machine_integers_have_an_order_too() -> None:
    cases = cases_of(0)
    huge = [[Buffer(b.size << 70, b.first, b.last) for b in case] for case in cases]
    order = find_order(huge[-1:])
    check_valid(huge[-1], placed_by(order, huge[-1]))
    assert find_order([*cases, huge[-1]]) == find_order(cases)


def in_bytes(buffers: Sequence[Buffer]) -> Plan:
    """A placement as the checker of artifacts sees it: sizes are multiples of 64."""
    sized = [Buffer(64 * b.size, b.first, b.last) for b in buffers]
    placed = place(sized)
    roots = [
        Span(str(i), at, b.size, b.first, b.last)
        for i, (b, at) in enumerate(zip(sized, placed.offsets, strict=True))
    ]
    return Plan(placed.height, lower_bound(sized), 0, (), roots, [])


def test_the_checker_takes_every_placement_and_refuses_it_when_a_buffer_is_moved() -> None:
    for seed in range(10):
        plan = in_bytes(hard_set(seed))
        check(plan, [])
        random = Random(seed)
        for _ in range(20):
            roots = list(plan.roots)
            k = random.randrange(len(roots))
            one = roots[k]
            others = [r for r in roots if r != one and r.first <= one.last and one.first <= r.last]
            if others:
                onto = random.choice(others)
                roots[k] = one._replace(offset=onto.offset + random.choice((0, onto.bytes - 64)))
                with pytest.raises(BadPlan):
                    check(plan._replace(roots=roots), [])
            roots[k] = one._replace(offset=one.offset + 8)
            with pytest.raises(BadPlan):
                check(plan._replace(roots=roots), [])
