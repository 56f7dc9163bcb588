"""Perceptrons, norms, losses."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program


def dense(p, x):
    return x @ p["w"] + p["b"]


@program("MLP", 1, 8, 33)
def mlp(n: int, draw: Draws) -> Made:
    layers = [draw.layer(12, 32), draw.layer(32, 32), draw.layer(32, 5)]

    def forward(layers, x):
        for layer in layers[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return jax.nn.softmax(dense(layers[-1], x))

    return forward, (layers, draw(n, 12))


@program("MLP, dynamic batch", 1, 8, 33, dynamic=("...", "...", "b, 12"))
def dynamic_mlp(n: int, draw: Draws) -> Made:
    def forward(first, second, x):
        return jax.nn.log_softmax(dense(second, jnp.tanh(dense(first, x))), axis=-1)

    return forward, (draw.layer(12, 32), draw.layer(32, 5), draw(n, 12))


@program("layer norm and RMS norm", 2, 7, 64)
def norms(n: int, draw: Draws) -> Made:
    def forward(x, scale, shift):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        normed = (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift
        return normed * lax.rsqrt(jnp.square(normed).mean(-1, keepdims=True) + 1e-6)

    return forward, (draw(3, n, 16), 1 + draw(16, scale=0.1), draw(16))


@program("cross entropy of running sums", 3, 10, 40)
def cross_entropy(n: int, draw: Draws) -> Made:
    def loss(scores, labels):
        logs = jax.nn.log_softmax(jnp.cumsum(scores, axis=0))
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    return loss, (draw(n, 6), draw.whole(6, n))


@program("mixed bf16", 2, 8, 32)
def mixed(n: int, draw: Draws) -> Made:
    def forward(layers, x):
        # In f64, which decides how near results are, nothing is rounded.
        low = jnp.bfloat16 if x.dtype == jnp.float32 else x.dtype
        half = jax.tree.map(lambda w: w.astype(low), layers)
        hidden = jax.nn.gelu(dense(half[0], x.astype(low)))
        return dense(half[1], hidden).astype(x.dtype).sum(0)

    return forward, ([draw.layer(16, 24), draw.layer(24, 4)], draw(n, 16))


@program("a mapped function", 2, 5, 17)
def mapped(n: int, draw: Draws) -> Made:
    def distance(x, y):
        return jnp.sqrt(jnp.square(x - y).sum() + 1e-3)

    return jax.vmap(jax.vmap(distance, (None, 0)), (0, None)), (draw(n, 4), draw(6, 4))


@program("Swish and GLU with einsum", 2, 5, 16)
def gated(n: int, draw: Draws) -> Made:
    def forward(w, v, x):
        up = jnp.einsum("bti,io->bto", x, w)
        return jnp.einsum("bto,oi->bti", jax.nn.silu(up) * jnp.exp(-up * up), v) + x

    return forward, (draw(8, 20, scale=0.3), draw(20, 8, scale=0.3), draw(2, n, 8))
