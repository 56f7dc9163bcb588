"""What a text demands of the compiled program is kept, or the model is refused."""

from __future__ import annotations

import pytest

import dlc
from dlc.driver.make import Wanted
from dlc.driver.show import Shown, show_stage
from dlc.errors import Unsupported

DEMANDING = """\
dlc 1
import nn (Linear)

module M {
  use first = Linear(4, 4) on cuda:0
  export fn f(x: f32[2, 4]) -> f32[2, 4] on cuda:1 {
    let h = on cpu { first(x) }
    return on cpu:1 { h + 1 }
  }
}
"""


def test_every_device_without_code_is_told_at_once_with_its_place() -> None:
    with pytest.raises(Unsupported) as caught:
        dlc.compile(text=DEMANDING)
    told = [(found.code, str(found.place), found.message) for found in caught.value.diagnostics]
    assert told == [
        ("D0707", "model.dlm:5:31", "there is no code for cuda:0 yet"),
        ("D0707", "model.dlm:6:45", "there is no code for cuda:1 yet"),
    ]


def test_the_levels_of_a_demanding_model_can_be_looked_at() -> None:
    assert "nn.linear" in show_stage(Wanted("model.dlm", text=DEMANDING), Shown("graph"))


def test_the_one_device_that_there_is_may_be_named() -> None:
    text = "dlc 1\nexport fn f(x: f32) -> f32 on cpu = on cpu:0 { x + 1 }\n"
    assert dlc.compile(text=text).f(2.0) == 3.0
