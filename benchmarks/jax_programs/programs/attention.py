"""Attention: blocks, GPT, vision transformers, experts."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program


def norm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)


def attention(p, x, heads, mask=None):
    batch, length, width = x.shape
    q, k, v = jnp.split((x @ p["qkv"]).reshape(batch, length, heads, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width) @ p["out"]


def block(p, x, heads, mask=None):
    x = x + attention(p, norm(x), heads, mask)
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def block_weights(draw: Draws, width: int):
    return {
        "qkv": draw(width, 3 * width, scale=0.2),
        "out": draw(width, width, scale=0.2),
        "up": draw(width, 2 * width, scale=0.2),
        "down": draw(2 * width, width, scale=0.2),
    }


@program("attention block", 3, 8, 21)
def attention_block(n: int, draw: Draws) -> Made:
    return lambda p, x: block(p, x, 4), (block_weights(draw, 16), draw(2, n, 16))


@program("GPT with causal mask", 4, 9, 16)
def gpt(n: int, draw: Draws) -> Made:
    def loss(p, tokens):
        length = tokens.shape[1] - 1
        x = p["tokens"][tokens[:, :-1]] + p["places"][:length]
        mask = jnp.tril(jnp.ones((length, length), bool))
        for layer in p["blocks"]:
            x = block(layer, x, 2, mask)
        logs = jax.nn.log_softmax(norm(x) @ p["tokens"].T)
        return -jnp.take_along_axis(logs, tokens[:, 1:, None], -1).mean()

    blocks = [block_weights(draw, 16) for _ in range(2)]
    p = {"tokens": draw(20, 16, scale=0.5), "places": draw(16, 16, scale=0.5), "blocks": blocks}
    return loss, (p, draw.whole(20, 2, n))


@program("GPT whose blocks are scanned", 4, 9, 16)
def scanned_gpt(n: int, draw: Draws) -> Made:
    def forward(p, x):
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        return lax.scan(lambda x, layer: (block(layer, x, 2, mask), None), x, p)[0]

    p = jax.tree.map(lambda *each: jnp.stack(each), *[block_weights(draw, 16) for _ in range(3)])
    return forward, (p, draw(2, n, 16))


@program("ViT", 8, 12, 16)
def vit(n: int, draw: Draws) -> Made:
    def forward(p, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(x, p["patch"], (4, 4), "VALID", dimension_numbers=numbers)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        first = jnp.broadcast_to(p["class"], (x.shape[0], 1, x.shape[2]))
        x = jnp.concatenate([first, x], 1) + p["places"][: x.shape[1] + 1]
        return norm(block(p["block"], x, 4))[:, 0] @ p["head"]

    p = {
        "patch": draw(4, 4, 3, 16, scale=0.2),
        "class": draw(16),
        "places": draw(17, 16),
        "block": block_weights(draw, 16),
        "head": draw(16, 5),
    }
    return forward, (p, draw(2, n, n, 3))


@program("mixture of experts by top-k", 3, 8, 20)
def experts(n: int, draw: Draws) -> Made:
    def forward(gate, w, x):
        scores, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        scores = scores / scores.sum(-1, keepdims=True)
        outputs = jnp.einsum("tki,tkio->tko", jnp.repeat(x[:, None], 2, 1), w[chosen])
        return (jnp.tanh(outputs) * scores[..., None]).sum(1)

    return forward, (draw(8, 4), draw(4, 8, 8, scale=0.4), draw(n, 8))


@program("one step of a beam search", 3, 5, 9, has_gradient=False)
def beam(n: int, draw: Draws) -> Made:
    def step(scores, logs):
        total = (scores[:, None] + logs).reshape(-1)
        best = jnp.argsort(-total)[: scores.shape[0]]
        return total[best], best // logs.shape[1], best % logs.shape[1]

    return step, (draw(n), draw(n, 11))
