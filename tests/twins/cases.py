"""The examples that have a twin in PyTorch, with sizes, weights and batches that both sides are given.

It imports nothing but NumPy, since `record.py` reads it where PyTorch is and dlc is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = dict[str, NDArray[Any]]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RECORDED = Path(__file__).parent / "gradients.npz"
TRANSFORMERS = Path(__file__).parent / "transformers.npz"


@dataclass(frozen=True, slots=True)
class Case:
    """A loss of an example.

    `replaced` are words of its text for others: where the loss draws random numbers the batch brings
    them, as it does in PyTorch.
    """

    example: str
    batch: Callable[[np.random.Generator], Arrays]
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    loss: str = "loss"
    """What the twin calls it; in ours with two `train` blocks, the name of the block."""
    trained: str = ""
    """The part that is trained, where the rest is frozen."""

    @property
    def name(self) -> str:
        """The name under which it is recorded."""
        return self.example if self.loss == "loss" else f"{self.example}.{self.loss}"

    def inputs(self) -> Arrays:
        """Its batch, always the same."""
        return self.batch(np.random.default_rng(20))


def weight(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The values of a weight, which depend on its name in our text and on its shape."""
    random = np.random.default_rng(crc32(name.encode()))
    spread = shape[-2] ** -0.5 if len(shape) > 1 else 0.3
    return (spread * random.standard_normal(shape)).astype(np.float32)


def _digits(count: int, *, labels: bool = True) -> Arrays:
    with np.load(EXAMPLES / "data" / "digits.npz") as file:
        found = {"image": file["images"][:count]}
        return {**found, "label": file["labels"][:count]} if labels else found


def _labelled(random: np.random.Generator) -> Arrays:
    return _digits(8)


def _pictures(random: np.random.Generator) -> Arrays:
    return _digits(8, labels=False)


def _graph(random: np.random.Generator) -> Arrays:
    return _digits(40)


def _with_noise(*shape: int, count: int = 8) -> Callable[[np.random.Generator], Arrays]:
    def batch(random: np.random.Generator) -> Arrays:
        z = random.standard_normal((count, *shape), np.float32)
        return {**_digits(count, labels=False), "z": z}

    return batch


def _with_steps(random: np.random.Generator) -> Arrays:
    return {**_with_noise(64)(random), "t": random.integers(0, 100, 8, np.int32)}


def _letters(length: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {"ids": random.integers(1, 32, (4, length), np.uint8)}


IMAGE = "loss(image: u8[B, 8, 8, 1])"
GAN_NOISE = {IMAGE: "loss(image: u8[B, 8, 8, 1], z: f32[B, noise])", "normal([B, noise])": "z"}

CASES = (
    Case("llama", _letters(9), {"V": 32, "D": 16, "H": 4, "G": 2, "L": 2, "hidden": 24}),
    Case("vit", _labelled, {"D": 12, "H": 3, "L": 2}),
    Case(
        "unet", _with_noise(8, 8, 1, count=32), {"C": 4},
        {IMAGE: "loss(image: u8[B, 8, 8, 1], z: f32[B, 8, 8, 1])", "normal([B, 8, 8, 1])": "z"},
    ),
    Case(
        "vae", _with_noise(4), {"hidden": 16, "code": 4},
        {IMAGE: "loss(image: u8[B, 8, 8, 1], z: f32[B, code])", "normal([B, code])": "z"},
    ),
    Case(
        "diffusion", _with_steps, {"hidden": 16},
        {
            IMAGE: "loss(image: u8[B, 8, 8, 1], z: f32[B, 64], t: i32[B])",
            "    let t = randint(0, steps, [B])\n    let z = normal([B, 64])\n": "",
        },
    ),
    Case("seq2seq", _letters(6), {"V": 32, "D": 8, "H": 12}),
    Case("contrastive", _pictures, {"hidden": 16, "code": 8}),
    Case("gcn", _graph, {"hidden": 8}, {"Dropout(0.5)": "Dropout(0)"}),
    Case("digits_lion", _labelled, {"D": 12}),
    Case("digits_ema", _labelled, {"C": 8}),
    Case("digits_gan", _with_noise(16), {"hidden": 16}, GAN_NOISE, loss="discriminate",
        trained="discriminator",
    ),
    Case("digits_gan", _with_noise(16), {"hidden": 16}, GAN_NOISE, loss="generate",
        trained="generator",
    ),
)  # fmt: skip
