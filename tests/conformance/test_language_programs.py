"""The five programs of the language at every level: what they compute, and the gradients they have."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.frontend.elaborate import elaborate
from tests.frontend.programs import Program, as_list

EXAMPLES = Path(__file__).parents[2] / "examples"


def every_level(quick: int) -> pytest.MarkDecorator:
    """All levels, one of them in the quick suite: a level is compiled there for some program."""
    others = tuple(level for level in range(4) if level != quick)
    return pytest.mark.parametrize(
        "levels", [(quick,), pytest.param(others, marks=pytest.mark.long)], ids=str
    )


Floats = NDArray[np.float64]


def weights_of(path: Path) -> dict[str, Floats]:
    """The weights that a model begins with."""
    views = dlc.compile(path, weights="init:0", level=0).weights
    return {name: as_list(views[name])[0].astype(np.float64) for name in views}


# LeNet ----------------------------------------------------------------------------------------------


def windows(x: Floats, size: int) -> Floats:
    """All windows of a picture [b, h, w, c], as [b, h', w', size, size, c]."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return seen.transpose(0, 1, 2, 4, 5, 3)


def pooled(x: Floats) -> Floats:
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).mean((2, 4))


def lenet(image: NDArray[np.uint8], w: dict[str, Floats]) -> Floats:
    """The probabilities of LeNet-5, in NumPy."""
    x = np.pad(image.astype(np.float64) / 255, ((0, 0), (2, 2), (2, 2), (0, 0)))
    for layer in ("features.0", "features.3"):
        filtered = np.tensordot(windows(x, 5), w[f"{layer}.w"], 3) + w[f"{layer}.b"]
        x = pooled(np.tanh(filtered))
    x = x.reshape(len(x), -1)
    for layer in ("head.0", "head.2"):
        x = np.tanh(x @ w[f"{layer}.w"] + w[f"{layer}.b"])
    scores = np.exp(x @ w["head.4.w"] + w["head.4.b"])
    return scores / scores.sum(-1, keepdims=True)


@every_level(3)
def test_lenet_sees_digits_as_its_layers_in_numpy_do(levels: Sequence[int]) -> None:
    path = EXAMPLES / "lenet.dlm"
    image = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1)).astype(np.uint8)
    digit, confidence = Program(path=path, weights="init:0", levels=levels).run("predict", image)
    expected = lenet(image, weights_of(path))
    np.testing.assert_array_equal(digit, expected.argmax(-1))
    np.testing.assert_allclose(confidence, expected.max(-1), rtol=1e-4)


@pytest.mark.long
def test_the_gradient_of_lenet_is_the_slope_of_its_loss() -> None:
    text = (EXAMPLES / "lenet.dlm").read_text()
    text = text[: text.index("train LeNet")].rstrip().removesuffix("}")
    text += """
  fn loss(image: f32[2, 28, 28, 1], label: i32[2]) -> f32 =
    mean(cross_entropy(logits(image), label))
  export fn value(image: f32[2, 28, 28, 1], label: i32[2]) -> f32 = loss(image, label)
  export fn slope(image: f32[2, 28, 28, 1], label: i32[2]) -> f32[2, 28, 28, 1] =
    grad(loss)(image, label)
}
"""
    program = Program(text, weights="init:0")
    random = np.random.default_rng(0)
    image = random.random((2, 28, 28, 1)).astype(np.float32)
    label = np.array([3, 7], np.int32)
    slope = program.result("slope", image, label, rtol=1e-4)
    way = slope / np.sqrt((slope**2).sum())
    ahead, behind = (
        float(program.evaluated("value", (image + step * way).astype(np.float32), label)[0])
        for step in (0.05, -0.05)
    )
    np.testing.assert_allclose((ahead - behind) / 0.1, np.sqrt((slope**2).sum()), rtol=1e-2)


# A stage of residual blocks -------------------------------------------------------------------------

STAGE = """dlc 1
import "residual.dlm" (Stage)
module Root() {
  use stage = Stage(3, 4, 3, stride=2)
  fn total(x: f32[2, 8, 8, 3]) -> f32 = sum(stage(x) ** 2)
  export fn f(x: f32[2, 8, 8, 3]) -> f32[2, 4, 4, 4] = stage(x)
  export fn g(x: f32[2, 8, 8, 3]) -> f32[2, 8, 8, 3] = grad(total)(x)
}
"""


@every_level(0)
def test_a_stage_of_residual_blocks_and_its_gradient(levels: Sequence[int], tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "residual.dlm", tmp_path)
    path = tmp_path / "root.dlm"
    path.write_text(STAGE)
    x = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)
    program = Program(path=path, weights="init:0", levels=levels)
    y, slope = program.result("f", x), program.result("g", x, rtol=1e-4)
    assert (y >= 0).all() and (y > 0).any()
    way = slope / np.sqrt((slope**2).sum())
    ahead, behind = (
        np.square(as_list(program.evaluated("f", (x + step * way).astype(np.float32))[0])[0]).sum()
        for step in (1e-3, -1e-3)
    )
    np.testing.assert_allclose((ahead - behind) / 2e-3, np.sqrt((slope**2).sum()), rtol=2e-2)


# The language models --------------------------------------------------------------------------------


@pytest.mark.long
def test_a_text_is_continued_by_the_same_bytes_everywhere_and_anew_by_another_seed() -> None:
    program = Program(path=EXAMPLES / "byte_lm.dlm", weights="init:0")
    ids = np.frombuffer(b"once upon a time", np.uint8).reshape(2, 8)
    first = program.result("write", ids, N=6)
    assert first.shape == (2, 6)
    again = as_list(program.model(3).write(ids, N=6, seed=1))[0]
    assert (again != first).any()


def gpt(ids: NDArray[np.int32], w: dict[str, Floats]) -> Floats:
    """The scores of the transformer, in NumPy."""

    def normed(x: Floats, name: str, k: int) -> Floats:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"blocks.{name}.scale"][k] + w[f"blocks.{name}.shift"][k]

    def dense(x: Floats, name: str, k: int) -> Floats:
        return x @ w[f"blocks.{name}.w"][k] + w[f"blocks.{name}.b"][k]

    b, t = ids.shape
    x = w["emb"][ids]
    width, heads = x.shape[-1], 4
    for k in range(len(w["blocks.n1.scale"])):
        q, kk, v = (
            part.reshape(b, t, heads, -1).transpose(0, 2, 1, 3)
            for part in np.split(dense(normed(x, "n1", k), "attn.qkv", k), 3, -1)
        )
        scores = q @ kk.transpose(0, 1, 3, 2) * (width / heads) ** -0.5
        scores = np.exp(np.where(np.tri(t, dtype=bool), scores, -np.inf))
        seen = scores / scores.sum(-1, keepdims=True) @ v
        x = x + dense(seen.transpose(0, 2, 1, 3).reshape(b, t, width), "attn.out", k)
        h = dense(normed(x, "n2", k), "up", k)
        x = x + dense(h * 0.5 * (1 + _erf(h / np.sqrt(2))), "down", k)
    return x @ w["emb"].T


def _erf(x: Floats) -> Floats:
    return np.vectorize(math.erf)(x)


@every_level(3)
def test_the_transformer_scores_as_its_layers_in_numpy_do(levels: Sequence[int]) -> None:
    path = EXAMPLES / "tiny_gpt.dlm"
    ids = np.random.default_rng(0).integers(0, 256, (2, 7)).astype(np.int32)
    found = Program(path=path, weights="init:0", levels=levels).result("logits", ids)
    np.testing.assert_allclose(found, gpt(ids, weights_of(path)), rtol=1e-3, atol=1e-3)


def test_without_its_weight_file_the_transformer_says_what_to_do() -> None:
    with pytest.raises(DlcError) as caught:
        dlc.compile(EXAMPLES / "tiny_gpt.dlm")
    (said,) = caught.value.diagnostics
    assert said.code == "D0501"
    assert "tiny.safetensors" in said.message
    assert said.help is not None and 'weights="init:0"' in said.help


@pytest.mark.parametrize("name", ["lenet", "byte_lm"])
def test_the_train_blocks_are_checked(name: str) -> None:
    made = elaborate(EXAMPLES / f"{name}.dlm")
    assert made.train is not None and made.warnings == ()
