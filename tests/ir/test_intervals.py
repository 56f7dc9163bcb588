"""Intervals: every value that a size can take is inside."""

from __future__ import annotations

from collections import UserDict

import pytest

from dlc.ir.dims import Bounds, Size, evaluate, maximum, minimum
from dlc.ir.intervals import interval
from tests.ir.random_sizes import B, T, random_sizes


def test_an_interval_holds_every_value() -> None:
    for size, choose in random_sizes(400):
        bounds = {
            "B": (1, choose.choice((1, 5, None))),
            "T": (choose.randrange(1, 4), 8),
            "H": (1, None),
        }
        low, high = interval(size, bounds)
        for _ in range(20):
            dims = {
                name: choose.randrange(least, (most or 12) + 1)
                for name, (least, most) in bounds.items()
            }
            value = evaluate(size, dims)
            assert low is None or low <= value, (size, bounds, dims)
            assert high is None or value <= high, (size, bounds, dims)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (7, (7, 7)),
        (B, (1, 8)),
        (3 * B - 1, (2, 23)),
        (-B, (-8, -1)),
        (T, (0, None)),
        (B * T, (0, None)),
        (-T, (None, 0)),
        (B // 2, (0, 4)),
        (16 // B, (2, 16)),
        (B // T, (None, None)),
        (B // (T + 1), (0, 8)),
        (maximum(B, T), (1, None)),
        (minimum(B, T), (0, 8)),
        (minimum(B, 5), (1, 5)),
    ],
)
def test_an_interval_is_tight_where_each_dim_occurs_once(
    size: Size, expected: tuple[int | None, int | None]
) -> None:
    assert interval(size, {"B": (1, 8)}) == expected


class Asked(UserDict[str, tuple[int, int | None]]):
    """Bounds that note which were asked for."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> tuple[int, int | None]:
        self.asked.append(name)
        return super().__getitem__(name)


def test_a_size_that_stands_in_itself_very_often_is_looked_at_once() -> None:
    bounds = Asked({"B": (1, 8)})
    size: Size = B
    for _ in range(12):
        size = (size // 2) * (size // 3) + 1
    assert interval(size, bounds)[0] == 1
    assert bounds.asked == ["B"]
