"""One contender of `benchmarks.networks`: a process that opens a network and runs it when told to.

    python contender.py NAME MODEL.onnx INPUTS.npz RESULTS.npz THREADS

Opens the model, writes its results for the inputs, and serves (`benchmarks.contenders.serve`) with what
there is to say about opening. It imports nothing of ours but that and what it measures, because it runs in
the peers' environment too.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.serve import COSTS, TARGET, serve

# The peers' results are arrays of any dtype, and two of the three packages have no types.
Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[], Sequence[Array]]
Facts: TypeAlias = dict[str, float]


def dlc(
    path: Path,
    inputs: Mapping[str, Array],
    threads: int,
    conv: str = "auto",
    costs: str = "default",
) -> tuple[Run, Facts]:
    """Compiled twice (the second time from the cache), saved, and loaded from the file."""
    from dlc import load
    from dlc.driver.compile.cost_table import cost_table
    from dlc.driver.compile.settings import Settings
    from dlc.driver.run.request import CompileRequest, make_artifact

    facts: Facts = {}
    artifact = None
    target = os.environ.get(TARGET, "cpu")
    settings = Settings(target=target, conv=conv, costs=cost_table(costs))
    for name in ("cold_compile_s", "second_compile_s"):
        begin = time.perf_counter()
        made = make_artifact(CompileRequest(str(path), settings=settings))
        facts[name] = time.perf_counter() - begin
        facts |= {f"{name}.{phase}": spent for phase, spent in made.report.seconds.items()}
        artifact = made.artifact
    assert artifact is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "network.dlc")
        artifact.write(file)
        facts["file_bytes"] = file.stat().st_size
        facts |= _loading(file)
        model = load(file, threads=threads)
    (entry,) = model.entry_points.values()
    given = list(inputs.values())
    entry(*given)
    facts |= {
        "prepare_ms": model.times.prepare_ms,
        "arena_bytes": entry.memory_at_bounds()[-1],
    }

    def run() -> Sequence[Array]:
        results = entry(*given)
        if isinstance(results, tuple):
            return cast("tuple[Array, ...]", results)
        return [cast("Array", results)]

    return run, facts


LOADING = """
import sys, dlc
times = dlc.load(sys.argv[1]).times
print(times.load_ms, times.hash_ms)
"""


def _loading(file: Path, rounds: int = 7) -> Facts:
    """What loading takes in a process that has just begun, where no compiler ever was."""
    found: list[list[float]] = []
    for _ in range(rounds):
        command = [sys.executable, "-c", LOADING, str(file)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append([float(word) for word in told.split()])
    load, hashing = np.array(found).T
    return {
        "load_ms.best": float(load.min()),
        "load_ms.median": float(np.median(load)),
        "hash_ms.best": float(hashing.min()),
        "hash_ms.median": float(np.median(hashing)),
    }


def onnxruntime(path: Path, inputs: Mapping[str, Array], threads: int) -> tuple[Run, Facts]:
    """A session with everything else as it comes."""
    import onnxruntime as peer

    options: Any = peer.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    begin = time.perf_counter()
    session: Any = peer.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    facts = {"cold_compile_s": time.perf_counter() - begin}
    return lambda: session.run(None, dict(inputs)), facts


def openvino(path: Path, inputs: Mapping[str, Array], threads: int) -> tuple[Run, Facts]:
    """Its latency hint, in f32."""
    peer: Any = importlib.import_module("openvino")  # installed in the peers' environment only
    core = peer.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    begin = time.perf_counter()
    compiled = core.compile_model(str(path), "CPU", settings)
    facts = {"cold_compile_s": time.perf_counter() - begin}
    request = compiled.create_infer_request()
    given = list(inputs.values())
    return lambda: list(request.infer(given).values()), facts


def torch_compile(path: Path, inputs: Mapping[str, Array], threads: int) -> tuple[Run, Facts]:
    """The module that the file was exported from, in inference mode, with frozen weights."""
    from benchmarks.networks.sequences import seeded

    peer: Any = importlib.import_module("torch")
    settings: Any = importlib.import_module("torch._inductor.config")
    settings.freezing = True
    peer.set_num_threads(threads)
    module: Any = peer.compile(seeded(path.stem).module)
    given = [peer.from_numpy(each) for each in inputs.values()]

    def run() -> Sequence[Array]:
        with peer.inference_mode():
            found: Any = module(*given)
        tensors = cast("Sequence[Any]", found if isinstance(found, tuple) else (found,))
        return [each.numpy() for each in tensors]

    begin = time.perf_counter()
    run()
    return run, {"cold_compile_s": time.perf_counter() - begin}


CONTENDERS = {
    "dlc": dlc,
    "dlc-direct": partial(dlc, conv="direct"),
    "dlc-costs": partial(dlc, costs=os.environ.get(COSTS, "default")),
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch.compile": torch_compile,
}


def main(name: str, model: str, inputs: str, results: str, threads: str) -> None:
    """Open the model, write its results, and serve."""
    with np.load(inputs) as file:
        given: dict[str, Array] = {key: file[key] for key in file.files}
    run, facts = CONTENDERS[name](Path(model), given, int(threads))
    np.savez(results, *[np.array(result) for result in run()])
    serve(run, facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
