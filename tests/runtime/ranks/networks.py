"""Four small networks for tests of ranks: whole, split along an axis of a mesh, or on two stages."""

from __future__ import annotations

import re
from collections.abc import Mapping

# In the CNN some gradients are nearly 0. Where `eps` is below what they are rounded by, Adam divides
# rounding by rounding: with the usual 1e-8, microbatches of one example on a rank end 9e-5 off.
MLP = """\
dlc 1
dim B = 1..64
mesh {mesh}

module Mlp() {{
  param a: f32[6, 8] split {a} = normal(0.5)
  param b: f32[8, 2] split {b} = normal(0.5)
  export fn predict(x: f32[B, 6]) -> f32[B, 2] {{
    let h = tanh(x @ a)
    let y = if sum(x) > 0 then h @ b else (2 * h) @ b
    return y
  }}
}}

train Mlp {{
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 6], y: f32[B, 2]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
}}
"""
CNN = """\
dlc 1
import nn (BatchNorm)
dim B = 1..64
mesh {mesh}

module Cnn() {{
  param low: f32[3, 3, 1, 8] split (none, none, none, model) = normal(0.3)
  param high: f32[3, 3, 8, 4] = normal(0.2)
  param head: f32[16, 10] split (none, model) = normal(0.2)
  use norm = BatchNorm(8)
  export fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] {{
    let x = norm(conv(f32(image) / 8 - 1, low, padding=1)) |> relu |> max_pool2d(2)
    return reshape(max_pool2d(relu(conv(x, high, padding=1)), 2), [B, 16]) @ head
  }}
}}

train Cnn {{
  data = npz("digits.npz", image="images", label="labels")
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  optimizer = adam(lr=0.004, eps=0.001)
  batch = 8
}}
"""
GPT = """\
dlc 1
import nn (LayerNorm)
dim B = 1..8
const T = 8
mesh {mesh}

module Block(D, H) {{
  use n1 = LayerNorm(D)
  use n2 = LayerNorm(D)
  param qkv: f32[D, H, 3, D // H] split (none, model, none, none) = normal(0.1)
  param out: f32[H, D // H, D] = normal(0.1)
  param up: f32[D, 4 * D] split (none, model) = normal(0.1)
  param down: f32[4 * D, D] = normal(0.1)

  fn attend(x: f32[B, T, D]) -> f32[B, T, D] {{
    let (q, k, v) = rearrange(einsum("btd,dhne->btnhe", x, qkv), "b t n h e -> n b h t e")
    return einsum("bhte,hed->btd", attention(q, k, v, causal=true), out)
  }}

  fn call(x: f32[B, T, D]) -> f32[B, T, D] {{
    let h = x + attend(n1(x))
    return h + gelu(n2(h) @ up) @ down
  }}
}}

module Gpt(D = 16, H = 4, L = 2, V = {vocabulary}) {{
  param emb: f32[V, D] split (model, none) = normal(0.1)
  use blocks = L * Block(D, H)
  export fn predict(tokens: i32[B, T]) -> f32[B, T, V] {{
    let x = scan b in blocks with h = emb[tokens] {{ next h = b(h) }}
    return x @ transpose(emb)
  }}
}}

train Gpt {{
  data = npz("gpt.npz", tokens="x", labels="y")
  loss(tokens: i32[B, T], labels: i32[B, T]) = mean(cross_entropy(predict(tokens), labels))
  optimizer = adam(lr=0.003)
  batch = 8
}}
"""
LSTM = """\
dlc 1
dim B = 1..64
mesh {mesh}

module Counter() {{
  param wx: f32[4, 4, 8] split (none, none, model) = normal(0.3)
  param wh: f32[8, 4, 8] = normal(0.3)
  param head: f32[8, 1] = normal(0.3)
  export fn predict(x: f32[B, 6, 4]) -> f32[B, 1] {{
    let (h, _) = scan row in einsum("bti,igw->tbgw", x, wx)
        with h = zeros([B, 8], dtype=f32), c = zeros([B, 8], dtype=f32) {{
      let gates = row + einsum("bw,wgv->bgv", h, wh)
      let kept = sigmoid(gates[:, 1]) * c + sigmoid(gates[:, 0]) * tanh(gates[:, 3])
      next c = kept
      next h = sigmoid(gates[:, 2]) * tanh(kept)
    }}
    return h @ head
  }}
}}

train Counter {{
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 6, 4], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01, clip_norm=1)
  batch = 8
}}
"""

SPLIT: Mapping[str, str] = {"mlp": MLP, "cnn": CNN, "gpt": GPT, "lstm": LSTM}
"""The text of each network, to be given a mesh whose axis `model` its weights are split along."""
OPTIONS: Mapping[str, str] = {"a": "(none, model)", "b": "(model, none)", "vocabulary": "16"}
"""The splits of the MLP, and the tokens of the GPT."""
ON_STAGES: Mapping[str, Mapping[str, str]] = {
    "mlp": {
        "tanh(x @ a)": "on stage 0 { tanh(x @ a) }",
        "return y": "return on stage 1 { 2 * y }",
    },
    "cnn": {
        "let x = norm(": "let x = on stage 0 { norm(",
        "|> max_pool2d(2)\n": "|> max_pool2d(2) }\n",
        "return reshape(": "return on stage 1 { reshape(",
        "@ head": "@ head }",
    },
    "gpt": {
        "use blocks = L * Block(D, H)": (
            "use low = Block(D, H) on stage 0\n  use high = Block(D, H) on stage 1"
        ),
        "scan b in blocks with h = emb[tokens] { next h = b(h) }": (
            "high(low(on stage 0 { emb[tokens] }))"
        ),
    },
    "lstm": {
        "let (h, _) = scan": "let h = on stage 0 {\n    let (h, _) = scan",
        "return h @ head": "return h\n    }\n    return on stage 1 { h @ head }",
    },
}
"""What puts the two halves of each network on two stages."""


def split(name: str, mesh: str) -> str:
    """A network whose weights are split along the axis `model` of a mesh."""
    return SPLIT[name].format(mesh=mesh, **OPTIONS)


def whole(name: str) -> str:
    """A network that says nothing of ranks."""
    return re.sub(r"mesh .*\n| split \([a-z, ]*\)", "", split(name, "model = 1"))


def staged(name: str, mesh: str) -> str:
    """A network on the two stages of a mesh, with four microbatches."""
    text = whole(name).replace("\ndim B", f"\nmesh {mesh}\ndim B", 1)
    for old, new in {**ON_STAGES[name], "\n  batch = ": "\n  accumulate = 4\n  batch = "}.items():
        assert old in text, old
        text = text.replace(old, new, 1)
    return text
