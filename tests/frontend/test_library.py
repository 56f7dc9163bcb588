"""Every layer of the library `nn`: its values against NumPy, its gradient against differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.frontend.sources.imports import library_names
from tests.frontend.programs import Program, as_list, with_levels
from tests.frontend.test_library_values import CASES, FURTHER

Floats: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = Mapping[str, Floats]
Reference: TypeAlias = Callable[[Floats, Weights], Floats]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as it is made, the shape of its input, the shapes of its weights, what it computes."""

    made: str
    shape: tuple[int, ...]
    weights: Mapping[str, tuple[int, ...]]
    reference: Reference
    rank: int
    after: str = ""
    """What is taken from its result."""
    dtype: str = "f64"

    @property
    def name(self) -> str:
        return self.made.partition("(")[0]

    def program(self, weights: Weights, levels: Sequence[int]) -> Program:
        x = f"{self.dtype}{list(self.shape)}"
        y = f"{self.dtype}[{', '.join(['_'] * self.rank)}]"
        shape = list(self.reference(np.ones(self.shape), weights).shape)
        text = f"""dlc 1
import nn ({self.name})
module Root() {{
  use layer = {self.made}
  fn called(x: {x}) -> {y} = layer(x){self.after}
  fn total(x: {x}) -> {self.dtype} = sum(sin(called(x)))
  export fn forward(x: {x}) -> {self.dtype}{shape} = called(x)
  export fn slope(x: {x}) -> {x} = grad(total)(x)
}}
"""
        kind = np.float64 if self.dtype == "f64" else np.float32
        given = {f"layer.{name}": array.astype(kind) for name, array in weights.items()}
        return Program(text, weights=given, levels=levels)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def softmax(x: Floats) -> Floats:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def windows(x: Floats, sizes: tuple[int, ...], stride: int = 1) -> Floats:
    """All windows of [b, .., c] as [b, .., *sizes, c]."""
    rank = len(sizes)
    seen = np.lib.stride_tricks.sliding_window_view(x, sizes, axis=tuple(range(1, rank + 1)))
    seen = np.moveaxis(seen, rank + 1, -1)
    return seen[(slice(None), *[slice(None, None, stride)] * rank)]


def convolved(rank: int, stride: int = 1, padding: int = 0) -> Reference:
    def reference(x: Floats, w: Weights) -> Floats:
        pads = [(0, 0), *[(padding, padding)] * rank, (0, 0)]
        kernel = w["w"]
        seen = windows(np.pad(x, pads), kernel.shape[:rank], stride)
        return np.tensordot(seen, kernel, rank + 1) + w.get("b", np.zeros(1))

    return reference


def transposed(rank: int, stride: int) -> Reference:
    """Zeros between the places, then an ordinary convolution with the kernel turned around."""

    def reference(x: Floats, w: Weights) -> Floats:
        kernel = w["w"]
        apart = [(size - 1) * stride + 1 for size in x.shape[1:-1]]
        wide = np.zeros((x.shape[0], *apart, x.shape[-1]))
        wide[(slice(None), *[slice(None, None, stride)] * rank)] = x
        pads = [(0, 0), *[(size - 1, size - 1) for size in kernel.shape[:rank]], (0, 0)]
        turned = np.flip(kernel, tuple(range(rank)))
        return (
            np.tensordot(windows(np.pad(wide, pads), kernel.shape[:rank]), turned, rank + 1)
            + w["b"]
        )

    return reference


def normed(x: Floats, axes: tuple[int, ...]) -> Floats:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def grouped(x: Floats, w: Weights) -> Floats:
    parts = x.reshape(*x.shape[:-1], 2, -1)
    return normed(parts, (1, 2, 4)).reshape(x.shape) * w["scale"] + w["shift"]


def attended(causal: bool) -> Reference:
    def reference(x: Floats, w: Weights) -> Floats:
        b, t, d = x.shape
        q, k, v = (
            part.reshape(b, t, 2, d // 2).transpose(0, 2, 1, 3)
            for part in np.split(x @ w["qkv.w"] + w["qkv.b"], 3, -1)
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(d / 2)
        if causal:
            scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
        seen = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, d)
        return seen @ w["out.w"] + w["out.b"]

    return reference


def recurrent(x: Floats, w: Weights) -> Floats:
    h = np.zeros((x.shape[0], w["wh"].shape[0]))
    rows: list[Floats] = []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w["wx"] + w["b"] + h @ w["wh"])
        rows.append(h)
    return np.stack(rows, 1)


def long_short(x: Floats, w: Weights) -> Floats:
    h = c = np.zeros((x.shape[0], w["wh"].shape[0]))
    rows: list[Floats] = []
    for t in range(x.shape[1]):
        i, f, o, g = np.split(x[:, t] @ w["wx"] + w["b"] + h @ w["wh"], 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    return np.stack(rows, 1)


def gated(x: Floats, w: Weights) -> Floats:
    h = np.zeros((x.shape[0], w["wh"].shape[0]))
    rows: list[Floats] = []
    for t in range(x.shape[1]):
        r, u, n = np.split(x[:, t] @ w["wx"] + w["b"], 3, -1)
        hr, hu, hn = np.split(h @ w["wh"], 3, -1)
        keep, new = sigmoid(u + hu), np.tanh(n + sigmoid(r + hr) * hn)
        h = new + keep * (h - new)
        rows.append(h)
    return np.stack(rows, 1)


FIGURES: Mapping[str, tuple[int, ...]] = dict.fromkeys(
    ("scale", "shift", "running_mean", "running_var"), (4,)
)
RECURRENT = (2, 5, 3)


def gates(count: int) -> Mapping[str, tuple[int, ...]]:
    return {"wx": (3, 4 * count), "wh": (4, 4 * count), "b": (4 * count,)}


def pooled(reduce: Callable[..., Floats]) -> Reference:
    return lambda x, _: reduce(windows(x, (2, 2), 2), axis=(3, 4))


LAYERS = [
    Layer("Linear(3, 4, F=f64)", (2, 5, 3), {"w": (3, 4), "b": (4,)},
          lambda x, w: x @ w["w"] + w["b"], 3),
    Layer("Linear(3, 4, bias=false, F=f64)", (5, 3), {"w": (3, 4)}, lambda x, w: x @ w["w"], 2),
    Layer("Conv1d(3, 4, kernel=3, stride=2, padding=1, F=f64)", (2, 7, 3),
          {"w": (3, 3, 4), "b": (4,)}, convolved(1, 2, 1), 3),
    Layer("Conv2d(3, 4, kernel=[3, 2], F=f64)", (2, 6, 5, 3), {"w": (3, 2, 3, 4), "b": (4,)},
          convolved(2), 4),
    Layer('Conv2d(3, 4, kernel=3, padding="same", bias=false, F=f64)', (1, 5, 4, 3),
          {"w": (3, 3, 3, 4)}, convolved(2, padding=1), 4),
    Layer("Conv3d(2, 3, kernel=2, F=f64)", (1, 3, 4, 3, 2), {"w": (2, 2, 2, 2, 3), "b": (3,)},
          convolved(3), 5),
    Layer("ConvTranspose1d(3, 4, kernel=3, stride=2, F=f64)", (2, 4, 3),
          {"w": (3, 3, 4), "b": (4,)}, transposed(1, 2), 3),
    Layer("ConvTranspose2d(3, 4, kernel=2, stride=2, F=f64)", (1, 3, 4, 3),
          {"w": (2, 2, 3, 4), "b": (4,)}, transposed(2, 2), 4),
    Layer("ConvTranspose(3, 4, kernel=3, F=f64)", (1, 3, 4, 3), {"w": (3, 3, 3, 4), "b": (4,)},
          transposed(2, 1), 4),
    Layer("ConvTranspose3d(2, 3, kernel=2, F=f64)", (1, 2, 3, 2, 2),
          {"w": (2, 2, 2, 2, 3), "b": (3,)}, transposed(3, 1), 5),
    Layer("MaxPool(2)", (2, 6, 4, 3), {}, pooled(np.max), 4, dtype="f32"),
    Layer("AvgPool(2)", (2, 6, 4, 3), {}, pooled(np.mean), 4, dtype="f32"),
    Layer("GlobalMaxPool()", (2, 6, 4, 3), {}, lambda x, _: x.max((1, 2)), 2),
    Layer("GlobalAvgPool()", (2, 6, 4, 3), {}, lambda x, _: x.mean((1, 2)), 2),
    Layer("BatchNorm(4, F=f64)", (3, 5, 4), FIGURES,
          lambda x, w: (x - w["running_mean"]) / np.sqrt(w["running_var"] + 1e-5) * w["scale"]
          + w["shift"], 3),
    Layer("LayerNorm(4, F=f64)", (3, 5, 4), {"scale": (4,), "shift": (4,)},
          lambda x, w: normed(x, (-1,)) * w["scale"] + w["shift"], 3),
    Layer("RMSNorm(4, F=f64)", (3, 5, 4), {"scale": (4,)},
          lambda x, w: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w["scale"], 3),
    Layer("GroupNorm(2, 4, F=f64)", (2, 3, 5, 4), {"scale": (4,), "shift": (4,)}, grouped, 4),
    Layer("Dropout(0.5)", (3, 4), {}, lambda x, _: x, 2),
    Layer("Flatten()", (2, 3, 4), {}, lambda x, _: x.reshape(2, 12), 2),
    Layer("Attention(4, 2, F=f64)", (2, 5, 4),
          {"qkv.w": (4, 12), "qkv.b": (12,), "out.w": (4, 4), "out.b": (4,)}, attended(False), 3),
    Layer("Attention(4, 2, causal=true, F=f64)", (2, 5, 4),
          {"qkv.w": (4, 12), "qkv.b": (12,), "out.w": (4, 4), "out.b": (4,)}, attended(True), 3),
    Layer("RNN(3, 4, F=f64)", RECURRENT, gates(1), recurrent, 3, ".y"),
    Layer("LSTM(3, 4, F=f64)", RECURRENT, gates(4), long_short, 3, ".y"),
    Layer("LearnedPositions(6, 3, F=f64)", RECURRENT, {"w": (6, 3)}, lambda x, w: x + w["w"][:5], 3),
    Layer("GRU(3, 4, F=f64)", RECURRENT, gates(3), gated, 3, ".y"),
]  # fmt: skip

LOSSES: dict[str, Callable[[Floats, Floats], float | Floats]] = {
    "mse": lambda x, y: ((x - y) ** 2).mean(),
    "mae": lambda x, y: np.abs(x - y).mean(),
    "huber": lambda x, y: np.where(
        np.abs(x - y) < 1, 0.5 * (x - y) ** 2, np.abs(x - y) - 0.5
    ).mean(),
    "binary_cross_entropy": lambda x, y: (
        -(y * np.log(sigmoid(x)) + (1 - y) * np.log(1 - sigmoid(x))).mean()
    ),
    "hinge": lambda x, y: np.maximum(0, 1 - y * x).mean(),
    "kl_divergence": lambda x, y: (y * (np.log(y) - np.log(softmax(x)))).sum(-1).mean(),
}


def drawn(layer: Layer) -> tuple[Floats, Weights]:
    """An input and weights; variances are positive."""
    random = np.random.default_rng(len(layer.made))
    x = random.standard_normal(layer.shape)
    weights = {
        name: random.random(shape) + 0.5 if name == "running_var" else random.standard_normal(shape)
        for name, shape in layer.weights.items()
    }
    return x, weights


def test_every_name_of_the_library_is_tested() -> None:
    tested = {layer.name for layer in LAYERS} | set(LOSSES) | {"Embedding", "label_smoothing"}
    tested |= {name for case in CASES for name in case.imports.split(", ")} | FURTHER
    assert tested == library_names()


@pytest.mark.parametrize(("layer", "levels"), with_levels(LAYERS, lambda layer: layer.made))
def test_a_layer_computes_what_it_says_and_so_does_its_gradient(
    layer: Layer, levels: Sequence[int]
) -> None:
    x, weights = drawn(layer)
    program = layer.program(weights, levels)
    exact = layer.dtype == "f64"
    given = x if exact else x.astype(np.float32)
    rtol = 1e-9 if exact else 1e-5
    expected = layer.reference(given.astype(np.float64), weights)
    np.testing.assert_allclose(program.result("forward", given, rtol=rtol), expected, rtol=rtol)
    slope = program.result("slope", given, rtol=rtol)
    way = np.random.default_rng(1).standard_normal(layer.shape)
    ahead, behind = (
        np.sin(layer.reference(given + step * way, weights)).sum() for step in (1e-6, -1e-6)
    )
    np.testing.assert_allclose((slope * way).sum(), (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-5)


def test_an_embedding_gives_the_rows_of_its_table() -> None:
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    ids = np.array([[4, 0], [2, 2]], np.int32)
    program = Program(
        """dlc 1
import nn (Embedding)
module Root() {
  use table = Embedding(5, 3)
  export fn f(ids: i32[2, 2]) -> f32[2, 2, 3] = table(ids)
}
""",
        weights={"table.w": table},
    )
    np.testing.assert_array_equal(program.result("f", ids), table[ids])


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_what_it_says(name: str) -> None:
    program = Program(f"""dlc 1
import nn ({name})
export fn value(x: f32[4, 3], y: f32[4, 3]) -> f32 = {name}(x, y)
export fn slope(x: f32[4, 3], y: f32[4, 3]) -> f32[4, 3] = grad({name})(x, y)
""")
    random = np.random.default_rng(0)
    x, way = random.standard_normal((4, 3)), random.standard_normal((4, 3))
    y = softmax(random.standard_normal((4, 3)))
    given = x.astype(np.float32), y.astype(np.float32)
    exact = given[0].astype(np.float64), given[1].astype(np.float64)
    np.testing.assert_allclose(program.result("value", *given), LOSSES[name](*exact), rtol=1e-5)
    slope = program.result("slope", *given)
    ahead, behind = (LOSSES[name](exact[0] + step * way, exact[1]) for step in (1e-6, -1e-6))
    np.testing.assert_allclose((slope * way).sum(), (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-5)


def test_smooth_labels_keep_a_share_for_the_other_classes() -> None:
    found = as_list(
        Program("""dlc 1
import nn (label_smoothing)
export fn f(labels: i32[2]) -> f32[2, 4] = label_smoothing(labels, 4, by=0.2)
""")
        .model(2)
        .f(np.array([1, 3], np.int32))
    )[0]
    np.testing.assert_allclose(
        found, [[0.05, 0.85, 0.05, 0.05], [0.05, 0.05, 0.05, 0.85]], rtol=1e-6
    )


def test_a_nucleus_of_nothing_keeps_the_most_likely_class() -> None:
    model = Program("""dlc 1
import nn (sample)
export fn f(x: f32[3, 5]) -> i32[3] = sample(x, top_p=0.0)
""").model(2)
    logits = np.array([[0, 1, 2, 9, 3]] * 3, np.float32)
    np.testing.assert_array_equal(as_list(model.f(logits, seed=1))[0], [3, 3, 3])
