"""What an entry point may return."""

from __future__ import annotations

import pytest

import dlc
from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate


def test_two_results_of_one_name_are_refused_where_they_are_declared() -> None:
    text = "dlc 1\nexport fn f(x: f32[2]) -> (a: f32[2], a: f32[2]) = (x, x)\n"
    with pytest.raises(ModelError, match="two results of f are called a") as caught:
        elaborate("model.dlm", text=text)
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.line) == ("D0202", 2)


@pytest.mark.parametrize(
    ("bounds", "said", "way_out"),
    [
        ("-1..2", "N cannot be -1", "a size is 0 or more: N = 0..2"),
        ("1..-3", "N cannot be -3", "a size is 0 or more: N = 0..1"),
        ("5..2", "no size is in 5..2", "write N = 2..5"),
        ("1..9223372036854775808", "which is beyond 2**62", "it may be any: N = 1.."),
        ("99999999999999999999..2", "is larger than any integer type", None),
    ],
)
def test_bounds_that_no_size_has_are_told_once(bounds: str, said: str, way_out: str | None) -> None:
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=f"dlc 1\ndim N = {bounds}\nexport fn f(x: f32[N]) -> f32[N] = x")
    (found,) = caught.value.diagnostics
    assert said in found.message
    assert way_out is None or (found.help is not None and way_out in found.help)


@pytest.mark.parametrize("size", ["N + {}", "{} * N", "N // {}", "{}"])
def test_a_size_that_no_artifact_holds_is_refused_where_it_stands(size: str) -> None:
    text = (
        f"dlc 1\ndim N\nexport fn f(x: f32[{size.format(5 * 10**18)}], y: f32[N]) -> f32 = sum(x)"
    )
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text)
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.line) == ("D0329", 3)
    assert "beyond 2**62" in found.message


def test_a_module_named_as_something_else_is_is_declared_twice() -> None:
    text = "dlc 1\ndim Net = 1..4\nmodule Net {\n  export fn f(x: f32[3]) -> f32 = sum(x)\n}\n"
    with pytest.raises(ModelError) as caught:
        elaborate("twice.dlm", text=text)
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.line) == ("D0202", 3)
