"""Sizes of the compiler as text: how they may be written, and what is refused."""

from __future__ import annotations

import pytest

from dlc.ir.dims import MAX_NESTING, Size, maximum, minimum, symbol
from dlc.runtime.artifact.size_expressions import MAX_DEPTH
from dlc.text.sizes import MAX_DIVISIONS, MAX_TERMS, parse_size
from tests.suites import together

B, T = symbol("B"), symbol("T")


@together(
    ("text", "complaint"),
    [
        ("", "expected a number or a name"),
        ("B +", "expected a number or a name"),
        ("B T", "expected the end in the size 'B T', found 'T'"),
        ("(B", "expected ')'"),
        ("B)", "expected the end"),
        ("max(B)", "expected ','"),
        ("B // 0", "divides by 0"),
        ("B.x", "expected the end"),
        ("2*-1", "found '-'"),
        ("+", "expected a number or a name"),
        ("(" * (MAX_DEPTH + 2) + "B", "is nested more than"),
        ("//".join(["B"] * (MAX_NESTING + 3)), f"divides more than {MAX_NESTING} times in turn"),
        ("+".join(["max(A, B)"] * (MAX_DIVISIONS + 1)), "divides more than"),
        ("*".join(["(A + B + C + D)"] * 10), f"is a sum of more than {MAX_TERMS} terms"),
        ("B % 2", "only artifacts have"),
        ("B + $0", "only artifacts have"),
        ("4611686018427387905", "is beyond 2**62"),
        ("4294967296*4294967296*B", "is beyond 2**62"),
    ],
)
def test_a_text_that_is_no_size_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is compared below
        parse_size(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (" 3 * T+1 ", 3 * T + 1),
        ("-B", -B),
        ("-(B - 2)", 2 - B),
        ("B*T//2", B * T // 2),
        ("B//2//3", B // 2 // 3),
        ("max", symbol("max")),
        ("min(B, max(T, 1))", minimum(B, maximum(T, 1))),
        ("_x1", symbol("_x1")),
    ],
)
def test_a_size_may_be_written_in_other_ways(text: str, size: Size) -> None:
    assert parse_size(text) == size
