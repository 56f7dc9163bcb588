"""The functions that train: what a step makes of weights and states, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate
from dlc.ir.core import Array, Evaluation
from dlc.ir.passes import Context
from dlc.ir.verify import verify
from dlc.passes.graph.autodiff import autodiff

Floats: TypeAlias = NDArray[np.float32]

LINEAR = """\
dlc 1
module Line() {
  param w: f32[3] = ones()
  fn call(x: f32[B, 3]) -> f32[B] = x @ w
  export fn predict(x: f32[B, 3]) -> f32[B] = call(x)
}
dim B = 1..64
"""


def train(optimizer: str, loss: str = "mean((call(x) - y) ** 2)", more: str = "") -> str:
    return f"""\
train Line {{
  data = npz("d.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B]) = {loss}
  optimizer = {optimizer}
  {more}
}}
"""


@dataclass(slots=True)
class Trained:
    """A model that is trained by evaluating its step; `weights` are those of now."""

    module: Module
    weights: dict[str, Floats]
    dims: dict[str, int]
    step_count: int = 0

    def step(self, **batch: Array) -> float:
        function = self._function("train_step")
        found = self._run(function, {**batch, "step": np.array(self.step_count, np.int32)})
        self.step_count += 1
        updates = function.attributes["dlc.updates"]
        assert isinstance(updates, tuple)
        for name, value in zip(updates, found, strict=True):
            if name:
                assert isinstance(name, str)
                self.weights[name] = value.astype(np.float32, copy=False)
        return float(found[0])

    def evaluate(self, **batch: Array) -> dict[str, float]:
        function = self._function("evaluate")
        found = self._run(function, batch)
        return {n: float(v) for n, v in zip(function.result_names, found, strict=True)}

    def _function(self, name: str) -> func.Func:
        found = self.module.symbol(name)
        assert isinstance(found, func.Func)
        return found

    def _run(self, function: func.Func, batch: Mapping[str, Array]) -> tuple[Array, ...]:
        given = {**batch, **self.weights}
        inputs = [given[name] for name in function.input_names]
        return Evaluation(self.dims).run(function.body, inputs)


def trained(text: str, weights: Mapping[str, Floats], **dims: int) -> Trained:
    made = elaborate("model.dlm", text=text, purpose="train").module
    verify(made)
    autodiff.run(made, Context())
    verify(made)
    return Trained(made, dict(weights), dims)


RNG = np.random.default_rng(5)
X: Floats = RNG.normal(size=(4, 3)).astype(np.float32)
Y: Floats = RNG.normal(size=4).astype(np.float32)
W: Floats = np.array([0.5, -1, 2], np.float32)


def slope(w: NDArray[np.floating]) -> NDArray[np.floating]:
    """The gradient of mean((x @ w - y)²)."""
    return 2 * X.T @ (X @ w - Y) / 4


def test_a_step_of_sgd_goes_against_the_gradient() -> None:
    model = trained(LINEAR + train("sgd(lr=0.1)"), {"w": W}, B=4)
    assert model.step(x=X, y=Y) == pytest.approx(np.mean((X @ W - Y) ** 2), rel=1e-6)
    np.testing.assert_allclose(model.weights["w"], W - 0.1 * slope(W), rtol=1e-5)


def test_adam_keeps_its_two_means_for_each_weight() -> None:
    zeros = np.zeros(3, np.float32)
    start = {"w": W, "$optimizer.w.m": zeros, "$optimizer.w.v": zeros}
    model = trained(LINEAR + train("adam(lr=0.1)"), start, B=4)
    w, m, v = W.astype(np.float64), np.zeros(3), np.zeros(3)
    for t in range(1, 4):
        model.step(x=X, y=Y)
        g = slope(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(model.weights["w"], w, rtol=1e-4)
    np.testing.assert_allclose(model.weights["$optimizer.w.m"], m, rtol=1e-4)
    np.testing.assert_allclose(model.weights["$optimizer.w.v"], v, rtol=1e-4)


def test_clip_norm_keeps_the_direction_and_limits_the_length() -> None:
    model = trained(LINEAR + train("sgd(lr=1, clip_norm=0.5)"), {"w": W}, B=4)
    model.step(x=X, y=Y)
    moved = W - model.weights["w"]
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-5)
    np.testing.assert_allclose(moved / 0.5, slope(W) / np.linalg.norm(slope(W)), rtol=1e-4)


def test_clip_value_limits_each_element() -> None:
    model = trained(LINEAR + train("sgd(lr=1, clip_value=0.25)"), {"w": W}, B=4)
    model.step(x=X, y=Y)
    np.testing.assert_allclose(W - model.weights["w"], np.clip(slope(W), -0.25, 0.25), rtol=1e-5)


def test_a_gradient_of_zero_survives_clipping() -> None:
    model = trained(LINEAR + train("sgd(clip_norm=1)", "sum(call(x)) * 0.0"), {"w": W}, B=4)
    model.step(x=X, y=Y)
    np.testing.assert_array_equal(model.weights["w"], W)


def test_a_schedule_sees_the_number_of_the_step() -> None:
    text = LINEAR + train("sgd(lr=staircase(start=1.0, every=1, factor=0.5))")
    model = trained(text, {"w": W}, B=4)
    model.step(x=X, y=Y)
    after = model.weights["w"]
    model.step(x=X, y=Y)
    np.testing.assert_allclose(after - model.weights["w"], 0.5 * slope(after), rtol=1e-4)


def test_an_optimizer_of_ones_own_works_like_those_of_the_library() -> None:
    own = """\
module halving() {
  state count: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set count = count + 1
    return p / 2
  }
}
"""
    start = {"w": W, "$optimizer.w.count": np.zeros(3, np.float32)}
    model = trained(LINEAR + own + train("halving()"), start, B=4)
    model.step(x=X, y=Y)
    model.step(x=X, y=Y)
    np.testing.assert_array_equal(model.weights["w"], W / 4)
    np.testing.assert_array_equal(model.weights["$optimizer.w.count"], [2, 2, 2])


def test_an_optimizer_may_leave_the_weights_as_they_are() -> None:
    own = """\
module recorder() {
  state gradient: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set gradient = g
    return p
  }
}
"""
    start = {"w": W, "$optimizer.w.gradient": np.zeros(3, np.float32)}
    model = trained(LINEAR + own + train("recorder()"), start, B=4)
    model.step(x=X, y=Y)
    np.testing.assert_array_equal(model.weights["w"], W)
    np.testing.assert_allclose(model.weights["$optimizer.w.gradient"], slope(W), rtol=1e-5)


def test_metrics_see_the_loss_and_a_model_that_does_not_train() -> None:
    text = """\
dlc 1
module Line() {
  param w: f32 = 2.0
  fn call(x: f32[4]) -> f32[4] = if training then 100 * w * x else w * x
}
train Line {
  data = npz("d.npz", x="x", y="y")
  loss(x: f32[4], y: f32[4]) = mean((call(x) - y) ** 2)
  metric root = sqrt(loss)
  metric right = sum(i32(call(x) == y))
  optimizer = sgd()
}
"""
    model = trained(text, {"w": np.array(2, np.float32)})
    x = np.array([1, 2, 3, 4], np.float32)
    y = np.array([2, 4, 6, 10], np.float32)
    assert model.evaluate(x=x, y=y) == {"loss": 1.0, "root": 1.0, "right": 3.0}


# States -------------------------------------------------------------------------------------------


def with_states(members: str, call: str) -> str:
    return f"""\
dlc 1
module Inner() {{
  param w: f32 = 1.0
  state seen: f32 = 0.0
  fn call(x: f32) -> f32 {{
    set seen = seen + x
    return w * x + 1
  }}
}}
module M() {{
  {members}
  fn call(x: f32) -> f32 = {call}
}}
train M {{
  data = npz("d.npz", x="x")
  loss(x: f32) = call(x)
  optimizer = sgd(lr=0)
}}
"""


def numbers(*values: float) -> Floats:
    (first, *rest) = values
    return np.array(values if rest else first, np.float32)


def test_a_state_is_set_once_at_the_end_of_each_step() -> None:
    text = with_states("use a = Inner()", "a(a(x))")
    model = trained(text, {"a.w": numbers(1), "a.seen": numbers(10)})
    model.step(x=numbers(3))
    # The later of two calls counts, and it starts from the old value.
    assert model.weights["a.seen"] == 10 + 4


def test_each_of_stacked_blocks_sets_its_own_slice() -> None:
    text = with_states("use a = 3 * Inner()", "scan block in a with h = x { next h = block(h) }")
    model = trained(text, {"a.w": numbers(1, 1, 1), "a.seen": numbers(10, 20, 30)})
    model.step(x=numbers(3))
    np.testing.assert_array_equal(model.weights["a.seen"], [13, 24, 35])


def test_a_loop_over_something_else_sets_what_its_last_round_says() -> None:
    text = with_states("use a = Inner()", "scan i in 0..3 with h = x { next h = a(h) }")
    model = trained(text, {"a.w": numbers(1), "a.seen": numbers(10)})
    model.step(x=numbers(3))
    assert model.weights["a.seen"] == 10 + 5


def test_blocks_named_by_number_set_their_part_of_the_stack() -> None:
    text = with_states("use a = 3 * Inner()", "a[2](a[0](x))")
    model = trained(text, {"a.w": numbers(1, 1, 1), "a.seen": numbers(10, 20, 30)})
    model.step(x=numbers(3))
    np.testing.assert_array_equal(model.weights["a.seen"], [13, 20, 34])


def test_a_block_named_by_number_may_be_set_in_a_loop() -> None:
    text = with_states("use a = 2 * Inner()", "scan i in 0..3 with h = x { next h = a[1](h) }")
    model = trained(text, {"a.w": numbers(1, 1), "a.seen": numbers(10, 20)})
    model.step(x=numbers(3))
    np.testing.assert_array_equal(model.weights["a.seen"], [10, 25])


@pytest.mark.parametrize(("x", "seen"), [(3, 13), (-3, 10)])
def test_a_branch_that_is_not_taken_sets_nothing(x: float, seen: float) -> None:
    text = with_states("use a = Inner()", "if x > 0 then a(x) else x")
    model = trained(text, {"a.w": numbers(1), "a.seen": numbers(10)})
    model.step(x=numbers(x))
    assert model.weights["a.seen"] == seen


def test_a_state_set_in_a_while_is_refused() -> None:
    text = with_states("use a = Inner()", "while x > 1 with x = x limit 9 { next x = a(x) / 3 }")
    with pytest.raises(ModelError) as caught:
        trained(text, {})
    assert [found.code for found in caught.value.diagnostics] == ["D0429"]


def test_only_what_changes_is_updated() -> None:
    text = with_states("use a = Inner()\n  param unused: f32 = 1.0", "a(x)")
    made = elaborate("model.dlm", text=text, purpose="train").module
    step = made.symbol("train_step")
    assert isinstance(step, func.Func)
    assert step.attributes["dlc.updates"] == ("", "a.seen", "a.w")
    assert "unused" not in step.input_names


def test_a_model_without_a_train_block_is_refused_for_training() -> None:
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=LINEAR, purpose="train")
    assert caught.value.diagnostics[0].code == "D0531"
