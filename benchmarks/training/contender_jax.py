"""A training step of JAX, for `benchmarks.training`.

    python -m benchmarks.training.contender_jax NETWORK OPTIMIZER BATCH.npz START.npz RESULTS.npz THREADS

As `benchmarks.training.contender_torch`. The whole step, optimizer included, is one jitted function that
gives its arguments away.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from benchmarks.contenders.serve import serve
from benchmarks.training.networks_jax import NETWORKS

# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
jnp: Any = jax.numpy
Arrays: TypeAlias = dict[str, Any]
Number: TypeAlias = Any
Update: TypeAlias = Callable[
    [Arrays, Arrays, Arrays, Arrays, Number], tuple[Arrays, Arrays, Arrays]
]


def adam(
    w: Arrays, gradients: Arrays, m: Arrays, v: Arrays, number: Number
) -> tuple[Arrays, Arrays, Arrays]:
    """The weights and both moments after step `number`, which counts from 0."""
    m = {k: 0.9 * m[k] + 0.1 * g for k, g in gradients.items()}
    v = {k: 0.999 * v[k] + 0.001 * g * g for k, g in gradients.items()}
    size, root = 1e-3 / (1 - 0.9 ** (number + 1)), (1 - 0.999 ** (number + 1)) ** 0.5
    return {k: w[k] - size * m[k] / (jnp.sqrt(v[k]) / root + 1e-8) for k in w}, m, v


def momentum(
    w: Arrays, gradients: Arrays, m: Arrays, v: Arrays, number: Number
) -> tuple[Arrays, Arrays, Arrays]:
    """A heavy ball; it has no second moments."""
    m = {k: 0.9 * m[k] + g for k, g in gradients.items()}
    return {k: w[k] - 0.01 * m[k] for k in w}, m, v


OPTIMIZERS: dict[str, Update] = {"adam": adam, "momentum": momentum}


def main(name: str, optimizer: str, given: str, start: str, results: str, threads: str) -> None:
    """Compile a step, make two, and serve more."""
    # XLA starts a thread for each core that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    with np.load(given) as file:
        batch = {key: jnp.asarray(file[key]) for key in file.files}
    with np.load(start) as file:
        trained = {key.removeprefix("moment:") for key in file.files if key.startswith("moment:")}
        weights = {key: jnp.asarray(file[f"weight:{key}"]) for key in sorted(trained)}
    network, update = NETWORKS[name], OPTIMIZERS[optimizer]

    def step(
        w: Arrays, m: Arrays, v: Arrays, number: Number, batch: Arrays
    ) -> tuple[Arrays, Arrays, Arrays, Any]:
        loss, gradients = jax.value_and_grad(network)(w, batch, jax.random.key(number))
        return *update(w, gradients, m, v, number), loss

    begin = time.perf_counter()
    first = {key: jnp.zeros_like(value) for key, value in weights.items()}
    second = {key: jnp.zeros_like(w) for key, w in weights.items()} if optimizer == "adam" else {}
    state = (weights, first, second)
    compiled = jax.jit(step, donate_argnums=(0, 1, 2)).lower(*state, 0, batch).compile()
    facts = {"step_bytes": float(compiled.memory_analysis().temp_size_in_bytes)}
    number = 0

    def call() -> float:
        nonlocal state, number
        *state, loss = compiled(*state, number, batch)
        number += 1
        return float(loss)

    found: dict[str, Any] = {"loss": call()}
    facts["ready_s"] = time.perf_counter() - begin
    found |= {f"moment:{key}": np.array(value) for key, value in state[1].items()}
    found["second_loss"] = call()
    np.savez(results, allow_pickle=False, **found)
    serve(call, facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
