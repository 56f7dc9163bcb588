"""Symbolic sizes: one canonical form, exact arithmetic, bounds, text."""

from __future__ import annotations

from itertools import product as product_of

import pytest

from dlc.errors import ModelError
from dlc.ir.dims import (
    Dim,
    Size,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    names,
    product,
    substitute,
)
from dlc.text.sizes import parse_size
from tests.ir.random_sizes import B, H, T, random_dims, random_size, random_sizes
from tests.suites import together


@together(
    ("size", "text"),
    [
        (B, "B"),
        (B + 0, "B"),
        (B * 1, "B"),
        (-B, "-B"),
        (T + B, "B + T"),
        (1 + B - B * 2, "-B + 1"),
        (3 * T * B - 4, "3*B*T - 4"),
        (B * B * B, "B*B*B"),
        ((B + T) * (B - T), "B*B - T*T"),
        (B // 2, "B//2"),
        ((B + 1) // 2, "(B + 1)//2"),
        (2 * (B // 2), "2*(B//2)"),
        (B // 2 // 2, "B//4"),
        (2 * (B // 2) // 4, "B//4"),
        (((B - 1) // 2 + 1) // 2, "(B + 1)//4"),
        ((B // 2 + T) // 3, "(B + 2*T)//6"),
        ((B // 2 + T // 2) // 2, "(B//2 + T//2)//2"),
        ((1024 * B + 1024) // (B + 1), "1024"),
        ((B * B - T * T) // (B - T), "B + T"),
        ((B * B + T) // (B + T), "(B*B + T)//(B + T)"),
        ((4 * B + 6) // 8, "(2*B + 3)//4"),
        ((B * T + T) // T, "B + 1"),
        ((B + T) // (B + T), "1"),
        ((6 * B + 5) // 3, "2*B + 1"),
        (1024 // B, "1024//B"),
        (B % 4, "B - 4*(B//4)"),
        (10 % B, "-(10//B)*B + 10"),
        (maximum(B, T), "max(B, T)"),
        (maximum(T, B), "max(B, T)"),
        (maximum(B, B + 1), "B + 1"),
        (minimum(B, B + 1), "B"),
        (minimum(2, 3), "2"),
        (2 * minimum(B, 4), "2*min(4, B)"),
        (-(B // 2), "-(B//2)"),
        (8 - (B // 3), "-(B//3) + 8"),
        (-B // 2, "(-B)//2"),
    ],
)
def test_a_size_has_one_canonical_text(size: Size, text: str) -> None:
    assert str(size) == text
    assert parse_size(text) is size or parse_size(text) == size


def test_equal_sizes_are_the_same_object() -> None:
    assert (B + T) * 2 is T * 2 + B + B
    assert len({B + T, T + B}) == 1
    assert B + T != B + H


@pytest.mark.parametrize(
    "size", [B - B, B * 0, (B + 3) - B, B // B, (2 * B) // B, B % 1, (B + T - T) // B]
)
def test_what_is_not_symbolic_is_an_int(size: Size) -> None:
    assert type(size) is int


def test_arithmetic_is_that_of_numbers() -> None:
    for size, choose in random_sizes(400):
        other = random_size(choose)
        divisor = choose.choice((1, 2, 5, B, T + 1))
        dims = random_dims(choose)

        def value(of: Size, dims: dict[str, int] = dims) -> int:
            return evaluate(of, dims)

        one, two, three = value(size), value(other), value(divisor)
        assert value(size + other) == one + two
        assert value(size - other) == one - two
        assert value(size * other) == one * two
        assert value(-size) == -one
        assert value(floor_divide(size, divisor)) == one // three
        assert value(size - divisor * floor_divide(size, divisor)) == one % three
        assert value(maximum(size, other)) == max(one, two)
        assert value(minimum(size, other)) == min(one, two)
        assert value(product((size, other, 3))) == one * two * 3


def test_rules_for_quotients_are_exact_for_all_small_numbers() -> None:
    for a, b, c, k, j in product_of(range(-3, 4), range(1, 4), range(1, 4), (-2, 0, 1), (-1, 0, 2)):
        size = ((a * B + k) // b + j * T) // c
        even = ((B + j * T + k) * (a * B + 1)) // (B + j * T + k)
        for n, t in product_of(range(-5, 6), range(-2, 3)):
            assert evaluate(size, {"B": n, "T": t}) == ((a * n + k) // b + j * t) // c
            assert evaluate(even, {"B": n, "T": t}) == a * n + 1


def test_a_quotient_that_comes_out_even_only_in_part_stays_exact() -> None:
    sizes = [B + 1, B - T, 2 * B + T, B * T + 1, B * B, B * T + T, 3 * B + 3]
    for one, other, more in product_of(sizes, sizes, (-1, 0, 1, B)):
        whole = one * other + more
        quotient = floor_divide(whole, other)
        for n, t in product_of(range(-4, 5), range(-4, 5)):
            dims = {"B": n, "T": t}
            if evaluate(other, dims):
                assert evaluate(quotient, dims) == evaluate(whole, dims) // evaluate(other, dims)


def test_a_size_is_read_back_from_its_text() -> None:
    for size, _ in random_sizes(400):
        assert parse_size(str(size)) == size


def test_a_text_has_the_precedence_of_the_language_and_of_python() -> None:
    """A minus binds more than `//`."""
    for size, _ in random_sizes(400):
        for negated in (size, -size):
            for dims in ({"B": 7, "T": 5, "H": 3}, {"B": 1, "T": 2, "H": 9}):
                found = eval(str(negated), {"max": max, "min": min, **dims})
                assert found == evaluate(negated, dims)


def test_substituting_and_evaluating_agree() -> None:
    for size, choose in random_sizes(200):
        dims = random_dims(choose)
        values: dict[str, Size] = {"B": T + 1, "T": 2 * H}
        replaced = {name: evaluate(value, dims) for name, value in values.items()}
        assert evaluate(substitute(size, values), dims) == evaluate(size, dims | replaced)
        assert substitute(size, dict(dims)) == evaluate(size, dims)


def test_names_are_those_of_all_dims_inside() -> None:
    assert names(maximum(B, T // 2) + H * 3) == {"B", "T", "H"}
    assert names(3) == frozenset()


def test_a_dim_without_a_number_is_missing_by_name() -> None:
    with pytest.raises(KeyError, match="T"):
        evaluate(B + T, {"B": 1})


def test_a_number_in_a_size_is_one_that_artifacts_hold() -> None:
    largest = B + (1 << 62)
    with pytest.raises(ModelError, match=r"a number in a size is beyond 2\*\*62"):
        _ = largest + largest


def test_dividing_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        floor_divide(B, 0)


def test_a_dim_shows_its_text() -> None:
    assert repr(B + 1) == "<Dim B + 1>"
    assert isinstance(B + 1, Dim)
