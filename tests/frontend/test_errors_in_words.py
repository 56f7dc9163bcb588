"""Errors of operations, told in words of the text."""

from __future__ import annotations

import pytest

import dlc
from dlc.errors import ModelError

IN_WORDS = {
    "b + b": "`+` has no meaning for bool",
    "-b": "`-` has no meaning for bool",
    "sum(b)": "sum has no meaning for bool",
    "floor([1, 2])": "floor has no meaning for i32",
    "bit_and(x, x)": "bit_and has no meaning for f32",
    "square(b)": "square has no meaning for bool",
    "cumsum(b)": "cumsum has no meaning for bool",
    "arange(2, dtype=bool)": "arange has no meaning for bool",
    "randint(x, 2)": "the ends of randint are two scalars of one type, found f32[2] and i32",
}


@pytest.mark.parametrize("written", IN_WORDS)
def test_an_error_names_what_is_written_and_no_operation_of_the_ir(written: str) -> None:
    text = f"dlc 1\nexport fn f(x: f32[2], b: bool[2]) -> f32 = sum(f32({written}))"
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text)
    assert caught.value.diagnostics[0].message == IN_WORDS[written]
