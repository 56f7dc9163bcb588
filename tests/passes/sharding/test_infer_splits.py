"""Splits that the text leaves open: they follow from those that it declares."""

from __future__ import annotations

import pytest

from dlc.dialects import weight
from dlc.dialects.text_mesh import read_text_mesh
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.driver.source.source_model import SourceModel
from dlc.passes.sharding.infer_splits import infer_splits

BLOCK = """\
dlc 1
import nn (LayerNorm)
dim B = 1..8
const T = 8
mesh data = 2, model = 2

module Block(D, H) {
  use n1 = LayerNorm(D)
  use n2 = LayerNorm(D)
  param wq: f32[D, H, D // H] split (none, model, none) = normal(0.1)
  param wk: f32[D, H, D // H] = normal(0.1)
  param wv: f32[D, H, D // H] = normal(0.1)
  param bq: f32[H, D // H] = zeros()
  param bk: f32[H, D // H] = zeros()
  param bv: f32[H, D // H] = zeros()
  param out: f32[H, D // H, D] = normal(0.1)
  param bo: f32[D] = zeros()
  param up: f32[D, 4 * D] split (none, model) = normal(0.1)
  param b1: f32[4 * D] = zeros()
  param down: f32[4 * D, D] = normal(0.1)
  param b2: f32[D] = zeros()

  fn heads(x: f32[B, T, D], w: f32[D, H, D // H], b: f32[H, D // H]) -> f32[B, H, T, D // H] =
    rearrange(einsum("btd,dhe->bthe", x, w) + b, "b t h e -> b h t e")

  fn attend(x: f32[B, T, D]) -> f32[B, T, D] {
    let a = attention(heads(x, wq, bq), heads(x, wk, bk), heads(x, wv, bv), causal=true)
    return einsum("bhte,hed->btd", a, out) + bo
  }

  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let h = x + attend(n1(x))
    return h + gelu(n2(h) @ up + b1) @ down + b2
  }
}

module Net() {
  use blocks = 2 * Block(16, 4)
  export fn predict(x: f32[B, T, 16]) -> f32[B, T, 16] = scan b in blocks with h = x { next h = b(h) }
}

train Net {
  data = npz("net.npz", x="x", y="y")
  loss(x: f32[B, T, 16], y: f32[B, T, 16]) = mean((predict(x) - y) ** 2)
  optimizer = adamw(lr=0.003)
  batch = 8
}
"""
CHAIN = """\
dlc 1
dim B = 1..8
mesh {mesh}

module Net() {{
  param a: f32[6, 8]{a} = normal(0.5)
  param bias: f32[8] = zeros()
  param b: f32[8, 4]{b} = normal(0.5)
  export fn predict(x: f32[B, 6]) -> f32[B, 4] {{
    let h = if sum(x) > 0 then tanh(x @ a + bias) else relu(x @ a)
    return h @ b
  }}
}}

train Net {{
  data = npz("net.npz", x="x", y="y")
  loss(x: f32[B, 6], y: f32[B, 4]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
}}
"""


def splits_of(text: str) -> dict[str, tuple[str, ...]]:
    """The splits of the weights of a text, by name, once those that it leaves open are inferred."""
    model = plan_training(CompileRequest(path="", text=text)).source
    assert isinstance(model, SourceModel)
    mesh = read_text_mesh(model.module)
    assert mesh is not None
    infer_splits(model.module, mesh.axes, model.context)
    sources = [op for op in model.module.body if isinstance(op, weight.Source)]
    return {op.sym_name: op.splits for op in sources if op.splits}


def chain(mesh: str, a: str = "", b: str = "") -> dict[str, tuple[str, ...]]:
    """The splits of two weights with a bias between them."""
    return splits_of(CHAIN.format(mesh=mesh, a=a and f" split {a}", b=b and f" split {b}"))


def test_a_transformer_block_needs_two_splits() -> None:
    """Blocks are stacked: their axes stand behind that which counts them."""
    found = splits_of(BLOCK)
    assert found == {
        **{f"blocks.{name}": ("model 2",) for name in ("wq", "wk", "wv", "up")},
        **{f"blocks.{name}": ("model 1",) for name in ("bq", "bk", "bv", "out", "b1", "down")},
    }


def test_a_split_goes_on_in_both_directions_and_through_branches() -> None:
    every = {"a": ("model 1",), "bias": ("model 0",), "b": ("model 0",)}
    assert chain("model = 2", a="(none, model)") == every
    assert chain("model = 2", b="(model, none)") == every


def test_what_the_text_keeps_whole_stays_whole() -> None:
    found = chain("model = 2", a="(none, model)", b="(none, none)")
    assert found == {"a": ("model 1",), "bias": ("model 0",)}


@pytest.mark.parametrize(
    ("mesh", "a"), [("data = 2", "(none, data)"), ("data = 2, model = 2", "(none, data)")]
)
def test_the_axis_of_batches_splits_only_what_the_text_says(mesh: str, a: str) -> None:
    assert chain(mesh, a=a) == {"a": ("data 1",)}


def test_what_is_summed_is_whole() -> None:
    assert chain("model = 3", a="(model, none)") == {"a": ("model 0",)}


@pytest.mark.parametrize(("ranks", "goes_on"), [(2, True), (4, False)])
def test_an_axis_without_equal_parts_ends_it(ranks: int, goes_on: bool) -> None:
    """Of two groups of four columns, two ranks have one each; four ranks have no equal parts."""
    text = CHAIN.format(mesh=f"model = {ranks}", a=" split (none, model)", b="")
    text = text.replace("b: f32[8, 4]", "b: f32[2, 4, 4]")
    grouped = 'einsum("bge,gec->bc", rearrange(h, "b (g e) -> b g e", g=2), b)'
    assert ("b" in splits_of(text.replace("h @ b", grouped))) == goes_on


def test_each_axis_of_the_mesh_goes_on() -> None:
    found = chain("rows = 2, columns = 2", a="(rows, columns)")
    assert found == {"a": ("rows 0", "columns 1"), "bias": ("columns 0",), "b": ("columns 0",)}


def test_two_axes_of_the_mesh_split_different_axes_of_a_weight() -> None:
    found = chain("one = 2, two = 2", a="(none, one)", b="(two, none)")
    assert found == {"a": ("one 1",), "bias": ("one 0",), "b": ("two 0",)}
