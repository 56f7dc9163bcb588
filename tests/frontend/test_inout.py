"""`inout` parameters in texts: where they may stand, and what `set` says of them."""

from __future__ import annotations

import pytest

from dlc.dialects import func
from dlc.driver.source.open import open_model
from dlc.errors import ModelError
from dlc.text.model.fmt import format_source

PUSH = "dlc 1\nexport fn f(x: f32, inout h: f32[4]) -> f32 {\n  BODY\n  return sum(h)\n}\n"


def opened(text: str) -> func.Func:
    found = open_model("model.dlm", text=text).module.symbol("f")
    assert isinstance(found, func.Func)
    return found


def refused(text: str) -> str:
    with pytest.raises(ModelError) as error:
        open_model("model.dlm", text=text)
    return str(error.value)


def test_an_entry_point_returns_what_it_sets_last() -> None:
    function = opened(PUSH.replace("BODY", "set h = h + x"))
    assert function.updates == {1: 1}
    assert function.hidden_results == 1
    assert len(function.results_returned) == 2


def test_a_number_is_set_in_every_place() -> None:
    assert opened(PUSH.replace("BODY", "set h = 0")).updates == {1: 1}


def test_the_formatter_writes_inout() -> None:
    text = PUSH.replace("BODY", "set h = h + x")
    assert format_source(text.replace("inout h", "inout   h"), "f.dlm") == text


def test_inout_alone_is_a_name() -> None:
    text = "dlc 1\nexport fn f(inout: f32) -> f32 = inout + 1\n"
    assert opened(text).input_names == ("inout",)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("", "D0228", "h is inout, and nothing sets it"),
        ("set h = h + x\n  set h = h - x", "D0228", "h is set twice"),
        ("set x = 2", "D0223", "x is no state"),
        ("set h = [x, x]", "D0321", "set where f32[4] is expected"),
        (
            "let y = scan k in 0..3 with s = x {\n    set h = h + s\n    next s = s + 1\n  }\n"
            "  set h = h + y",
            "D0228",
            "is in a loop or a branch",
        ),
    ],
)
def test_a_wrong_set_is_refused(body: str, code: str, message: str) -> None:
    found = refused(PUSH.replace("BODY", body))
    assert code in found
    assert message in found


@pytest.mark.parametrize(
    "text",
    [
        "fn g(inout h: f32) = h\nexport fn f(x: f32) -> f32 = g(x)",
        "module M(inout D = 2) {\n  export fn f(x: f32) -> f32 = x + D\n}",
        "export fn g(inout h: f32) -> f32 {\n  set h = h + 1\n  return h\n}\n"
        "export fn f(x: f32) -> f32 = g(x)",
    ],
)
def test_inside_a_text_nothing_is_changed(text: str) -> None:
    assert "D0227" in refused(f"dlc 1\n{text}\n")


def test_a_derivative_takes_the_values_from_before_the_call() -> None:
    function = opened(PUSH.replace("BODY", "set h = h + x"))
    function.forget_updates()
    assert not function.updates
    assert len(function.results_returned) == 1
