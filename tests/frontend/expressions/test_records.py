"""Records whose names are weight paths: the gradient of a loss by all weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate

TEXT = """\
dlc 1
import nn (Linear)

module Net {
  use enc = chain(Linear(3, 4), tanh, Linear(4, 2))
  fn loss(x: f32[5, 3]) -> f32 = sum(enc(x))
  export fn slope(x: f32[5, 3]) -> (first: f32[3, 4], last: f32[2], both: f32) {
    let g = grad(loss, wrt=params)(x)
    let last = g.enc.2
    return (first = g.enc.0.w, last = last.b, both = sum(last.w) + sum(g.enc.0.b))
  }
}
"""


def test_a_path_is_followed_step_by_step() -> None:
    slope = dlc.compile(text=TEXT, weights="init:1").entry_points["slope"]
    first, last, _ = cast("Sequence[NDArray[np.float32]]", slope(np.ones((5, 3), np.float32)))
    assert first.shape == (3, 4)
    assert last.tolist() == [5, 5]


def test_a_step_that_leads_nowhere_is_told() -> None:
    with pytest.raises(ModelError, match="D0206"):
        elaborate("net.dlm", text=TEXT.replace("g.enc.0.w", "g.enc.1.w"))


@pytest.mark.parametrize(
    ("result", "use", "help"),
    [
        ("(logits: f32[2, 3])", "cross_entropy(net(x), y)", "take .logits of it"),
        ("(logits: f32[2, 3])", "sum(net(x) + 1)", "take .logits of it"),
        ("(a: f32[2, 3], b: f32[2, 3])", "sum(net(x))", "take one of .a, .b"),
        ("(f32[2, 3], f32[2, 3])", "sum(net(x))", "take one item: let (a, ..) = ..."),
    ],
)
def test_a_tuple_in_place_of_a_tensor_is_told_with_its_parts(
    result: str, use: str, help: str
) -> None:
    parts = {1: "x", 2: "(x, x)"}[result.count("f32")]
    text = f"dlc 1\nfn net(x: f32[2, 3]) -> {result} = {parts}\n"
    text += f"export fn loss(x: f32[2, 3], y: i64[2]) -> f32 = {use}\n"
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text)
    assert [found.help for found in caught.value.diagnostics] == [help]
