"""`update(x, at=[...], v)`: a place is written like an index, wherever the value stands."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate
from dlc.text.fmt import format_source

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("[0]", np.s_[0]),
        ("[0, ..]", np.s_[0, ...]),
        ("[.., 1]", np.s_[..., 1]),
        ("[1, :]", np.s_[1, :]),
        ("[:, 1:3]", np.s_[:, 1:3]),
        ("[1, 2]", np.s_[1, 2]),
        ("[::2, -1]", np.s_[::2, -1]),
    ],
)
@pytest.mark.parametrize("call", ["update(x, at=PLACE, 9)", "update(x, 9, at=PLACE)"])
def test_the_value_is_put_where_the_index_says(call: str, place: str, where: slice) -> None:
    text = f"dlc 1\nexport fn f(x: f32[3, 4]) -> f32[3, 4] = {call.replace('PLACE', place)}\n"
    wanted = X.copy()
    wanted[where] = 9
    assert np.asarray(dlc.compile(text=text).entry_points["f"](X)).tolist() == wanted.tolist()
    assert format_source(text, "f.dlm") == text


def test_a_list_behind_at_is_a_list_for_other_functions() -> None:
    text = "dlc 1\nfn g(x: f32, at: f32[2]) = x + sum(at)\nexport fn f() -> f32 = g(1, at=[2, 3])\n"
    assert dlc.compile(text=text).entry_points["f"]() == 6


def test_a_place_is_no_value() -> None:
    text = "dlc 1\nfn g(x, at) = x\nexport fn f(x: f32) -> f32 = g(x, at=[0, ..])\n"
    with pytest.raises(ModelError, match="D0320"):
        elaborate("f.dlm", text=text)
