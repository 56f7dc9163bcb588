"""Sizes as text: what they are worth, and what is refused."""

from __future__ import annotations

import random

import pytest

from dlc.ir import dims
from dlc.runtime.artifact.size_expressions import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_VALUE,
    BadExpression,
    evaluate_all,
    parse,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("3*T + 1", 31),
        ("(H - 1)//2", 3),
        ("max(T, H) - min(T, H)", 2),
        ("-T + 2*H", 6),
        ("T*T//3%5", 3),
        ("(-7)//2", -4),
        ("-7//2", -4),
        ("-(7//2)", -3),
        ("-7%4", 1),
        ("((((T))))", 10),
    ],
)
def test_an_expression_is_worth_what_python_says(text: str, value: int) -> None:
    assert parse(text).evaluate({"T": 10, "H": 8}) == value


def test_the_canonical_sizes_of_the_compiler_are_read_with_the_same_value() -> None:
    random_ = random.Random(1)
    values = {"B": 3, "T": 17, "H": 224}
    for _ in range(500):
        size = _random_size(random_, 4)
        assert parse(str(size)).evaluate(values) == dims.evaluate(size, values), str(size)


def _random_size(random_: random.Random, depth: int) -> dims.Size:
    if depth == 0 or random_.random() < 0.2:
        return random_.choice([*map(dims.symbol, "BTH"), random_.randint(1, 9)])
    one, other = _random_size(random_, depth - 1), _random_size(random_, depth - 1)
    match random_.randrange(6):
        case 0:
            return one + other
        case 1:
            return one - other
        case 2:
            return one * other
        case 3:
            return one // random_.randint(1, 7)
        case 4:
            return dims.maximum(one, other)
        case _:
            return dims.minimum(one, other)


def test_entries_of_a_list_may_refer_to_earlier_ones() -> None:
    assert evaluate_all(["B", "4*$0", "max($1, $0)//3", "12"], {"B": 5}) == [5, 20, 6, 12]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a number or a name"),
        ("3 +", "expected a number or a name"),
        ("(T", r"expected '\)'"),
        ("T T", "expected the end"),
        ("max(T)", "expected ','"),
        ("T ** 2", "expected a number or a name"),
        ("1.5", "expected the end"),
        ("0x10", "expected the end"),
        ("T;import os", "expected the end"),
        ("$", "expected a number or a name"),
        ("٣", "expected a number or a name"),
        (str(MAX_VALUE + 1), "beyond"),
        ("9" * 40, "beyond"),
        ("1" + "+1" * MAX_LENGTH, "characters"),
        ("(" * (MAX_DEPTH + 2) + "1" + ")" * (MAX_DEPTH + 2), "nested"),
        ("max(" * (MAX_DEPTH + 2) + "1", "nested"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadExpression, match=why):
        parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Q", "needs the dim Q"),
        ("T//(T - 10)", "divides by 0"),
        ("T%0", "divides by 0"),
        ("$3", "later or never"),
        (f"{MAX_VALUE} + T", "beyond"),
        (f"-{MAX_VALUE} - T", "beyond"),
        ("*".join(["T"] * 20), "beyond"),
    ],
)
def test_what_has_no_value_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadExpression, match=why):
        parse(text).evaluate({"T": 10})


def test_an_entry_may_not_refer_to_itself_or_a_later_one() -> None:
    for sizes in (["$0"], ["1", "$2", "3"]):
        with pytest.raises(BadExpression, match="later or never"):
            evaluate_all(sizes, {})


def test_the_larger_of_two_entries_is_what_it_is_in_any_spelling() -> None:
    for text in ("max($0, $1)", "max( $0 , $1 )", "max(($0), $1)"):
        assert parse(text).steps == parse("max($0, $1)").steps
        assert parse(text).earlier == {0, 1}
        assert evaluate_all(["3", "T", text], {"T": 7})[2] == 7
    with pytest.raises(BadExpression):
        parse("max($0, $12345678901)")
