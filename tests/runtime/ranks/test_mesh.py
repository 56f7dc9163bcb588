"""Training by the mesh of a text, whose weights say how they are split: as one process trains."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.runtime.ranks.trainings import artifact, batches_of, losses

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
  param out: f32[H, D // H, D] split (model, none, none) = normal(0.1)
  param up: f32[D, 4 * D] split (none, model) = normal(0.1)
  param down: f32[4 * D, D] split (model, none) = normal(0.1)

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


def compare(text: str, mesh: dict[str, int], split: Shard | None = None) -> None:
    """Compare the losses of 20 steps among simulated ranks with those of one process."""
    batches = batches_of(text)
    alone = losses(artifact(text, 1), batches, None)
    ranks = Mesh(mesh)
    made = artifact(text, ranks.size, split)

    def work(at: SimulatedRanks) -> list[float]:
        return losses(made, batches, at)

    by_rank = run_simulated(ranks, work)
    assert all(found == by_rank[0] for found in by_rank)
    np.testing.assert_allclose(by_rank[0], alone, rtol=1e-6)


@pytest.mark.parametrize(
    ("mesh", "a", "b", "split"),
    [
        ("model = 2", "(none, model)", "(model, none)", None),
        ("data = 2, model = 2", "(none, model)", "(model, none)", None),
        ("data = 2, model = 2", "(data, model)", "(model, data)", None),
        ("data = 2, model = 2", "(none, model)", "(model, none)", "weights"),
        ("model = 2, data = 2", "(model, none)", "(none, model)", "optimizer"),
    ],
)
def test_weights_split_by_the_text(mesh: str, a: str, b: str, split: Shard | None) -> None:
    sizes = {name: int(size) for name, size in (each.split(" = ") for each in mesh.split(", "))}
    compare(MLP.format(mesh=mesh, a=a, b=b), sizes, split)


@pytest.mark.parametrize("vocabulary", [16, pytest.param(4096, marks=pytest.mark.long)])
def test_a_gpt_with_split_blocks(vocabulary: int) -> None:
    text = GPT.format(mesh="data = 2, model = 2", vocabulary=vocabulary)
    compare(text, {"data": 2, "model": 2})
