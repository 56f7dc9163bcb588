"""How fast an entry point is: compiling, loading, and calls after each other."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dlc.driver.calls import Request, call, choose
from dlc.driver.make import Wanted, make_artifact
from dlc.runtime.artifact import Artifact
from dlc.runtime.binding import Binder
from dlc.runtime.model import Model
from dlc.runtime.spelling import python_name

MIN_CALLS = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds for one call (the best, the median, the 99th percentile of `calls`), to load, and
    seconds to compile; 0 for an artifact, which is compiled already."""

    entry: str
    threads: int
    calls: int
    best_ms: float
    median_ms: float
    p99_ms: float
    compile_s: float
    load_ms: float


def measure(
    wanted: Wanted, request: Request, *, threads: int | None = None, seconds: float = 1.0
) -> Timing:
    """Call an entry point for about so many seconds, at least ten times, and time each call."""
    began = time.perf_counter()
    if wanted.path.endswith(".dlc"):
        artifact, compile_s = Artifact.read(wanted.path), 0.0
    else:
        artifact = make_artifact(wanted).artifact
        compile_s = time.perf_counter() - began
    loading = time.perf_counter()
    model = Model(artifact, threads=threads)
    load_ms = (time.perf_counter() - loading) * 1e3
    spent = _times(model, request, seconds) * 1e3
    return Timing(
        choose(model.entry_points, request.entry),
        model.threads,
        len(spent),
        round(float(spent.min()), 6),
        round(float(np.median(spent)), 6),
        round(float(np.percentile(spent, 99)), 6),
        round(compile_s, 4),
        round(load_ms, 4),
    )


def _times(
    model: Model, request: Request, seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of each call, after one that prepares the weights."""
    call(model, request)
    point = model.entry_points[choose(model.entry_points, request.entry)]
    free = Binder(point.entry).free
    named: dict[str, object] = {
        python_name(name): value for name, value in request.arguments(point.entry).items()
    }
    named |= {name: size for name, size in request.dims.items() if name in free}
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < MIN_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        point(**named)  # pyright: ignore[reportArgumentType] - `out` is not among them
        found.append(time.perf_counter() - start)
    return np.array(found)
