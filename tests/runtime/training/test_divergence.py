"""A training that diverges ends with the step and the first element that left the range."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import CallError

# The loss forgets numbers beyond 1, so that it stays finite whatever becomes of the weights.
TEXT = """\
dlc 1
dim B = 1..64
module Line {
  param w: f32[3, 2] = ones()
  fn call(x: f32[B, 3]) -> f32[B, 2] = x @ w
  export fn predict(x: f32[B, 3]) -> f32[B, 2] = call(x)
}
fn kept(x: f32[..]) -> f32[..] = where(x < 1, x, 1) with vjp(x, dy) = dy
train Line {
  data = npy("data")
  loss(x: f32[B, 3]) = mean(kept(call(x)))
  optimizer = momentum(lr=LR, momentum=0)
  batch = 4
  epochs = 3
}
"""
X = np.full((16, 3), 1e19, np.float32)


def diverged(lr: str) -> str:
    trainer = dlc.trainer(text=TEXT.replace("LR", lr))
    with pytest.raises(CallError) as caught:
        trainer.fit({"x": X})
    assert caught.value.diagnostics[0].code == "D0815"
    return caught.value.diagnostics[0].message


def test_a_weight_beyond_its_dtype_ends_the_training_though_the_loss_is_finite() -> None:
    assert diverged("1e20") == "w[0, 0] is -inf after step 1"


def test_a_training_whose_weights_stay_in_range_goes_on() -> None:
    trainer = dlc.trainer(text=TEXT.replace("LR", "1e-3"))
    assert len(trainer.fit({"x": X})) == 3
