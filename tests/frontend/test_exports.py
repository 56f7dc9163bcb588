"""What an entry point may return."""

from __future__ import annotations

import pytest

from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate


def test_two_results_of_one_name_are_refused_where_they_are_declared() -> None:
    text = "dlc 1\nexport fn f(x: f32[2]) -> (a: f32[2], a: f32[2]) = (x, x)\n"
    with pytest.raises(ModelError, match="two results of f are called a") as caught:
        elaborate("model.dlm", text=text)
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.line) == ("D0202", 2)
