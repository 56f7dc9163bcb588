"""Timing of an entry point: compilation, loading, and consecutive calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from dlc.driver.run.calls import Arguments, CallRequest, call_with
from dlc.driver.run.request import CompileRequest, prepare_call
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.signature import default_value
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.hetero.entry import HeteroEntryPoint
from dlc.runtime.model import Model

MIN_CALLS = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds for one call (the best, the median, the 99th percentile of `calls`), to load, and
    seconds to compile; 0 for an artifact, which is compiled already.

    On a GPU a call has parts, whose medians are `upload_ms`, `compute_ms` and `download_ms` by the GPU's
    own clock, and the weights go there before the first one, in `weights_ms`; elsewhere these are None.
    Where a processor works, too, they are what the GPU did meanwhile.
    """

    entry: str
    threads: int
    calls: int
    best_ms: float
    median_ms: float
    p99_ms: float
    compile_s: float
    load_ms: float
    device: str
    upload_ms: float | None = None
    compute_ms: float | None = None
    download_ms: float | None = None
    weights_ms: float | None = None


def measure(
    request: CompileRequest,
    call_request: CallRequest,
    *,
    threads: int | None = None,
    seconds: float = 1.0,
) -> Timing:
    """Call an entry point for about `seconds`, at least ten times, and time each call."""
    check_threads(threads)
    request = request.to_run_here()
    began = time.perf_counter()
    artifact, arguments = prepare_call(request, call_request)
    compile_s = 0.0 if request.is_compiled else time.perf_counter() - began
    loading = time.perf_counter()
    model = Model(artifact, threads=threads, device=request.device)
    load_ms = (time.perf_counter() - loading) * 1e3
    if request.is_compiled and request.weights is not None:
        model = model.with_weights(request.weights)
    calls = _Calls(model, arguments)
    spent = calls.times(seconds) * 1e3
    timing = Timing(
        arguments.entry,
        model.threads,
        len(spent),
        round(float(spent.min()), 6),
        round(float(np.median(spent)), 6),
        round(float(np.percentile(spent, 99)), 6),
        round(compile_s, 4),
        round(load_ms, 4),
        model.device,
    )
    parts = calls.parts()
    if parts is None:
        return timing
    return replace(
        timing,
        upload_ms=round(parts.upload_ms, 6),
        compute_ms=round(parts.compute_ms, 6),
        download_ms=round(parts.download_ms, 6),
        weights_ms=round(model.times.upload_ms, 4),
    )


class _Calls:
    """Calls of an entry point with the same arguments, after one that prepares the weights."""

    def __init__(self, model: Model, arguments: Arguments) -> None:
        call_with(model, arguments)
        self._point = model.entry_points[arguments.entry]
        named = dict(arguments.named)
        # By position, as a program that calls it often does: names cost a few microseconds.
        self._values = [_value(item, named) for item in self._point.inputs]
        self._sizes = named

    def times(self, seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds of each call."""
        point, values, sizes = self._point, self._values, self._sizes
        found: list[float] = []
        end = time.perf_counter() + seconds
        while len(found) < MIN_CALLS or time.perf_counter() < end:
            start = time.perf_counter()
            point(*values, **sizes)  # pyright: ignore[reportArgumentType] - only sizes are left
            found.append(time.perf_counter() - start)
        return np.array(found)

    def parts(self) -> CallTimes | None:
        """The median of each part of a call on a GPU."""
        point = self._point
        if not isinstance(point, GpuEntryPoint | HeteroEntryPoint):
            return None
        values, sizes = self._values, self._sizes
        rows = [
            point.timed(*values, **sizes)  # pyright: ignore[reportArgumentType] - only sizes are left
            for _ in range(MIN_CALLS)
        ]
        return CallTimes(*[float(median) for median in np.median(rows, axis=0)])


def _value(item: Input, named: dict[str, object]) -> object:
    """The argument for an input, taken out of `named`."""
    name = python_name(item.name)
    if name in named:
        return named.pop(name)
    default = default_value(item)
    return None if default is None else default.bits
