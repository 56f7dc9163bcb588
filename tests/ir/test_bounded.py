"""What is sure about sizes from the bounds of their dims."""

from __future__ import annotations

from itertools import product as product_of

import pytest

from dlc.ir.bounded import larger, never_negative, smaller
from dlc.ir.dims import Size, evaluate, floor_divide, maximum, minimum, symbol

B, T, S = symbol("B"), symbol("T"), symbol("S")
BOUNDS = {"T": (2, 9), "S": (0, None)}


@pytest.mark.parametrize(
    "size",
    [
        0,
        T - 2,
        S,
        2 * T - 4 + S,
        T - minimum(T, 5),
        5 - minimum(T, 5),
        maximum(T - 4, 0),
        maximum(S - 3, minimum(T, S)) - minimum(T, S),
        minimum(T, maximum(1, S)),
        T - minimum(S, minimum(7, T)),
        floor_divide(T - 1, 2),
    ],
    ids=str,
)
def test_a_size_that_cannot_be_negative_is_known_to_be_none(size: Size) -> None:
    assert never_negative(size, BOUNDS)


@pytest.mark.parametrize(
    "size",
    [-1, T - 3, S - T, 4 - minimum(T, 5), minimum(S - 1, T), maximum(T - 4, -1), minimum(S, T) - 1],
    ids=str,
)
def test_a_size_that_can_be_negative_is_not(size: Size) -> None:
    assert not never_negative(size, BOUNDS)


def test_more_minima_than_anyone_writes_take_no_time() -> None:
    size: Size = 0
    for k in range(40):
        size = size + minimum(symbol(f"A{k}"), symbol(f"B{k}") - 1)
    assert not never_negative(size, {})


def test_bounds_decide_which_size_is_larger() -> None:
    bounds = {"B": (1, None), "T": (2, 8)}
    assert (smaller(1, B, bounds), larger(B, 1, bounds)) == (1, B)
    assert minimum(1, B) != 1
    assert larger(T, 9, bounds) == 9
    assert larger(T, 5, bounds) is maximum(T, 5)
    sizes = [1, 3, B, T, B + T, B - 1, T // 2, 2 * T]
    for one, other in product_of(sizes, sizes):
        for n, t in product_of(range(1, 6), range(2, 9)):
            dims = {"B": n, "T": t}
            values = evaluate(one, dims), evaluate(other, dims)
            assert evaluate(smaller(one, other, bounds), dims) == min(values)
            assert evaluate(larger(one, other, bounds), dims) == max(values)
