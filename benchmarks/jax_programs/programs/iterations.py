"""Iterations of numerical mathematics."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program


@program("power iteration by fori_loop", 3, 6, 12)
def power(n: int, draw: Draws) -> Made:
    def largest(a, x):
        def step(_, x):
            y = a @ x
            return y / jnp.sqrt(jnp.vdot(y, y))

        x = lax.fori_loop(0, 12, step, x)
        return x @ a @ x, x

    root = draw(n, n)
    return largest, (root @ root.T, draw(n))


@program("Gauss-Seidel", 3, 6, 12)
def gauss_seidel(n: int, draw: Draws) -> Made:
    def solve(a, b):
        def one(k, x):
            return x.at[k].add((b[k] - a[k] @ x) / a[k, k])

        return lax.fori_loop(0, 5, lambda _, x: lax.fori_loop(0, b.size, one, x), jnp.zeros_like(b))

    return solve, (draw(n, n) + 3 * n * jnp.eye(n), draw(n))


@program("Newton's method until it converges", 1, 4, 9, traces_gradient=False)
def newton(n: int, draw: Draws) -> Made:
    def root(x):
        def step(state):
            y, _ = state
            new = 0.5 * (y + x / y)
            return new, jnp.abs(new - y).max()

        return lax.while_loop(lambda state: state[1] > 1e-6, step, (jnp.ones_like(x), 1.0))[0]

    return root, (jnp.abs(draw(n)) + 0.5,)


@program("Runge-Kutta by scan", 1, 8, 40)
def runge_kutta(n: int, draw: Draws) -> Made:
    def solve(p, y):
        def slope(y):
            return jnp.stack(
                [p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]]
            )

        def step(y, h):
            a = slope(y)
            b = slope(y + h / 2 * a)
            c = slope(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
            return y, y

        return lax.scan(step, y, jnp.full(n, 0.01))[1]

    return solve, (jnp.array([10.0, 28.0, 8 / 3]), draw(3))


@program("Kalman filter", 1, 5, 20)
def kalman(n: int, draw: Draws) -> Made:
    def filtered(move, see, noise, seen):
        def step(state, z):
            x, p = move @ state[0], move @ state[1] @ move.T + noise
            s = see @ p @ see.T + 0.1 * jnp.eye(2)
            (a, b), (c, d) = s
            gain = p @ see.T @ (jnp.array([[d, -b], [-c, a]]) / (a * d - b * c))
            x = x + gain @ (z - see @ x)
            p = (jnp.eye(4) - gain @ see) @ p
            return (x, p), x

        return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)[1]

    move = jnp.eye(4) + 0.1 * jnp.eye(4, k=2)
    return filtered, (move, jnp.eye(2, 4), 0.01 * jnp.eye(4), draw(n, 2))


@program("k-means step", 5, 16, 50)
def k_means(n: int, draw: Draws) -> Made:
    def step(points, centres):
        nearest = jnp.square(points[:, None] - centres).sum(-1).argmin(1)
        chosen = jax.nn.one_hot(nearest, centres.shape[0])
        return (chosen.T @ points) / jnp.maximum(chosen.sum(0), 1)[:, None], nearest

    return step, (draw(n, 3), draw(4, 3))


@program("message passing by segment_sum", 4, 12, 40)
def message_passing(n: int, draw: Draws) -> Made:
    def forward(p, nodes, senders, receivers):
        for w in p:
            messages = jnp.tanh(nodes[senders] @ w)
            nodes = nodes + jax.ops.segment_sum(messages, receivers, nodes.shape[0])
            nodes = nodes / (
                1 + jax.ops.segment_max(messages, receivers, nodes.shape[0]).clip(0, 1)
            )
        return nodes

    weights = [draw(6, 6, scale=0.4) for _ in range(2)]
    return forward, (weights, draw(5, 6), draw.whole(5, n), draw.whole(5, n))


@program("embedding bag", 2, 7, 30)
def embedding_bag(n: int, draw: Draws) -> Made:
    def forward(table, words, weights):
        return (jnp.take(table, words, axis=0) * weights[..., None]).sum(1)

    return forward, (draw(40, 8), draw.whole(40, n, 5), draw(n, 5))
