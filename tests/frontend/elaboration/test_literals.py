"""Numbers of a text take the dtype of what they meet, where it holds them; the error stands at them."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import CallError, ModelError
from tests.suites import together


def called(model: dlc.Model, entry: str, *arguments: object) -> object:
    """The numbers that an entry point gives, in lists."""
    return np.asarray(model[entry](*arguments)).tolist()


def test_whether_a_number_is_0_does_not_depend_on_how_large_it_is() -> None:
    numbers = "[bool(5000000000), bool(1e300), bool(0.0), bool([7000000000])[0]]"
    model = dlc.compile(text=f"dlc 1\nexport fn f() -> bool[4] = {numbers}\n")
    assert called(model, "f") == [True, True, False, True]


@together(
    ("text", "caret", "said"),
    [
        (
            "export fn f() -> f16 = 70000",
            "70000",
            "70000 does not fit f16, which holds -65504 to 65504",
        ),
        ("export fn f() -> f32 = 1e39", "1e39", "f64 holds it; infinity is written `inf`"),
        ("export fn f() -> bf16 = -3.4e38", "-3.4e38", "f32 holds it"),
        ("export fn f() -> f16 = f16(70000)", "f16(70000)", "does not fit f16"),
        (
            "export fn f(x: f16[2]) -> f16[2] = x * 70000",
            "*",
            "first: f32(x); infinity is written `inf`",
        ),
        ("export fn f(x: f32[2]) -> f32[2] = x + [1, 1e39]", "[1, 1e39]", "does not fit f32"),
        ("export fn f(x: f32 = 1e39) -> f32 = x", "1e39", "does not fit f32"),
        (
            "export fn f(x: f16[2]) -> f16[2] = x + 1e-9",
            "+",
            "1e-09 would be 0 in f16, whose smallest number is 6e-08",
        ),
        ("export fn f() -> bf16 = 1e-41", "1e-41", "f32 holds it"),
        ("export fn f() -> i8 = 300", "300", "i16 holds it"),
        ("export fn f() -> i8 = i8(300)", "i8(300)", "i16 holds it"),
        ("export fn f() -> u8[2] = u8([1, -1])", "[1, -1]", "-1 does not fit u8"),
        ("export fn f() -> i64 = 9223372036854775808", "9223372036854775808", "u64 holds it"),
        ("export fn f(x: u8) -> u8 = x + -1", "+", "to a wider dtype first: i16(x)"),
        ("export fn f() -> i32 = 0.5", "0.5", "write a whole number, or take a float dtype"),
        ("export fn f() -> i8[2] = [1, 300]", "[1, 300]", "300 does not fit i8"),
        ("export fn f() -> i32[2] = [1, [2]]", "[1, [2]]", "the rows of the list differ in depth"),
        ("export fn f() -> i32 = sum([[1, 2], [3]])", "[[1, 2], [3]]", "differ in length"),
        ("fn g(x: i8) -> i8 = x\nexport fn f() -> i8 = g(300)", "300", "i16 holds it"),
        ("export fn f() -> f64 = 1e200 * 1e200", "*", "is not a number that can be written"),
        (
            "module M() { param w: f16 = 70000 export fn f() -> f16 = w }",
            "70000",
            "does not fit f16",
        ),
        (
            "module M() { state n: f16[2] = constant(70000) export fn f() -> f16[2] = n }",
            "70000",
            "does not fit f16",
        ),
        (
            "module M() { param w: i8 = 0.5 export fn f() -> i8 = w }",
            "0.5",
            "0.5 is not of dtype i8",
        ),
    ],
)
def test_a_number_that_its_dtype_does_not_hold_is_refused_where_it_stands(
    text: str, caret: str, said: str
) -> None:
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=f"dlc 1\n{text}")
    (found,) = caught.value.diagnostics
    assert found.place is not None
    assert said in str(found)
    line = text.splitlines()[found.place.line - 2]
    assert line[found.place.column - 1 : found.place.end - 1] == caret


def test_the_largest_numbers_and_infinities_are_written() -> None:
    model = dlc.compile(
        text="dlc 1\n"
        "export fn f() -> f16[3] = [65519.9, -65504, inf]\n"
        "export fn g() -> f32[2] = [3.4028235e38, -inf]\n"
        "export fn h() -> bf16[2] = [3.39e38, inf]\n"
        "export fn i() -> f64 = inf * 1e300\n"
    )
    assert called(model, "f") == [65504, -65504, np.inf]
    assert called(model, "g") == [float(np.finfo(np.float32).max), -np.inf]
    assert called(model, "h") == [3.3895313892515355e38, np.inf]
    assert called(model, "i") == np.inf


def test_a_number_takes_the_dtype_that_it_is_converted_to_at_once() -> None:
    model = dlc.compile(
        text="dlc 1\n"
        "export fn f() -> f64[2] = f64([0.1, 5_000_000_000])\n"
        "export fn g() -> f64 = f64(1e39)\n"
        "export fn h(x: i32) -> f64[2] = f64([x, 1])\n"
        "export fn i() -> u64 = u64(18446744073709551615)\n"
        "export fn j() -> i64[2] = i64([-9223372036854775808, 5_000_000_000])\n"
    )
    assert called(model, "f") == [0.1, 5e9]
    assert called(model, "g") == 1e39
    assert called(model, "h", 7) == [7, 1]
    assert called(model, "i") == 2**64 - 1
    assert called(model, "j") == [-(2**63), 5_000_000_000]


def test_what_is_padded_gets_nothing_of_its_own_dtype() -> None:
    model = dlc.compile(
        text="dlc 1\n"
        "export fn f() -> bool[3] = pad([true], [1])\n"
        "export fn g(x: u8) -> u8[2] = pad([x], [(0, 1)])\n"
    )
    assert called(model, "f") == [False, True, False]
    assert called(model, "g", 7) == [7, 0]


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        ("f16[2]", [1, 70000], "holds 70000"),
        ("f32[2]", [-1e39, float("inf")], "holds -1e+39"),
        ("bf16[2]", [1.0, 3.4e38], "holds 3.4e+38"),
    ],
)
def test_python_numbers_do_not_become_infinite_either(
    dtype: str, value: list[float], held: str
) -> None:
    model = dlc.compile(text=f"dlc 1\nexport fn f(x: {dtype}) -> {dtype} = x")
    with pytest.raises(CallError, match="D0805") as caught:
        model["f"](value)
    assert held in str(caught.value)
    assert called(model, "f", [1, float("-inf")]) == [1, -np.inf]
