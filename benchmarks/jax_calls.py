"""How long JAX takes to call compiled code: `dlc.to_jax` against `jax.pure_callback` and JAX itself.

    python -m benchmarks jax_calls

Microseconds for a call of `examples/digits.dlm` on one thread, the median of 200, taken in turns.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import dlc

# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
Array: TypeAlias = Any

TEXT = Path(__file__).parents[1] / "examples" / "digits.dlm"
ROWS = (1, 64, 1024)
CALLS = 200


def contenders(model: dlc.Model, rows: int) -> dict[str, Callable[[], object]]:
    """Each way to call the network with `rows` rows."""
    x = np.random.default_rng(0).random((rows, 784), np.float32)
    given: Array = jax.numpy.asarray(x)
    w = {path: jax.numpy.asarray(values) for path, values in model.weights.items()}
    result = jax.ShapeDtypeStruct((rows, 10), np.float32)

    def call(x: Array) -> object:
        return model.predict(np.asarray(x))

    def by_callback(x: Array) -> Array:
        return jax.pure_callback(call, result, x)

    def by_jax(x: Array) -> Array:
        hidden = jax.nn.relu(x @ w["net.0.w"] + w["net.0.b"])
        return jax.nn.softmax(hidden @ w["net.2.w"] + w["net.2.b"])

    def jitted(function: Callable[[Any], Any]) -> Callable[[], object]:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(given))

    return {
        "dlc": lambda: model.predict(x),
        "to_jax": jitted(dlc.to_jax(model.predict)),
        "pure_callback": jitted(by_callback),
        "JAX": jitted(by_jax),
    }


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of each, taken in turns after a first call of all."""
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALLS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> int:
    """Print the table; gives the exit code."""
    model = dlc.compile(TEXT, weights="init:0", threads=1)
    for number, rows in enumerate(ROWS):
        found = medians(contenders(model, rows))
        if number == 0:
            print(f"{'rows':>6}", *[f"{name:>14}" for name in found])
        print(f"{rows:6}", *[f"{times:14.1f}" for times in found.values()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
