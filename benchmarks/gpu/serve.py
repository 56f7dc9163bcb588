"""What all contenders on a GPU do: read the case, write results, and measure calls as they are asked.

    python -m benchmarks.gpu.contender_NAME SPEC.json

SPEC has the case (`GpuCase.spec`) and paths: `given`, the arrays; `text`, our model; `start`, what ours has
written, for the others; `results`, where results go.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]
NARROW = "narrow"
"""Where the file with our weights has the names of those in bf16."""
LAUNCHES = 10
"""How often a kernel is launched for one measurement."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a contender is told."""

    kind: str
    name: str
    precision: str
    entry: str
    repeats: dict[str, int]
    settings: dict[str, int]
    optimizer: str
    given: str
    text: str
    start: str
    results: str
    device: str = "cuda"

    def arrays(self) -> dict[str, Array]:
        """The arrays of the case, as large as they are to be."""
        with np.load(self.given) as file:
            found = {key: file[key] for key in file.files}
        return {key: _repeated(x, self.repeats.get(key, 1)) for key, x in found.items()}

    @property
    def dtype(self) -> str:
        """Of what a kernel reads and writes, of a network's weights and layers."""
        return "f32" if self.precision == "tf32" else self.precision

    @property
    def is_network(self) -> bool:
        return self.kind in ("inference", "training")

    def rounds(self, array: Array) -> bool:
        """Whether an array of f32 has fewer bits here; a network takes it as it is and rounds it itself."""
        return self.dtype != "f32" and not self.is_network and array.dtype == np.float32

    def compared(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """The parts of results that are compared: those of what was drawn, by their numbers."""
        repeats = next(iter(self.repeats.values()), 1)
        return {
            f"result{k or ''}": array[: -(-len(array) // repeats)] for k, array in enumerate(arrays)
        }

    def weights(self) -> dict[str, Array]:
        """The weights that ours has begun with, under our names."""
        with np.load(self.start) as file:
            names = [key for key in file.files if key.startswith("weight:")]
            return {key: file[key] for key in names}

    def narrow(self) -> frozenset[str]:
        """The names of those weights that a network is called with in bf16; here they are f32."""
        with np.load(self.start) as file:
            return frozenset(file[NARROW].tolist())

    def write(self, results: Mapping[str, Array]) -> None:
        """Keep results for the comparison."""
        np.savez(self.results, allow_pickle=False, **results)


def _repeated(array: Array, times: int) -> Array:
    return array if times == 1 else np.tile(array, (times, *[1] * (array.ndim - 1)))


def read_spec() -> Spec:
    """The case that the command line names."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return Spec(**cast("dict[str, object]", json.load(file)))  # pyright: ignore[reportArgumentType]


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds of a call that waits for its results."""

    def measure() -> float:
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3

    return measure


def answers() -> TextIO:
    """Where answers go. From now on all that libraries print, also in C, goes where errors do."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def serve(out: TextIO, measure: Callable[[], float], facts: Mapping[str, float]) -> None:
    """Print the facts as one JSON object; then answer each number read with that many measurements."""
    print(json.dumps(facts), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps([measure() for _ in range(int(line))]), file=out, flush=True)
