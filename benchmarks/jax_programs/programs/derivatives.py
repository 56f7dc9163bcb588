"""Programs with derivatives inside: training steps, products with Jacobians and Hessians."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program


def net(p, x):
    return jnp.tanh(x @ p["up"]) @ p["down"]


def net_weights(draw: Draws):
    return {"up": draw(3, 10, scale=0.5), "down": draw(10, 1, scale=0.3)}


def error(p, x, y):
    return jnp.square(net(p, x) - y).mean()


@program("logistic regression", 4, 16, 50)
def logistic(n: int, draw: Draws) -> Made:
    def loss(w, x, y):
        scores = x @ w
        return (jax.nn.softplus(scores) - y * scores).mean()

    def fit(w, x, y):
        return lax.fori_loop(0, 5, lambda _, w: w - 0.5 * jax.grad(loss)(w, x, y), w)

    return fit, (draw(4), draw(n, 4), draw.whole(2, n).astype("f4"))


@program("a gradient through a step (MAML)", 3, 8, 20)
def maml(n: int, draw: Draws) -> Made:
    def outer(p, x, y):
        gradients = jax.grad(error)(p, x, y)
        moved = jax.tree.map(lambda p, g: p - 0.1 * g, p, gradients)
        return error(moved, x + 1, y)

    def step(p, x, y):
        return jax.grad(outer)(p, x, y)

    return step, (net_weights(draw), draw(n, 3), draw(n, 1))


@program("Adam step", 3, 8, 20)
def adam(n: int, draw: Draws) -> Made:
    def step(p, m, v, count, x, y):
        gradients = jax.grad(error)(p, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradients)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradients)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        return jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v

    p = net_weights(draw)
    moments = jax.tree.map(lambda w: 0.1 * abs(w) + 0.01, p)
    return step, (p, moments, moments, jnp.float32(3), draw(n, 3), draw(n, 1))


@program("jvp", 2, 6, 18)
def jvp(n: int, draw: Draws) -> Made:
    def forward(p, x, direction):
        return jax.jvp(lambda x: net(p, x), (x,), (direction,))

    return forward, (net_weights(draw), draw(n, 3), draw(n, 3))


@program("Hessian times vector", 2, 6, 18)
def hessian_vector(n: int, draw: Draws) -> Made:
    def product(x, direction):
        def f(x):
            return (jnp.sin(x) * jnp.roll(x, 1) ** 2).sum()

        return jax.jvp(jax.grad(f), (x,), (direction,))[1], jax.hessian(f)(x)

    return product, (draw(n), draw(n))


@program("variational autoencoder with fixed noise", 2, 8, 20)
def autoencoder(n: int, draw: Draws) -> Made:
    def loss(p, x, noise):
        mean, log = jnp.split(jax.nn.relu(x @ p["in"]) @ p["code"], 2, -1)
        code = mean + jnp.exp(log / 2) * noise
        back = jax.nn.relu(code @ p["decode"]) @ p["out"]
        divergence = 0.5 * (jnp.exp(log) + mean**2 - 1 - log).sum(-1)
        likely = (x * jax.nn.log_sigmoid(back) + (1 - x) * jax.nn.log_sigmoid(-back)).sum(-1)
        return (divergence - likely).mean()

    p = {
        "in": draw(12, 16, scale=0.3),
        "code": draw(16, 8, scale=0.3),
        "decode": draw(4, 16, scale=0.3),
        "out": draw(16, 12, scale=0.3),
    }
    return loss, (p, abs(draw(n, 12)).clip(0, 1), draw(n, 4))


@program("dropout by threefry", 2, 8, 20)
def dropout(n: int, draw: Draws) -> Made:
    def forward(w, x, seed):
        kept = jax.random.bernoulli(jax.random.key(seed), 0.7, x.shape)
        return jnp.where(kept, x / 0.7, 0) @ w

    return forward, (draw(6, 4), draw(n, 6), jnp.int32(5))


@program("random walk", 3, 8, 20)
def random_walk(n: int, draw: Draws) -> Made:
    def walk(x, seed):
        keys = jax.random.split(jax.random.key(seed), n)

        def step(x, key):
            x = 0.9 * x + jax.random.normal(key, x.shape)
            return x, x

        return lax.scan(step, x, keys)[1]

    return walk, (draw(4), jnp.uint32(11))
