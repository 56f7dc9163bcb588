"""Decoding with a cache, by `examples/llama.dlm` at a small size: right, and in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.runtime.model import Model

Numbers = NDArray[np.float64]
SETTINGS = {"V": 50, "D": 32, "H": 4, "G": 2, "L": 2, "hidden": 48}
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 9), np.int32)


@pytest.fixture(scope="module")
def llama() -> Model:
    return dlc.compile("examples/llama.dlm", weights="init:0", settings=SETTINGS)


def rotary(x: Numbers) -> Numbers:
    """Of [.., T, W], from position 0 on."""
    half = x.shape[-1] // 2
    places = np.arange(x.shape[-2], dtype=np.float64)[:, None]
    angles = places * np.power(10000.0, -np.arange(half, dtype=np.float64) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return cast(Numbers, np.concatenate([turned.real, turned.imag], -1))


def rms_norm(x: Numbers, scale: Numbers) -> Numbers:
    return cast(Numbers, x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * scale)


def heads(x: Numbers, count: int) -> Numbers:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attention(x: Numbers, w: Mapping[str, Numbers]) -> Numbers:
    q, k, v = (heads(x @ w[f"attn.{n}.w"], c) for n, c in (("q", 4), ("k", 2), ("v", 2)))
    q, k, v = rotary(q), np.repeat(rotary(k), 2, 1), np.repeat(v, 2, 1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(np.where(np.tri(x.shape[1]) > 0, scores, -np.inf))
    y = powers / powers.sum(-1, keepdims=True) @ v
    return cast(Numbers, y.transpose(0, 2, 1, 3).reshape(x.shape) @ w["attn.out.w"])


def logits(tokens: NDArray[np.int32], weights: Mapping[str, Numbers]) -> Numbers:
    """The same network in f64, without a cache."""
    x = weights["tokens"][tokens]
    for number in range(2):
        w = {k.removeprefix("blocks."): v[number] for k, v in weights.items() if k[:7] == "blocks."}
        x = x + attention(rms_norm(x, w["norm1.scale"]), w)
        n = rms_norm(x, w["norm2.scale"])
        gate = n @ w["gate.w"]
        x = x + (gate / (1 + np.exp(-gate)) * (n @ w["up.w"])) @ w["down.w"]
    return rms_norm(x, weights["last.scale"]) @ weights["head.w"]


@pytest.mark.parametrize("pieces", [(9,), (1,) * 9, (4, 1, 3, 1)])
def test_tokens_in_any_pieces_give_the_logits_of_the_network(
    llama: Model, pieces: tuple[int, ...]
) -> None:
    weights = {name: np.asarray(w).astype(np.float64) for name, w in llama.weights.items()}
    expected = logits(TOKENS, weights)
    session, position = llama.session(B=2, S=12), 0
    for count in pieces:
        tokens = TOKENS[:, position : position + count]
        found = np.asarray(session.step(np.ascontiguousarray(tokens), np.int32(position)))
        position += count
        np.testing.assert_allclose(found, expected[:, position - 1], rtol=2e-4, atol=2e-6)


def test_a_full_cache_is_told(llama: Model) -> None:
    session = llama.session(B=2, S=8)
    with pytest.raises(dlc.CallError, match="D0807"):
        session.step(np.ascontiguousarray(TOKENS[:, :3]), np.int32(6))


def test_the_memory_of_a_call_does_not_depend_on_the_room_of_the_cache(llama: Model) -> None:
    small, large = (llama.step.working_memory(B=1, T=1, S=size) for size in (16, 16384))
    assert small == large
