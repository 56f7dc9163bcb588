"""Layers, losses and sampling of the library against what PyTorch and Transformers computed.

`tests/frontend/recorded/record.py` recorded the values and the gradients, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from tests.frontend.programs import Program, as_list, with_levels
from tests.suites import every

Numbers = NDArray[Any]

with np.load(Path(__file__).parent / "recorded" / "library.npz") as kept:
    RECORDED: Mapping[str, Numbers] = dict(kept)


def part(case: str, kind: str) -> dict[str, Numbers]:
    """The recorded arrays of one kind, by their names."""
    start = f"{case}/{kind}/"
    return {k.removeprefix(start): v for k, v in RECORDED.items() if k.startswith(start)}


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded case as the library says it: the expression of its inputs gives its results."""

    name: str
    imports: str
    text: str
    members: str = ""
    weights: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names of the weights in the state dict of PyTorch; with .T the transpose, as in `names`."""
    dtype: str = "f64"
    pictures: bool = False
    """Whether inputs and results have the channels last, and PyTorch's second."""

    def shown(self, array: Numbers) -> Numbers:
        return np.moveaxis(array, 1, -1) if self.pictures and array.ndim == 4 else array

    def program(self, levels: Sequence[int]) -> Program:
        inputs, results = part(self.name, "in"), part(self.name, "out")
        heads = ", ".join(f"{n}: {self.type(x)}" for n, x in inputs.items())
        given = ", ".join(inputs)
        types = ", ".join(map(self.type, results.values()))
        text = f"""dlc 1
import nn ({self.imports})
module Root() {{
{self.members}
  fn called({heads}) = {self.text}
  fn total({heads}) = {" + ".join(self.sines(len(results)))}
  export fn value({heads}) -> ({types},) = called({given})
  export fn slope({heads}) -> ({", ".join(map(self.type, inputs.values()))},) =
    grad(total, wrt=({given},))({given})
}}
"""
        if len(results) == 1:
            text = text.replace(f"({types},) =", f"{types} =")
        if len(inputs) == 1:
            (only,) = inputs.values()
            text = text.replace(f"-> ({self.type(only)},)", f"-> {self.type(only)}")
            text = text.replace(f"wrt=({given},)", f"wrt={given}")
        return Program(text, weights=self.taken() or None, levels=levels)

    def sines(self, count: int) -> list[str]:
        given = ", ".join(part(self.name, "in"))
        parts = [f".{k}" for k in range(count)] if count > 1 else [""]
        return [f"sum(sin(called({given}){k}))" for k in parts]

    def type(self, array: Numbers) -> str:
        return f"{self.dtype}{list(self.shown(array).shape) or ''}"

    def taken(self) -> dict[str, Numbers]:
        """The weights by their paths."""
        state, found = part(self.name, "w"), dict[str, Numbers]()
        for path, name in self.weights.items():
            array = state[name.removesuffix(".T").removesuffix(".C")]
            if name.endswith(".C"):
                array = np.transpose(array, (2, 3, 1, 0))
            found[path] = np.ascontiguousarray(array.T if name.endswith(".T") else array)
        return found


def gates(layer: str, end: str = "") -> dict[str, str]:
    """The weights of a recurrent layer."""
    return {
        f"{layer}.wx": f"weight_ih_l0{end}.T",
        f"{layer}.wh": f"weight_hh_l0{end}.T",
        f"{layer}.b": f"bias_ih_l0{end}",
        f"{layer}.bh": f"bias_hh_l0{end}",
    }


def normalised(path: str, place: int) -> dict[str, str]:
    """The weights of a batch normalisation."""
    names = {"scale": "weight", "shift": "bias"}
    names |= {k: k for k in ("running_mean", "running_var")}
    return {f"{path}.{own}": f"{place}.{other}" for own, other in names.items()}


def dense(path: str, place: int) -> dict[str, str]:
    return {f"{path}.w": f"{place}.weight.T", f"{path}.b": f"{place}.bias"}


CASES = [
    Case("gru", "GRU", "two(r(x, h[0]))", """
  use r = GRU(3, 4, biases=2, F=f64)
  fn two(r) = (r.y, r.h[new])""", gates("r")),
    Case("lstm", "LSTM", "three(r(x, h[0], c[0]))", """
  use r = LSTM(3, 4, biases=2, gates="ifgo", F=f64)
  fn three(r) = (r.y, r.h[new], r.c[new])""", gates("r")),
    Case("rnn", "RNN", "two(r(x, h=h[0]))", """
  use r = RNN(3, 4, biases=2, F=f64)
  fn two(r) = (r.y, r.h[new])""", gates("r")),
    Case("bidirectional", "Bidirectional, LSTM", "r(x).y",
         '  use r = Bidirectional(LSTM, 3, 4, biases=2, gates="ifgo", F=f64)',
         gates("r.ahead") | gates("r.back", "_reverse")),
    Case("smooth_l1", "smooth_l1", "smooth_l1(x, y, 0.5)", dtype="f32"),
    Case("bce", "bce", "bce(x, target)", dtype="f32"),
    Case("focal", "focal", "focal(x, target)", dtype="f32"),
    Case("triplet", "triplet", "triplet(a, b, c, margin=1.5)", dtype="f32"),
    Case("smoothing", "rope", "mean(cross_entropy(x, [0, 2, 1, 2], smoothing=0.1))"),
    Case("soft_smoothing", "rope", "mean(cross_entropy(x, rows, smoothing=0.1))"),
    Case("info_nce", "info_nce", "info_nce(x, y)", dtype="f32"),
    Case("clip_loss", "clip_loss", "clip_loss(x, y, scale)", dtype="f32"),
    Case("ctc", "ctc", "ctc(x, [[1, 1, 3], [2, 4, 0], [3, 0, 0], [1, 0, 0]], [8, 6, 7, 3], "
         "[3, 2, 1, 0])", dtype="f32"),
    Case("inverted_residual", "InvertedResidual", "block(x)",
         "  use block = InvertedResidual(4, 4, expand=2, F=f64)",
         {"block.expansion.0.w": "0.weight.C", "block.depthwise.w": "3.weight.C",
          "block.projection.w": "6.weight.C"} | normalised("block.expansion.1", 1)
         | normalised("block.norm1", 4) | normalised("block.norm2", 7), pictures=True),
    Case("depthwise_separable", "DepthwiseSeparable", "block(x)",
         "  use block = DepthwiseSeparable(4, 6, stride=2, F=f64)",
         {"block.depthwise.w": "0.weight.C", "block.pointwise.w": "3.weight.C"}
         | normalised("block.norm1", 1) | normalised("block.norm2", 4), pictures=True),
    Case("squeeze", "SqueezeExcite", "block(x)", "  use block = SqueezeExcite(4, 2, F=f64)",
         dense("block.down", 0) | dense("block.up", 2), pictures=True),
    Case("instance_norm", "InstanceNorm", "layer(x)", "  use layer = InstanceNorm(4, F=f64)",
         pictures=True),
    Case("grouped", "rope", "heads(attention(grouped(q), k[:, :, new], v[:, :, new]))", """
  fn grouped(q) = rearrange(q, "b (h g) t d -> b h g t d", g=2)
  fn heads(y) = rearrange(y, "b h g t d -> b (h g) t d")"""),
    Case("causal_grouped", "rope",
         "heads(attention(grouped(q), k[:, :, new], v[:, :, new], causal=true))", """
  fn grouped(q) = rearrange(q, "b (h g) t d -> b h g t d", g=2)
  fn heads(y) = rearrange(y, "b h g t d -> b (h g) t d")"""),
    Case("lengths", "rope", "heads(attention(grouped(q), k[:, :, new], v[:, :, new], "
         "lengths=reshape([2, 4], [2, 1, 1])))", """
  fn grouped(q) = rearrange(q, "b (h g) t d -> b h g t d", g=2)
  fn heads(y) = rearrange(y, "b h g t d -> b (h g) t d")"""),
    Case("rope", "rope", "rope(q, [0, 1, 4])"),
    Case("rope_interleaved", "rope", "rope(q, [0, 1, 4], interleaved=true)"),
]  # fmt: skip

FURTHER = {
    "GCN", "GAT", "GroupedAttention", "sample", "segment_max", "segment_mean", "segment_softmax",
    "segment_sum", "sinusoidal", "timestep_embedding",
}  # fmt: skip
"""What the tests below the cases are about."""


@pytest.mark.parametrize(("case", "levels"), with_levels(CASES, lambda case: case.name))
def test_values_and_gradients_are_those_of_pytorch(case: Case, levels: Sequence[int]) -> None:
    program = case.program(levels)
    kind = np.float64 if case.dtype == "f64" else np.float32
    inputs = [case.shown(x).astype(kind) for x in part(case.name, "in").values()]
    near = 1e-10 if case.dtype == "f64" and "rope" not in case.name else 1e-5
    for entry, wanted in ("value", part(case.name, "out")), ("slope", part(case.name, "grad")):
        found = program.run(entry, *inputs, rtol=near)
        for one, other in zip(found, wanted.values(), strict=True):
            scale = max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(one, case.shown(other), atol=near * scale, err_msg=entry)


# Graphs -------------------------------------------------------------------------------------------

GRAPHS = """dlc 1
import nn (GCN, GAT)
dim N, E
module Root() {
  use gcn = GCN(3, 4, F=f64)
  use gat = GAT(3, 4, heads=2, F=f64)
  fn gcn_total(x, src, dst) = sum(sin(gcn(x, src, dst)))
  fn gat_total(x, src, dst) = sum(sin(gat(x, src, dst)))
  export fn gcn_y(x: f64[N, 3], src: i32[E], dst: i32[E]) -> f64[N, 4] = gcn(x, src, dst)
  export fn gat_y(x: f64[N, 3], src: i32[E], dst: i32[E]) -> f64[N, 8] = gat(x, src, dst)
  export fn gcn_dx(x: f64[N, 3], src: i32[E], dst: i32[E]) -> f64[N, 3] = grad(gcn_total)(x, src, dst)
  export fn gat_dx(x: f64[N, 3], src: i32[E], dst: i32[E]) -> f64[N, 3] = grad(gat_total)(x, src, dst)
}
"""
SRC, DST = (np.array(places, np.int32) for places in ([0, 1, 2, 3, 1, 4], [1, 0, 1, 2, 3, 1]))


def test_layers_of_graphs_are_products_with_the_matrix_of_the_graph() -> None:
    one, two = part("gcn", "in"), part("gat", "in")
    weights = {f"gcn.{k}": one[k] for k in "wb"} | {f"gat.{k}": two[k] for k in "wb"}
    weights |= {"gat.from": two["one"], "gat.to": two["two"]}
    program = Program(GRAPHS, weights=weights, levels=(2,))
    for name, given in ("gcn", one), ("gat", two):
        y, dx = (program.result(f"{name}_{k}", given["x"], SRC, DST) for k in ("y", "dx"))
        np.testing.assert_allclose(y, part(name, "out")["0"], rtol=1e-10)
        np.testing.assert_allclose(dx, part(name, "grad")["x"], rtol=1e-9, atol=1e-12)


def test_segments_may_be_empty_and_in_any_order() -> None:
    program = Program("""dlc 1
import nn (segment_sum, segment_mean, segment_max, segment_softmax)
export fn sums(x: f32[5, 2], at: i32[5]) -> f32[4, 2] = segment_sum(x, at, 4)
export fn means(x: f32[5, 2], at: i32[5]) -> f32[4, 2] = segment_mean(x, at, 4)
export fn tops(x: f32[5, 2], at: i32[5]) -> f32[4, 2] = segment_max(x, at, 4)
export fn likely(x: f32[5, 2], at: i32[5]) -> f32[5, 2] = segment_softmax(100 * x, at, 4)
""")
    x = np.array([[1, -8], [2, 5], [4, 0.5], [3, 3], [3, 1]], np.float32)
    at = np.array([2, 0, 2, 0, 0], np.int32)
    parts = [x[at == k] for k in range(4)]
    np.testing.assert_allclose(program.result("sums", x, at), [p.sum(0) for p in parts])
    means = [p.sum(0) / max(len(p), 1) for p in parts]
    np.testing.assert_allclose(program.result("means", x, at), means, rtol=1e-6)
    tops = [p.max(0, initial=-np.inf) for p in parts]
    np.testing.assert_array_equal(program.result("tops", x, at), tops)
    likely = program.result("likely", x, at)
    np.testing.assert_allclose(likely[[1, 3, 4], 0], [0, 0.5, 0.5], atol=1e-6)


# Sampling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    every(
        2,
        [
            ("top_k", "top_k=5"),
            ("top_p", "top_p=0.7"),
            ("min_p", "min_p=0.2"),
            ("all", "temperature=1.5, top_k=6, top_p=0.8, min_p=0.1"),
        ],
    ),
)
def test_samples_are_drawn_as_transformers_draws_them(name: str, options: str) -> None:
    """In many draws the frequencies are the softmax of the scores that Transformers leaves."""
    count = 20_000
    program = dlc.compile(
        text=f"""dlc 1
import nn (sample)
export fn f(x: f32[3, 12]) -> i32[3, {count}] =
  transpose(sample(broadcast(x, [{count}, 3, 12]), {options}))
"""
    )
    left = RECORDED[f"sample/{name}"]
    drawn = program.f(RECORDED["sample/in"].astype(np.float32), seed=3)
    wanted = np.exp(left - left.max(-1, keepdims=True))
    wanted /= wanted.sum(-1, keepdims=True)
    found = np.stack([np.bincount(row, minlength=12) / count for row in np.asarray(drawn)])
    np.testing.assert_array_equal(found > 0, wanted > 0)
    assert np.abs(found - wanted).max() < 5 * np.sqrt(0.25 / count)


def test_temperature_zero_takes_the_most_likely_and_may_be_an_input() -> None:
    program = dlc.compile(
        text="""dlc 1
import nn (sample)
export fn fixed(x: f32[3, 12]) -> i32[3] = sample(x, temperature=0)
export fn given(x: f32[3, 12], t: f32) -> i32[3] = sample(x, t, top_k=4)
"""
    )
    x = RECORDED["sample/in"].astype(np.float32)
    best = x.argmax(-1)
    np.testing.assert_array_equal(program.fixed(x), best)
    for temperature in (0, 1e-3):
        np.testing.assert_array_equal(program.given(x, np.float32(temperature), seed=1), best)


# Weights, caches, positions -----------------------------------------------------------------------


def test_weights_of_pytorch_are_read_by_their_names(tmp_path: Path) -> None:
    tensors = {f"r.{name}": Tensor(array) for name, array in part("gru", "w").items()}
    safetensors.write(tmp_path / "gru.safetensors", tensors)
    model = dlc.compile(
        text="""dlc 1
import nn (GRU)
module Root() {
  use gru = GRU(3, 4, biases=2, F=f64)
  names {
    "r.weight_ih_l0" = gru.wx.T  "r.bias_ih_l0" = gru.b
    "r.weight_hh_l0" = gru.wh.T  "r.bias_hh_l0" = gru.bh
  }
  export fn y(x: f64[2, 5, 3], h: f64[2, 4]) -> f64[2, 5, 4] = gru(x, h).y
}
""",
        weights=tmp_path / "gru.safetensors",
    )
    given = part("gru", "in")
    np.testing.assert_allclose(
        as_list(model.y(given["x"], given["h"][0]))[0], part("gru", "out")["0"], rtol=1e-10
    )


def test_a_sequence_gives_the_same_in_steps_with_a_cache() -> None:
    model = dlc.compile(
        text="""dlc 1
import nn (GroupedAttention)
dim T
module Root() {
  use layer = GroupedAttention(16, 4, 2, bias=true)
  export fn whole(x: f32[2, 6, 16]) -> f32[2, 6, 16] = layer(x)
  export fn step(x: f32[2, T, 16], k: f32[2, 2, 9, 4], v: f32[2, 2, 9, 4], at: i32)
    -> (y: f32[2, T, 16], keys: f32[2, 2, 9, 4], values: f32[2, 2, 9, 4]) = layer.step(x, k, v, at)
}
""",
        weights="init:4",
    )
    x = np.random.default_rng(0).standard_normal((2, 6, 16)).astype(np.float32)
    keys = values = np.full((2, 2, 9, 4), 7, np.float32)
    rows: list[Numbers] = []
    for start, end in ((0, 3), (3, 4), (4, 6)):
        y, keys, values = as_list(model.step(x[:, start:end], keys, values, np.int32(start)))
        rows.append(y)
    np.testing.assert_allclose(np.concatenate(rows, 1), as_list(model.whole(x))[0], atol=2e-6)


def test_lengths_that_do_not_fit_the_scores_are_refused() -> None:
    with pytest.raises(dlc.ModelError, match="the lengths are i32\\[3\\], the scores are f32"):
        dlc.compile(
            text="""dlc 1
export fn f(q: f32[2, 4, 8], n: i32[3]) -> f32[2, 4, 8] = attention(q, q, q, lengths=n)
"""
        )


def test_positions_are_sines_and_cosines() -> None:
    program = Program("""dlc 1
import nn (sinusoidal, timestep_embedding)
export fn rows() -> f32[5, 6] = sinusoidal(5, 6)
export fn steps(t: i32[3]) -> f32[3, 6] = timestep_embedding(t, 6)
""")
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(3) / 3)
    rows = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(5, 6)
    np.testing.assert_allclose(program.result("rows"), rows, atol=1e-6)
    found = program.result("steps", np.array([0, 2, 4], np.int32))
    wanted = np.concatenate([np.sin(angle), np.cos(angle)], -1)[::2]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("labels", "finite"), every(2, [("[[1, 1]]", False), ("[[1, 2]]", True)]))
def test_labels_that_need_more_rows_have_an_infinite_loss(labels: str, finite: bool) -> None:
    program = Program(f"""dlc 1
import nn (ctc)
fn loss(x) = ctc(x, {labels}, [2], [2])
export fn value(x: f32[1, 2, 3]) -> f32 = loss(x)
export fn slope(x: f32[1, 2, 3]) -> f32[1, 2, 3] = grad(loss)(x)
""")
    x = np.zeros((1, 2, 3), np.float32)
    assert np.isfinite(program.result("value", x)) == finite
    assert np.isfinite(program.result("slope", x)).all()
