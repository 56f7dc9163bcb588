"""Attention over a cache: right at every position, and its work follows the position."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import mem
from dlc.dialects.kernel.attention import CachedAttention
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.open import open_model
from dlc.ir.passes import Manager
from tests.suites import each_value

TEXT = """dlc 1
export fn f(q: DT[2, 2, 3, M, D], k: DT[2, 2, 1, S, D], v: DT[2, 2, 1, S, E], p: i32) -> DT[2, 2, 3, M, E] =
  attention(q, k, v, lengths=p + M, causal=true)
"""
TOLERANCES = {"f32": 6e-6, "f64": 1e-12, "bf16": 6e-2, "f16": 6e-3}
SIZES = [(1, 64, 64, 512), (4, 5, 3, 130), (2, 19, 33, 7)]


def reference(
    query: NDArray[np.float64], keys: NDArray[np.float64], values: NDArray[np.float64], p: int
) -> NDArray[np.float64]:
    scores = query @ np.swapaxes(keys, -1, -2) / np.sqrt(query.shape[-1])
    seen = np.tri(query.shape[-2], keys.shape[-2], p) > 0
    powers = np.exp(np.where(seen, scores, -np.inf) - scores.max())
    return cast("NDArray[np.float64]", powers / powers.sum(-1, keepdims=True) @ values)


def drawn(seed: int, dtype: str, *shape: int) -> dlc.Tensor:
    return dlc.Tensor(np.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize(
    ("m", "d", "e", "s", "dtype", "level"), each_value(SIZES, TOLERANCES, [2, 0])
)
def test_each_query_attends_to_the_keys_up_to_its_place(
    m: int, d: int, e: int, s: int, dtype: str, level: int
) -> None:
    text = TEXT.replace("DT", dtype)
    for name, size in {"M": m, "D": d, "E": e, "S": s}.items():
        text = text.replace(f"{name},", f"{size},").replace(f"{name}]", f"{size}]")
    model = dlc.compile(text=text, level=level, verify_each=m > 1)
    q, k, v = (
        drawn(seed, dtype, 2, 2, lead, n, width)
        for seed, (lead, n, width) in enumerate(((3, m, d), (1, s, d), (1, s, e)))
    )
    for position in (0, s // 2, s - m, s + 5):
        found = dlc.Tensor(cast("NDArray[np.float32]", model.f(q, k, v, np.int32(position))))
        wide = [np.asarray(x.values(), np.float64) for x in (q, k, v)]
        error = np.abs(
            np.asarray(found.values(), np.float64) - reference(wide[0], wide[1], wide[2], position)
        ).max()
        assert error < TOLERANCES[dtype], (position, error)


def test_what_no_query_sees_is_not_read() -> None:
    text = (
        "dlc 1\ndim S = 1..64\nexport fn f(q: f32[1, 8], k: f32[S, 8], p: i32) -> f32[1, 8] = "
        "attention(q, k, k, causal=true, lengths=p + 1)\n"
    )
    model = dlc.compile(text=text)
    keys = np.full((64, 8), np.nan, np.float32)
    keys[:3] = np.random.default_rng(0).standard_normal((3, 8))
    query = np.ones((1, 8), np.float32)
    found = np.asarray(model.f(query, keys, np.int32(2)))
    assert (found == np.asarray(model.f(query, keys[:3], np.int32(2)))).all()
    assert np.isnan(np.asarray(model.f(query, keys, np.int32(-1)))).all()


def test_keys_and_values_are_read_where_they_lie() -> None:
    text = """dlc 1
dim S = 1..4096
export fn f(q: f32[4, 1, 8], k: f32[S, 8], inout ks: f32[1, S, 8], p: i32) -> f32[4, 1, 8] {
  let new = update(ks, k[0], at=[0, p])
  set ks = new
  return attention(q, new, new, causal=true, lengths=p + 1)
}
"""
    opened = open_model("model.dlm", text=text)
    Manager(opened.context).run(opened.module, pipeline("graph", "plan", 2))
    program = opened.module.symbol("f")
    assert isinstance(program, mem.Program)
    (op,) = [op for op in program.walk() if isinstance(op, CachedAttention)]
    roots = [view.op.root.op for view in op.inputs[1:3] if isinstance(view.op, mem.View)]
    assert [root.kind for root in roots if isinstance(root, mem.Root)] == ["input", "input"]


@pytest.mark.parametrize("lengths", ["f32", "i32[2]"])
def test_what_is_no_length_is_refused(lengths: str) -> None:
    text = (
        f"dlc 1\nexport fn f(q: f32[1, 8], k: f32[9, 8], n: {lengths}) -> f32[1, 8] = "
        "attention(q, k, k, causal=true, lengths=n)\n"
    )
    with pytest.raises(dlc.ModelError, match="the lengths are"):
        dlc.compile(text=text)
