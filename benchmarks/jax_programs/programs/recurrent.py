"""Recurrent networks: scans and loops with a condition."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program


def lstm_step(p, state, x):
    h, c = state
    i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def gates(draw: Draws, inputs: int, hidden: int, count: int):
    return {
        "x": draw(inputs, count * hidden, scale=0.3),
        "b": draw(count * hidden, scale=0.1),
        "h": draw(hidden, count * hidden, scale=0.3),
    }


@program("LSTM by scan", 1, 6, 25)
def lstm(n: int, draw: Draws) -> Made:
    def forward(p, x):
        start = (jnp.zeros((x.shape[1], 8)),) * 2
        (h, c), all_ = lax.scan(lambda state, x: lstm_step(p, state, x), start, x)
        return h, c, all_

    return forward, (gates(draw, 5, 8, 4), draw(n, 3, 5))


@program("GRU, backwards", 1, 6, 25)
def gru(n: int, draw: Draws) -> Made:
    def forward(p, x):
        def step(h, x):
            z, r = jnp.split(jax.nn.sigmoid(x @ p["x"][:, :16] + h @ p["h"][:, :16]), 2, -1)
            new = jnp.tanh(x @ p["x"][:, 16:] + (r * h) @ p["h"][:, 16:] + p["b"][16:])
            h = (1 - z) * h + z * new
            return h, h

        return lax.scan(step, jnp.zeros((x.shape[1], 8)), x, reverse=True)

    return forward, (gates(draw, 5, 8, 3), draw(n, 3, 5))


@program("RNN with while_loop", 2, 5, 12, traces_gradient=False)
def rnn(n: int, draw: Draws) -> Made:
    def forward(w, x, steps):
        def step(state):
            k, h = state
            return k + 1, jnp.tanh(h @ w + x[k])

        return lax.while_loop(lambda state: state[0] < steps, step, (0, jnp.zeros(6)))[1]

    return forward, (draw(6, 6, scale=0.4), draw(12, 6), jnp.int32(n))


@program("branches of cond and switch", 0, 1, 2)
def branches(n: int, draw: Draws) -> Made:
    def forward(x, which):
        y = lax.cond(x.sum() > 0, jnp.sin, lambda x: x * x, x)
        cases = (jnp.exp, lambda y: y - 1, lambda y: jnp.cumsum(y) * y)
        return lax.switch(which, cases, y)

    return forward, (draw(7), jnp.int32(n))
