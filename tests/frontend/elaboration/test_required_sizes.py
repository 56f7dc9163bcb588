"""`require` of sizes that calls choose: a condition of the entry point."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dlc

SAME = """dlc 1
dim A = 1..64
dim B = 1..64
fn same(x: f32[M], y: f32[N]) {
  require M == N, "both must have as many elements"
  return x + reshape(y, [M])
}
export fn f(x: f32[A], y: f32[B]) -> f32[A] = same(x, y)
fn total(x: f32[..], y: f32[..]) -> f32 = sum(same(x, y))
export fn slope(x: f32[A], y: f32[B]) -> f32[A] = grad(total, wrt=x)(x, y)
"""


def compared(condition: str) -> dlc.Model:
    """A model of one condition on two sizes, of 1 to 64."""
    head = "dlc 1\ndim A = 1..64\ndim B = 1..64\nexport fn f(x: f32[A], y: f32[B]) -> f32[A] {\n"
    return dlc.compile(text=f"{head}  require {condition}\n  return x\n}}\n")


def numbers(length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.ones(length, np.float32)


@pytest.mark.parametrize("name", ["f", "slope"])
def test_a_call_whose_sizes_differ_is_refused_at_the_line_that_says_so(name: str) -> None:
    entry = dlc.compile(text=SAME)[name]
    np.testing.assert_array_equal(entry(numbers(3), numbers(3)), 2.0 if name == "f" else 1.0)
    told = r"(?s)both must have as many elements \(M == N does not hold\) where A is 3 and B is 4"
    with pytest.raises(dlc.CallError, match=told) as refused:
        entry(numbers(3), numbers(4))
    assert "5 |   require M == N" in str(refused.value)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("A < B", {(3, 5)}),
        ("A <= B", {(1, 1), (3, 5)}),
        ("A > B", {(2, 1), (4, 2), (5, 3), (64, 1)}),
        ("A >= 2 * B", {(2, 1), (4, 2), (64, 1)}),
        ("A // 2 == B", {(2, 1), (4, 2)}),
        ("A <= 64", {(1, 1), (2, 1), (4, 2), (5, 3), (3, 5), (64, 1)}),
    ],
)
def test_a_comparison_holds_in_every_call_that_runs(
    condition: str, holds: set[tuple[int, int]]
) -> None:
    model = compared(condition)
    for a, b in [(1, 1), (2, 1), (4, 2), (5, 3), (3, 5), (64, 1)]:
        if (a, b) in holds:
            model["f"](numbers(a), numbers(b))
        else:
            with pytest.raises(dlc.CallError, match=re.escape(f"{condition} does not hold")):
                model["f"](numbers(a), numbers(b))


def test_what_no_call_can_meet_is_an_error_of_the_text() -> None:
    with pytest.raises(dlc.ModelError, match=r"A > 64 does not hold"):
        compared("A > 64")


def test_a_counted_size_is_no_condition_of_a_call() -> None:
    text = """dlc 1
dim A
export fn f(x: f32[A]) -> f32[_] {
  let (places, _) = nonzero(x > 0)
  require shape(places)[0] <= 3
  return x[places[:, 0]]
}
"""
    with pytest.raises(dlc.ModelError, match="no call can check this before it counts"):
        dlc.compile(text=text)


@pytest.mark.parametrize(
    ("condition", "dims", "told"),
    [
        ("2 * N == 5", "dim N", "2 * N == 5 does not hold for any sizes"),
        ("N % 3 == 4", "dim N", "N % 3 == 4 does not hold for any sizes"),
        ("N == 2 and N == 3", "dim N", "for any sizes that meet the conditions before it"),
        (
            "N > 4 and 2 * N < 10",
            "dim N = 1..9",
            "for any sizes that meet the conditions before it",
        ),
        ("N != 4", "dim N", "a call is checked for comparisons of sizes"),
        ("N == 4 or N == 5", "dim N", "a call is checked for comparisons of sizes"),
        ("not N == 4", "dim N", "a call is checked for comparisons of sizes"),
        ("sum(x) > 0", "dim N", "found bool of a call"),
    ],
)
def test_a_condition_that_no_call_can_meet_or_be_checked_for_is_an_error(
    condition: str, dims: str, told: str
) -> None:
    text = (
        f"dlc 1\n{dims}\nexport fn f(x: f32[N]) -> f32[N] {{\n  require {condition}\n  return x\n}}"
    )
    with pytest.raises(dlc.ModelError) as refused:
        dlc.compile(text=text)
    assert told in str(refused.value)


def test_a_condition_that_divides_by_zero_is_named() -> None:
    text = (
        "dlc 1\ndim N\ndim M\nexport fn f(x: f32[N], y: f32[M]) -> f32[N] {\n"
        "  require N % (N - M) == 0\n  return x\n}"
    )
    model = dlc.compile(text=text)
    with pytest.raises(dlc.CallError, match=r"divides by 0, so N % \(N - M\) == 0 does not hold"):
        model.f(np.ones(3, np.float32), np.ones(3, np.float32))
