"""Training beside PyTorch's values, which `tests/frontend/recorded/record_training.py` records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.runtime.artifact.manifest import Plateau
from dlc.runtime.training.history import Record
from dlc.runtime.training.learning_rate import rate_after
from tests.suites import every

ROOT = Path(__file__).parents[3]
RECORDED = dict(np.load(ROOT / "tests/frontend/recorded/training.npz"))

MIXED = """\
dlc 1
import nn (LayerNorm, Linear)
dim B = 1..64

module Net() {{
  use net = chain(Linear(12, 24), LayerNorm(24), gelu, Linear(24, 5))
  export fn predict(x: f32[B, 12]) -> f32[B, 5] = net(x)
}}

train Net {{
  data = npz("none.npz", x="x", y="y")
  loss(x: f32[B, 12], y: i32[B]) = mean(cross_entropy(net(x), y))
  optimizer = adam(lr=1e-2)
  {settings}
}}
"""


def mixed(settings: str) -> dlc.Trainer:
    start = {n.removeprefix("start."): v for n, v in RECORDED.items() if n.startswith("start.")}
    return dlc.trainer(text=MIXED.format(settings=settings), weights=start)


def moved(name: str) -> float:
    """How far PyTorch's weights went, as a length."""
    parts = [RECORDED[f"{name}.{n}"] - RECORDED[f"start.{n}"] for n in weight_names()]
    return length(parts)


def weight_names() -> list[str]:
    return [name.removeprefix("start.") for name in RECORDED if name.startswith("start.")]


def length(parts: list[NDArray[np.generic]]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(part, dtype=np.float64)) for part in parts)))


@pytest.mark.parametrize(
    ("name", "settings", "loss", "way"),
    every(
        2,
        [
            # Adam divides by the size of a gradient: where that is nearly 0, its rounding decides the way.
            ("f32", "precision = f32", 1e-6, 1e-3),
            ("bf16", "precision = bf16", 2e-3, 0.1),
            ("f16", "precision = f16\n  loss_scale = dynamic(start=1024, every=3)", 5e-4, 0.02),
        ],
    ),
)
def test_mixed_precision_goes_where_autocast_and_its_scaler_go(
    name: str, settings: str, loss: float, way: float
) -> None:
    trainer = mixed(settings)
    x, y = RECORDED["x"].copy(), RECORDED["y"]
    if name != "f16":
        x[2] /= 1e5
    losses, scales = list[float](), list[float]()
    for k in range(len(x)):
        losses.append(trainer.step(x=x[k], y=y[k]))
        if name == "f16":
            scales.append(float(trainer.weights.tensor("$scale.value").values()))
            assert trainer.skipped == (k == 2)
    fine = np.isfinite(RECORDED[f"{name}.losses"])
    np.testing.assert_allclose(np.array(losses)[fine], RECORDED[f"{name}.losses"][fine], atol=loss)
    np.testing.assert_array_equal(np.array(losses)[~fine], RECORDED[f"{name}.losses"][~fine])
    if name == "f16":
        np.testing.assert_array_equal(scales, RECORDED["f16.scales"])
    apart = [trainer.trained()[n] - RECORDED[f"{name}.{n}"] for n in weight_names()]
    assert length(apart) < way * moved(name)


@pytest.mark.parametrize(
    ("number", "plateau"),
    [
        (0, Plateau("loss", factor="0.5", patience=1)),
        (1, Plateau("loss", factor="0.1", patience=0, cooldown=2, least="0.05")),
        (2, Plateau("accuracy", "max", factor="0.5", patience=1, threshold="0.1")),
        (3, Plateau("loss", factor="0.5", patience=2, threshold="0.05", threshold_mode="abs")),
    ],
)
def test_a_plateau_lowers_the_rate_where_pytorch_does(number: int, plateau: Plateau) -> None:
    measures = RECORDED["plateau.measures"]
    history = [Record(k + 1, k, {plateau.metric: float(m)}) for k, m in enumerate(measures)]
    rates = [rate_after(history[: k + 1], plateau) for k in range(len(history))]
    np.testing.assert_allclose(rates, RECORDED[f"plateau.{number}"], rtol=1e-12)


@pytest.mark.parametrize("block", every(2, ["discriminate", "generate"]))
def test_the_two_sides_of_a_gan_have_the_gradients_of_pytorch(block: str) -> None:
    text = (ROOT / "examples/digits_gan.dlm").read_text(encoding="utf-8")
    drawn = "normal([B, noise])"
    assert text.count(drawn) == 2
    for old, new in (
        (drawn, "z"),
        ("loss(image: u8[B, 8, 8, 1])", "loss(image: u8[B, 8, 8, 1], z: f32[B, noise])"),
        ('image="images")', 'image="images", z="z")'),
    ):
        text = text.replace(old, new)
    before = "gan.start."
    start = {n.removeprefix(before): v for n, v in RECORDED.items() if n.startswith(before)}
    trainer = dlc.trainer(text=text, block=block, weights=start)
    loss = trainer.step(image=RECORDED["gan.image"], z=RECORDED["gan.z"])
    assert loss == pytest.approx(float(RECORDED[f"gan.{block}.loss"]), rel=1e-6)
    wanted = {
        n.removeprefix(f"gan.{block}."): v
        for n, v in RECORDED.items()
        if n.startswith(f"gan.{block}.") and not n.endswith(".loss")
    }
    largest = max(np.abs(v).max() for v in wanted.values())
    for name, gradient in wanted.items():
        # The first moment of adam with beta1 = 0.5 is half of the first gradient.
        moment = trainer.weights.tensor(f"$optimizer.{block}:{name}.m").values()
        np.testing.assert_allclose(
            2 * moment.astype(np.float32), gradient, atol=1e-5 * largest, err_msg=name
        )
    still = "generator" if block == "discriminate" else "discriminator"
    trained = trainer.trained()
    assert all((trained[n] == v).all() for n, v in start.items() if n.startswith(still))
