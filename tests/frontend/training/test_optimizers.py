"""The optimizers and schedules of the library, compiled, against their formulas in float64.

The formulas are those of PyTorch 2 (`torch.optim`), written down once more in NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import ModelError
from dlc.frontend.sources.imports import library_source
from dlc.text.model import ast
from dlc.text.model.parser import parse_or_raise
from tests.documents import ROOT
from tests.suites import each_value, every

Wide: TypeAlias = NDArray[np.float64]
Update: TypeAlias = "Callable[[Optimizer, Wide, Wide, int], Wide]"

MODEL = """\
dlc 1
module Bowl() {
  param w: f32[6] = normal(1)
  param b: f32[2] = normal(1)
  fn call(x: f32[1, 6]) -> f32 = sum(x[0] * sin(w)) + sum(b ** 4)
}
train Bowl {
  data = npz("none.npz", x="x")
  loss(x: f32[1, 6]) = call(x)
  optimizer = OPTIMIZER
}
"""
STEPS = 10
RANDOM = np.random.default_rng(3)
START = {name: RANDOM.normal(size=size).astype(np.float32) for name, size in (("w", 6), ("b", 2))}
X = RANDOM.normal(size=(1, 6)).astype(np.float32)


def slopes(weights: dict[str, Wide]) -> dict[str, Wide]:
    """The gradient of the loss."""
    return {"w": X[0].astype(np.float64) * np.cos(weights["w"]), "b": 4 * weights["b"] ** 3}


def trained(optimizer: str) -> dict[str, list[Wide]]:
    """Each weight at the start and after each of ten compiled steps."""
    trainer = dlc.trainer(text=MODEL.replace("OPTIMIZER", optimizer), weights=START)
    trainer.total_steps = STEPS
    found = [trainer.trained()]
    for _ in range(STEPS):
        trainer.step(x=X)
        found.append(trainer.trained())
    return {name: [weights[name].astype(np.float64) for weights in found] for name in START}


# Formulas -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Optimizer:
    """One of `torch.optim`: an update of a weight, with what it keeps for it."""

    update: Update
    lr: float
    decay: float = 0.0
    kept: dict[str, Wide] = field(default_factory=dict[str, Wide])

    def running(self, name: str, old: float, new: Wide) -> Wide:
        """`kept = old * kept + new`, from 0."""
        self.kept[name] = old * self.kept.get(name, np.zeros_like(new)) + new
        return self.kept[name]


def sgd(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    return p - o.lr * (g + o.decay * p)


def momentum(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    return p - o.lr * o.running("buffer", 0.9, g + o.decay * p)


def nesterov(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    d = g + o.decay * p
    return p - o.lr * (d + 0.9 * o.running("buffer", 0.9, d))


def rmsprop(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    d = g + o.decay * p
    return p - o.lr * d / (np.sqrt(o.running("square", 0.9, 0.1 * d * d)) + 1e-8)


def adagrad(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    d = g + o.decay * p
    return p - o.lr * d / (np.sqrt(o.running("sum", 1, d * d)) + 1e-10)


def adam(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    d = g + o.decay * p
    m, v = o.running("m", 0.9, 0.1 * d), o.running("v", 0.999, 0.001 * d * d)
    return p - o.lr / (1 - 0.9**t) * m / (np.sqrt(v) / math.sqrt(1 - 0.999**t) + 1e-8)


def adamw(o: Optimizer, p: Wide, g: Wide, t: int) -> Wide:
    return adam(Optimizer(adam, o.lr, 0, o.kept), p * (1 - o.lr * o.decay), g, t)


def clipped(gradients: dict[str, Wide], norm: float, value: float) -> dict[str, Wide]:
    """As `clip_grad_value_`, then `clip_grad_norm_` do."""
    gradients = {name: np.clip(g, -value, value) for name, g in gradients.items()}
    whole = math.sqrt(sum(float(np.sum(g * g)) for g in gradients.values()))
    return {name: g * min(1.0, norm / whole) for name, g in gradients.items()}


def expected(
    update: Update,
    lr: float,
    decay: float = 0,
    norm: float = math.inf,
    value: float = math.inf,
) -> dict[str, list[Wide]]:
    """Each weight at the start and after each of ten steps, by the formulas."""
    weights = {name: start.astype(np.float64) for name, start in START.items()}
    optimizers = {name: Optimizer(update, lr, decay) for name in weights}
    found = {name: [value] for name, value in weights.items()}
    for t in range(1, STEPS + 1):
        gradients = clipped(slopes(weights), norm, value)
        for name, optimizer in optimizers.items():
            weights[name] = update(optimizer, weights[name], gradients[name], t)
            found[name].append(weights[name])
    return found


MATRIX_OPTIMIZERS = {"lion", "lamb", "muon", "adafactor"}
"""Those of `test_matrix_optimizers.py`."""
FORMULAS: dict[str, Update] = {
    "sgd": sgd,
    "momentum": momentum,
    "nesterov": nesterov,
    "rmsprop": rmsprop,
    "adagrad": adagrad,
    "adam": adam,
    "adamw": adamw,
}


@pytest.mark.parametrize(("decay", "name"), each_value([0.0, 0.1], FORMULAS))
def test_ten_steps_follow_the_formula(name: str, decay: float) -> None:
    found = trained(f"{name}(lr=0.02, weight_decay={decay})")
    for weight, values in expected(FORMULAS[name], 0.02, decay).items():
        for one, other in zip(found[weight], values, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("clip", "norm", "value"),
    [
        ("clip_norm=0.5", 0.5, math.inf),
        ("clip_value=0.3", math.inf, 0.3),
        ("clip_norm=0.5, clip_value=0.3", 0.5, 0.3),
        ("clip_norm=1e6", 1e6, math.inf),
    ],
)
def test_gradients_are_clipped_by_value_and_then_by_their_common_norm(
    clip: str, norm: float, value: float
) -> None:
    found = trained(f"momentum(lr=0.02, {clip})")
    for name, values in expected(momentum, 0.02, 0, norm, value).items():
        np.testing.assert_allclose(found[name][-1], values[-1], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_weights_of_fewer_bits_are_updated_in_f32_and_rounded(dtype: str) -> None:
    text = MODEL.replace("w: f32[6]", f"w: {dtype}[6]").replace("sin(w)", "sin(f32(w))")
    trainer = dlc.trainer(text=text.replace("OPTIMIZER", "adam(lr=0.25)"))
    before = trainer.weights.tensor("w").values().astype(np.float64)
    trainer.step(x=X)
    found = trainer.weights.tensor("w")
    assert found.dtype == dtype
    moved = before - 0.25 * np.sign(X[0] * np.cos(before))
    np.testing.assert_allclose(found.values().astype(np.float64), moved, rtol=2**-8)
    assert trainer.weights.tensor("$optimizer.w.m").dtype == "f32"


@pytest.mark.parametrize("dtype", every(2, ["f16", "bf16"]))
def test_what_rounding_takes_off_a_weight_is_added_again(dtype: str) -> None:
    """Steps that are far below the precision of the weight, each of which alone would leave it as it is."""
    text = MODEL.replace("sum(x[0] * sin(w))", "sum(x[0] * f32(w))")
    text = text.replace("OPTIMIZER", "momentum(lr=1e-5, momentum=0.5)")
    narrow = dlc.trainer(text=text.replace("w: f32[6]", f"w: {dtype}[6]"), weights="init:1")
    start = narrow.weights.tensor("w").values().astype(np.float32)
    wide = dlc.trainer(text=text, weights={"w": start, "b": narrow.trained()["b"]})
    for trainer in (narrow, wide):
        for _ in range(300):
            # What a weight receives is rounded like it: these numbers are not.
            trainer.step(x=np.full((1, 6), 0.5, np.float32))
    moved = wide.weights.tensor("w").values().astype(np.float32)
    assert np.abs(moved - start).min() > 2e-3
    found = narrow.weights.tensor("w").values().astype(np.float32)
    rest = narrow.weights.tensor("$optimizer.w.$rest").values().astype(np.float32)
    np.testing.assert_array_equal(found + rest, moved)
    np.testing.assert_array_equal(found, dlc.Tensor(moved, dtype).values().astype(np.float32))


# Schedules ----------------------------------------------------------------------------------------


def rates(schedule: str) -> list[float]:
    """The learning rate of each of ten steps, seen in how far a weight goes."""
    found = trained(f"sgd(lr={schedule})")["w"]
    return [float(np.median((old - new) / (X[0] * np.cos(old)))) for old, new in pairwise(found)]


def constant(step: int, warmup: int) -> float:
    return 0.1 * min(1, (step + 1) / max(warmup, 1))


def staircase(step: int, warmup: int) -> float:
    return constant(step, warmup) * 0.5 ** (step // 3)


def slope(step: int, warmup: int) -> float:
    down = 0.1 * (1 - min(1, (step - warmup) / (8 - warmup)))
    return constant(step, warmup) if step < warmup else down


def cosine(step: int, warmup: int) -> float:
    down = 0.02 + 0.04 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup)))
    return constant(step, warmup) if step < warmup else down


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        ("constant(peak=0.1", constant),
        ("staircase(start=0.1, every=3, factor=0.5", staircase),
        ("slope(peak=0.1, steps=8", slope),
        ("cosine(peak=0.1, floor=0.02", cosine),
    ],
    ids=["constant", "staircase", "slope", "cosine"],
)
def test_schedules_give_every_step_its_rate(
    schedule: str, rate: Callable[[int, int], float], warmup: int
) -> None:
    wanted = [rate(step, warmup) for step in range(STEPS)]
    assert rates(f"{schedule}, warmup={warmup})") == pytest.approx(wanted, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["fading", "cosine", "rate"])
def test_a_schedule_of_ones_own_may_ask_for_all_steps_and_be_called_as_one_of_the_library(
    name: str,
) -> None:
    own = f"fn {name}(step: i32) -> f32 = 0.1 * (1 - f32(step) / f32(total_steps))\n"
    text = MODEL.replace("module", own + "module").replace("OPTIMIZER", f"sgd(lr={name})")
    trainer = dlc.trainer(text=text, weights=START)
    trainer.total_steps = 2
    for rate in (0.1, 0.05):
        before = trainer.trained()["w"].astype(np.float64)
        trainer.step(x=X)
        moved = before - trainer.trained()["w"].astype(np.float64)
        np.testing.assert_allclose(moved, rate * X[0] * np.cos(before), rtol=1e-4, atol=1e-7)


def test_the_page_on_training_lists_them_all_with_their_defaults() -> None:
    library = parse_or_raise(library_source("optimizers.dlm"))
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)[^`]*` \|(.*)\|$", page, flags=re.M))
    modules = [item for item in library.items if isinstance(item, ast.Module)]
    assert {module.name for module in modules} == FORMULAS.keys() | MATRIX_OPTIMIZERS
    for module in modules:
        for parameter in module.parameters:
            if parameter.name not in ("lr", "clip_norm", "clip_value", "weight_decay"):
                said = rows["adam"] if module.name == "adamw" else rows[module.name]
                assert f"`{parameter.name} = " in said
    assert {"constant", "staircase", "slope", "cosine"} <= rows.keys()


DOUBLE = """\
dlc 1
module plain(lr = 0.25) {
  state before: f64[..] = zeros()
  fn update(p: f64[..], g: f64[..], step: i32) -> f64[..] {
    set before = p
    return p - lr * g
  }
}
module Bowl() {
  param w: f64[6] = zeros()
  fn call(x: f64[1, 6]) -> f64 = sum(x[0] * w)
}
train Bowl {
  data = npz("none.npz", x="x")
  loss(x: f64[1, 6]) = call(x)
  optimizer = OPTIMIZER
}
"""


def test_weights_of_f64_are_trained_by_an_optimizer_of_f64() -> None:
    trainer = dlc.trainer(text=DOUBLE.replace("OPTIMIZER", "plain()"), weights="init:1")
    before = trainer.trained()["w"]
    x = np.arange(6, dtype=np.float64)[None] / 3
    trainer.step(x=x)
    found = trainer.trained()["w"]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, before - 0.25 * x[0])


def test_an_optimizer_of_the_library_refuses_weights_of_f64_and_says_what_to_write() -> None:
    with pytest.raises(ModelError) as caught:
        dlc.trainer(text=DOUBLE.replace("OPTIMIZER", "sgd()"), weights="init:1")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "D0535"
    assert "fn update(p: f64[..], g: f64[..], step)" in str(diagnostic.help)


def test_what_is_told_to_be_an_optimizer_is_one() -> None:
    with pytest.raises(ModelError) as caught:
        dlc.trainer(text=DOUBLE.replace("OPTIMIZER", "none()"), weights="init:1")
    (diagnostic,) = caught.value.diagnostics
    names = str(diagnostic.help).removeprefix("there are ").split(", ")
    assert {"plain", "sgd", "adamw"} <= set(names) and "Bowl" not in names
