"""Optimizers that know matrices from other weights, compiled, against their formulas in float64.

The formulas are those of the papers that `dlc doc` names. PyTorch's Adafactor and Muon took the same steps
(`tests/frontend/recorded/record.py`); its Muon rounds its products to bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import ModelError

Wide: TypeAlias = NDArray[np.float64]
Kept: TypeAlias = dict[str, Wide]
Update: TypeAlias = Callable[[Wide, Wide, int, Kept], Wide]

MODEL = """\
dlc 1
module Block() {
  param w: f32[4, 6] = normal(1)
  param b: f32[3] = normal(1)
}
module Bowl() {
  use blocks = 2 * Block()
  param w: f32[6, 4] = normal(1)
  param b: f32[3] = normal(1)
  param s: f32 = normal(1)
}
train Bowl {
  data = npz("none.npz", t="t")
  loss(t: f32[1, 1]) = (cost(w, t) + cost(b, t) + cost(s, t)
    + (scan block in blocks with all = 0.0 { next all = all + cost(block.w, t) + cost(block.b, t) }))
  optimizer = OPTIMIZER
}
## Its derivative is sin(t * p).
fn cost(p, t) = -sum(cos(t[0, 0] * p)) / t[0, 0]
"""
STEPS = 10
RATE, DECAY = 0.02, 0.1
SHAPES = {"w": (6, 4), "b": (3,), "s": (), "blocks.w": (2, 4, 6), "blocks.b": (2, 3)}
RANDOM = np.random.default_rng(3)
START = {k: RANDOM.standard_normal(shape).astype(np.float32) for k, shape in SHAPES.items()}


def trained(optimizer: str, start: dict[str, NDArray[np.float32]] = START) -> dict[str, Wide]:
    """Each weight after ten compiled steps, of which step t gives it `sin(t * p)`."""
    trainer = dlc.trainer(text=MODEL.replace("OPTIMIZER", optimizer), weights=start)
    for step in range(1, STEPS + 1):
        trainer.step(t=np.full((1, 1), step, np.float32))
    return {name: weight.astype(np.float64) for name, weight in trainer.trained().items()}


def stepped(update: Update, start: NDArray[np.float32]) -> Wide:
    """The weight after ten steps by a formula."""
    p, kept = start.astype(np.float64), Kept()
    for step in range(1, STEPS + 1):
        p = update(p, np.sin(step * p), step, kept)
    return p


def expected(update: Update) -> dict[str, Wide]:
    """Each weight after ten steps; every block of the stack by itself."""
    found = {k: stepped(update, v) for k, v in START.items() if "." not in k}
    for k in ("blocks.w", "blocks.b"):
        found[k] = np.stack([stepped(update, block) for block in START[k]])
    return found


def running(kept: Kept, name: str, new: Wide, beta: float) -> Wide:
    """`kept = beta * kept + (1 - beta) * new`, from 0."""
    kept[name] = beta * kept.get(name, np.zeros_like(new)) + (1 - beta) * new
    return kept[name]


def lion(p: Wide, g: Wide, t: int, kept: Kept) -> Wide:
    way = np.sign(0.9 * kept.get("m", np.zeros_like(g)) + 0.1 * g)
    running(kept, "m", g, 0.99)
    return p - RATE * (way + DECAY * p)


def adam(g: Wide, t: int, kept: Kept, eps: float) -> Wide:
    m, v = running(kept, "m", g, 0.9), running(kept, "v", g * g, 0.999)
    return m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + eps)


def lamb(p: Wide, g: Wide, t: int, kept: Kept) -> Wide:
    way = adam(g, t, kept, 1e-6) + DECAY * p
    return p - RATE * np.linalg.norm(p) / np.linalg.norm(way) * way


def orthogonalized(x: Wide) -> Wide:
    """By the quintic iteration, which works on the singular values alone."""
    u, s, v = np.linalg.svd(x / np.linalg.norm(x), full_matrices=False)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def muon(p: Wide, g: Wide, t: int, kept: Kept) -> Wide:
    if p.ndim != 2:
        return (1 - RATE * DECAY) * p - RATE * adam(g, t, kept, 1e-8)
    buffer = running(kept, "m", g, 0.95)
    turn = orthogonalized(0.05 * g + 0.95 * buffer) * max(1, p.shape[1] / p.shape[0]) ** 0.5
    return (1 - RATE * DECAY) * p - RATE * turn


def adafactor(p: Wide, g: Wide, t: int, kept: Kept) -> Wide:
    beta = 1 - t**-0.8
    if p.ndim == 2:
        rows = running(kept, "rows", (g * g).mean(1), beta)
        v = np.outer(rows, running(kept, "columns", (g * g).mean(0), beta)) / rows.mean()
    else:
        v = running(kept, "v", g * g, beta)
    way = g / np.sqrt(v)
    way = way / max(1, np.sqrt((way * way).mean()))
    size = min(RATE, t**-0.5) * max(1e-3, np.sqrt((p * p).mean()))
    return p - RATE * DECAY * p - size * way


@pytest.mark.parametrize("update", [lion, lamb, muon, adafactor], ids=lambda f: f.__name__)
def test_ten_steps_follow_the_formula_and_blocks_of_a_stack_are_apart(update: Update) -> None:
    other = f", other_lr={RATE}" if update is muon else ""
    found = trained(f"{update.__name__}(lr={RATE}, weight_decay={DECAY}{other})")
    for name, wanted in expected(update).items():
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=5e-6, err_msg=name)


@pytest.mark.parametrize(("name", "rate", "near"), [("adafactor", 0.1, 5e-6), ("muon", 0.02, 4e-3)])
def test_ten_steps_are_those_of_pytorch(name: str, rate: float, near: float) -> None:
    with np.load(Path(__file__).parents[1] / "recorded" / "library.npz") as kept:
        start, wanted = kept[f"optimizer/{name}/w"], kept[f"optimizer/{name}/w/10"]
    # PyTorch's weights are [outputs, inputs].
    found = trained(f"{name}(lr={rate}, weight_decay=0.1)", START | {"w": start.T.copy()})
    np.testing.assert_allclose(found["w"].T, wanted, atol=near)


def test_adafactor_keeps_a_number_for_each_row_and_column() -> None:
    trainer = dlc.trainer(text=MODEL.replace("OPTIMIZER", "adafactor()"), weights=START)
    shapes = {
        name.removeprefix("$optimizer."): trainer.weights.tensor(name).shape
        for name in trainer.weights
        if name.startswith("$optimizer.")
    }
    assert shapes == {
        "w.rows": (6, 1), "w.columns": (1, 4), "b.v": (3,), "s.v": (),
        "blocks.w.rows": (2, 4, 1), "blocks.w.columns": (2, 1, 6), "blocks.b.v": (2, 3),
    }  # fmt: skip


def test_a_state_with_more_axes_than_the_weight_is_refused() -> None:
    own = """
module rows(lr = 0.1) {
  state m: f32[.., _, 1] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] = p - lr * m
}
"""
    with pytest.raises(ModelError, match=r"2 axes behind `\.\.` does not fit the weight f32\[3\]"):
        dlc.trainer(text=MODEL.replace("OPTIMIZER", "rows()") + own, weights=START)
