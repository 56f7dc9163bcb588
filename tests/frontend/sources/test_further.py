"""After a mistake of syntax the rest of a text is looked at: types are told, names are not."""

from __future__ import annotations

import pytest

from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate


def told(text: str) -> list[tuple[str, int]]:
    """The code and the line of each error in a text."""
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text}")
    return [(d.code, d.place.line if d.place else 0) for d in caught.value.diagnostics]


def test_types_are_checked_in_functions_that_can_be_read() -> None:
    assert told(
        "fn broken(x) {\n  let y = (x +\n  return y\n}\n"
        "fn sound(x: f32[3]) -> f32[3] = x @ x\n"
        "export fn f(x: f32[3], y: f32[4]) -> f32[3] = x + y\n"
        "export fn g(x: f32[3]) -> f32[3] = sound(x)\n"
    ) == [("D0110", 3), ("D0321", 6), ("D0301", 7)]


@pytest.mark.parametrize(
    "text",
    [
        # a function, a member, a parameter, a size, a constant and an import that could not be read
        "fn a(x) { return x + }\nexport fn f(x: f32[3]) -> f32[3] = a(x)[0, 0, 0, 0]",
        "module M() {\n  use a = \n  export fn f(x: f32[3]) -> f32[3] = a(x)\n}",
        "module M() {\n  fn a(x) { return x + }\n  export fn f(x: f32[3]) -> f32[3] = a(x)[0, 0]\n}",
        "module M(n = ) {\n  param w: f32[n] = ones()\n  export fn f(x: f32[3]) -> f32[3] = x * w\n}",
        "dim B = ..\nexport fn f(x: f32[B]) -> f32[B] = x",
        "const a = [1, 2\nexport fn f(x: f32[3]) -> f32[3] = x + a",
        "import nn Linear\nmodule M() {\n  use a = Linear(3, 3)\n"
        "  export fn f(x: f32[3]) -> f32[3] = a(x)\n}",
    ],
)
def test_what_could_not_be_read_is_not_blamed_on_others(text: str) -> None:
    codes = {code[:3] for code, _ in told(text)}
    assert codes <= {"D01"}


def test_a_misspelt_keyword_is_read_as_what_was_meant_and_hides_nothing() -> None:
    assert told(
        "module M() {\n  parm w: f32[3] = zeros()\n"
        "  export fn f(x: f32[3]) -> f32[3] { lett y = x * w  retrun y + absent }\n}\n"
        "export fn g(x: f32[3], y: f32[4]) -> f32[3] = x + y\n"
    ) == [("D0113", 3), ("D0113", 4), ("D0113", 4), ("D0201", 4), ("D0301", 6)]


def test_a_missing_file_hides_no_types() -> None:
    assert told(
        'import "absent.dlm" (a)\nexport fn f(x: f32[3], y: f32[4]) -> f32[3] = a(x) + y\n'
        "export fn g(x: f32[3], y: f32[4]) -> f32[3] = x + y\n"
    ) == [("D0203", 2), ("D0301", 4)]


def test_the_axis_of_a_scan_is_blamed_where_it_is_named() -> None:
    text = (
        "export fn f(xs: f32[4, 2]) -> f32 =\n"
        "  scan t in xs along 5 with s = 0.0 { next s = s + sum(t) }\n"
    )
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text}")
    (error,) = caught.value.diagnostics
    assert (error.code, str(error.place)) == ("D0305", "model.dlm:3:22")


def test_a_condition_is_told_what_made_a_number_a_tensor() -> None:
    text = "export fn f(xs: f32[4]) -> f32[4] =\n  while s < 3 with s = 0 { next s = xs }\n"
    with pytest.raises(ModelError, match=r"s is f32\[4\]: its next value is") as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text}")
    (error,) = caught.value.diagnostics
    assert (error.code, str(error.place)) == ("D0401", "model.dlm:3:9")
    assert [str(label.place) for label in error.labels] == ["model.dlm:3:20"]
