"""Sizes made at random of the dims B, T and H, and numbers for these dims."""

from __future__ import annotations

import random
from collections.abc import Iterator

from dlc.ir.dims import Size, floor_divide, maximum, minimum, symbol

B, T, H = symbol("B"), symbol("T"), symbol("H")


def random_size(choose: random.Random, depth: int = 3) -> Size:
    """A size made by every way there is to make one; divisors are positive for positive dims."""
    if depth == 0 or choose.random() < 0.25:
        return choose.choice((B, T, H, choose.randrange(-3, 7)))
    one, other = random_size(choose, depth - 1), random_size(choose, depth - 1)
    match choose.randrange(7):
        case 0 | 1:
            return one + other
        case 2:
            return one - other
        case 3:
            return one * other
        case 4:
            return floor_divide(one, choose.choice((2, 3, B, T + 1, 2 * H)))
        case 5:
            return maximum(one, other)
        case _:
            return minimum(one, other)


def random_sizes(count: int) -> Iterator[tuple[Size, random.Random]]:
    choose = random.Random(11)
    for _ in range(count):
        yield random_size(choose), choose


def random_dims(choose: random.Random) -> dict[str, int]:
    return {name: choose.randrange(1, 9) for name in ("B", "T", "H")}
