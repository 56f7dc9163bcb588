"""What is sure about sizes from the bounds of their dims."""

from __future__ import annotations

import pytest

from dlc.ir.bounded import never_negative
from dlc.ir.dims import Size, floor_divide, maximum, minimum, symbol

T, S = symbol("T"), symbol("S")
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
