"""`attention(lengths=n)`: keys from the n-th on change nothing, whatever lies there."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.source.open import open_model
from tests.suites import every

KEYS = 7
Floats = NDArray[np.float32]


def expected(q: Floats, k: Floats, v: Floats, seen: NDArray[np.bool_], added: Floats) -> Floats:
    scores = np.where(seen, q @ k.transpose(0, 2, 1) / 2 + added, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("each", ["", "[2]"], ids=["one length", "one for each sequence"])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("form", ["", ", causal=true", ", mask=keep", ", mask=added"])
def test_what_lies_behind_the_keys_that_count_changes_nothing(form: str, m: int, each: str) -> None:
    model = dlc.compile(
        text=f"""dlc 1
export fn f(q: f32[2, {m}, 4], k: f32[2, 7, 4], v: f32[2, 7, 4], n: i64{each}, keep: bool[{m}, 7],
            added: f32[{m}, 7]) -> f32[2, {m}, 4] = attention(q, k, v, lengths=n{form})
"""
    )
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, m, 4), np.float32)
    k, v = (rng.standard_normal((2, KEYS, 4), np.float32) for _ in range(2))
    keep, added = np.arange(KEYS) != np.ones((m, 1)), rng.standard_normal((m, KEYS), np.float32)
    key, query = np.arange(KEYS), np.arange(m)[:, None]
    # A length of 2^32 + 5 is no 5.
    for length in (5, (1 << 32) + 5):
        seen = (
            key <= length - m + query if "causal" in form else np.repeat(key[None] < length, m, 0)
        )
        seen = seen & keep if "keep" in form else seen
        wanted = expected(q, k, v, seen, added if "added" in form else np.zeros_like(added))
        keys, values = k.copy(), v.copy()
        keys[:, length:], values[:, length:] = np.nan, np.inf
        lengths = np.full((2,) if each else (), length, np.int64)
        found = model.f(q, keys, values, lengths, keep, added)
        assert np.allclose(cast(Floats, found), wanted, atol=1e-5)


def test_a_single_query_reads_no_key_behind_those_that_count() -> None:
    text = """dlc 1
export fn f(q: f32[1, 4], k: f32[9, 4], n: i32) -> f32[1, 4] = attention(q, k, k, lengths=n)
"""
    module = open_model("f.dlm", text=text).module
    assert any(op.name == "nn.cached_attention" for op in module.walk())


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("causal", every(2, ["true", "false"]))
def test_gradients_read_no_key_behind_those_that_count(causal: str, level: int) -> None:
    text = f"""dlc 1
fn f(q: f32[1, 4], k: f32[3, 4], v: f32[3, 4], n: i32) -> f32 =
  sum(attention(q, k, v, causal={causal}, lengths=n))
export fn g(q: f32[1, 4], k: f32[3, 4], v: f32[3, 4], n: i32)
  -> (q: f32[1, 4], k: f32[3, 4], v: f32[3, 4]) {{
  let (dq, dk, dv) = grad(f, wrt=(q, k, v))(q, k, v, n)
  return (q = dq, k = dk, v = dv)
}}
"""
    model = dlc.compile(text=text, level=level)
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 4), np.float32)
    k, v = (rng.standard_normal((3, 4), np.float32) for _ in range(2))
    wanted = cast("tuple[Floats, ...]", model.g(q, k, v, 2))
    k[2] = v[2] = np.nan
    found = cast("tuple[Floats, ...]", model.g(q, k, v, 2))
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert all(np.any(one) for one in found) and not found[1][2].any()
