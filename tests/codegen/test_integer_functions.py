"""Functions about integers as machine code: what Python computes, and a refusal of what it cannot say."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from dlc.codegen.integer_functions import compile_function

FACTOR = 3


@dataclass(frozen=True, slots=True)
class Two:
    """Two arrays."""

    xs: array[int]
    ys: array[int]


def arithmetic(t: Two, a: int, b: int) -> int:
    """Every operator, on numbers that are not negative where it divides."""
    c = a * FACTOR - b + 7
    c += a
    c -= b
    c *= 2
    return c + max(a, b) // (min(a, b) + 1) - len(t.xs)


def comparisons(t: Two, a: int, b: int) -> int:
    found = (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)
    if not a:
        found += 64
    return found if a != b and (b or a > 3) else -found


def loops(t: Two, a: int, b: int) -> int:
    total = 0
    for i in range(len(t.xs)):
        if t.xs[i] == a:
            continue
        if t.xs[i] == b:
            break
        total += t.xs[i]
        t.ys[i] = total
    for i in range(2, len(t.ys)):
        t.ys[i] += t.ys[i - 2]
    rounds = 0
    while 1:
        rounds += 1
        if rounds >= 5 or t.ys[rounds] > a:
            break
    while total > b and total > 0:
        total -= 2
    return total * 100 + rounds


def inner(t: Two, index: int) -> int:
    if index < 0:
        return -1
    t.ys[index] += 1
    return t.xs[index]


def outer(t: Two, a: int, b: int) -> int:
    found = 0
    for i in range(len(t.xs)):
        found += inner(t, i if i != a else -1) * (b if i else 1)
    return found


def guarded(t: Two, a: int, b: int) -> int:
    """What is not needed is not looked at: the array has no such element."""
    if a < len(t.xs) and t.xs[a] > b:
        return 1
    if a >= len(t.xs) or t.xs[a] == b:
        return 2
    return 0


@pytest.mark.parametrize("function", [arithmetic, comparisons, loops, outer, guarded])
def test_machine_code_computes_what_python_does(function: Callable[[Two, int, int], int]) -> None:
    compiled = compile_function(function, Two)
    random = Random(0)
    for _ in range(300):
        xs = array("q", [random.randrange(6) for _ in range(8)])
        a, b = random.randrange(12), random.randrange(12)
        ours, pythons = Two(xs, array("q", range(8))), Two(xs, array("q", range(8)))
        assert compiled(ours, a, b) == function(pythons, a, b)
        assert ours.ys == pythons.ys


def raises_to_a_power(t: Two, a: int, b: int) -> int:
    return a**b


def builds_a_list(t: Two, a: int, b: int) -> int:
    return [a, b][0]


def unpacks(t: Two, a: int, b: int) -> int:
    a, b = b, a
    return a


@pytest.mark.parametrize("function", [raises_to_a_power, builds_a_list, unpacks])
def test_what_has_no_machine_code_is_refused(function: Callable[[Two, int, int], int]) -> None:
    with pytest.raises(AssertionError, match="no machine code for"):
        compile_function(function, Two)
