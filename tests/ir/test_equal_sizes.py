"""Whether sizes are equal, and for which dims: decided without trying all, compared with trying many."""

from __future__ import annotations

import random

import pytest

from dlc.ir.bounded import larger, never_negative, smaller
from dlc.ir.dims import Bounds, Size, evaluate, floor_divide, minimum, names, substitute, symbol
from dlc.ir.equal_sizes import (
    always_equal,
    highest_value,
    least_value,
    never_equal,
    not_negative,
    solution,
)

H, N = symbol("H"), symbol("N")
TRIED = range(1, 400)


def random_steps(choose: random.Random) -> Size:
    """A size of one dim as a stack of strides, paddings and doublings makes it."""
    size: Size = H
    for _ in range(choose.randrange(1, 5)):
        match choose.randrange(4):
            case 0:
                size = floor_divide(size, choose.choice((2, 2, 3)))
            case 1:
                size = floor_divide(size - 1, 2) + 1
            case 2:
                size = choose.choice((2, 3)) * size
            case _:
                size = size + choose.randrange(-2, 3)
    return size


def random_pairs(count: int) -> list[tuple[Size, Size]]:
    choose = random.Random(3)
    return [(random_steps(choose), random_steps(choose)) for _ in range(count)]


def values(size: Size) -> list[int]:
    return [evaluate(size, {"H": value}) for value in TRIED]


def test_what_is_decided_of_two_sizes_is_what_trying_shows() -> None:
    decided = {"always": 0, "never": 0, "solved": 0}
    for one, other in random_pairs(1200):
        equal = [x == y for x, y in zip(values(one), values(other), strict=True)]
        if always_equal(one, other):
            decided["always"] += 1
            assert all(equal), (one, other)
        if never_equal(one, other):
            decided["never"] += 1
            assert not any(equal), (one, other)
        found = solution(one, other)
        if found is not None:
            decided["solved"] += 1
            name, size = found
            assert name == "H"
            good = {evaluate(size, {"H": k}) for k in range(len(TRIED) + 1)}
            assert [value in good for value in TRIED] == equal, (one, other, size)
    assert min(decided.values()) > 10, decided


def test_proofs_about_one_dim_hold_and_are_found() -> None:
    bounds: Bounds = {"H": (3, None)}
    proved = 0
    for one, other in random_pairs(600):
        difference = one - other
        tried = [evaluate(difference, {"H": value}) for value in range(3, 400)]
        if never_negative(difference, bounds):
            proved += 1
            assert min(tried) >= 0, difference
        for choose, pick in ((larger, max), (smaller, min)):
            chosen = choose(one, other, bounds)
            for value in (3, 4, 5, 17, 64):
                at = {"H": value}
                assert evaluate(chosen, at) == pick(evaluate(one, at), evaluate(other, at))
    assert proved > 100


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (N + 1, 81, ("N", 80)),
        (3 * N, 240, ("N", 80)),
        (3 * N, 241, None),
        (H * N, 7 * H, ("N", 7)),
        (960 * H, 960 * N, ("H", N)),
        (2 * (2 * (H // 4)), H, ("H", 4 * H)),
        (2 * ((H - 1) // 16) + 2, (H - 1) // 8 + 1, None),
        (H, (N - 1) // 2, ("H", (N - 1) // 2)),
        (5, 5, None),
    ],
)
def test_a_dim_is_solved_for_if_one_size_says_all(
    one: Size, other: Size, found: tuple[str, Size] | None
) -> None:
    assert solution(one, other) == found
    if found is not None and found[0] not in names(found[1]):
        assert substitute(one, dict([found])) == substitute(other, dict([found]))


@pytest.mark.parametrize(
    ("one", "other", "never"),
    [
        (2 * N, 2 * H + 1, True),
        (3 * N, 4 * N, True),
        (N, H, False),
        (2 * (H // 2), 2 * (H // 2) + 1, True),
        ((H - 1) // 2, H // 2 + 1, True),
        (784 * N, 785 * N, True),
    ],
)
def test_sizes_that_no_call_makes_equal(one: Size, other: Size, never: bool) -> None:
    assert never_equal(one, other) == never


def test_an_extreme_that_equals_its_part_is_a_bound() -> None:
    cut = smaller(N, 16, {})
    assert not_negative(N, cut) == 16 - N
    assert not_negative(cut + 3, N + 3) == 16 - N
    assert not_negative(larger(N, 16, {}), N) == N - 16
    assert not_negative(N, H) is None
    assert highest_value(16 - N) == 16


@pytest.mark.parametrize("length", [1, 3])
def test_a_slice_that_keeps_its_length_has_room_in_its_axis(length: int) -> None:
    left = minimum(N + 1, 16) - minimum(N + 1 - length, 16)
    assert not_negative(left, length) == not_negative(length, left) == 15 - N
    for n in range(length, 40):
        assert (evaluate(left, {"N": n}) == length) == (n <= 15)
    assert not_negative(left, length + 1) is None
    assert not_negative(minimum(N + 1, 16) - minimum(N, 15), 1) is None


def test_the_ends_of_the_bounds_of_a_size() -> None:
    assert highest_value(16 - N) == 16
    assert least_value((N - 10) // 5 + 1, "N", 1, None) == 5
    assert least_value((N - 10) // 5 + 1, "N", 1, 4) is None
