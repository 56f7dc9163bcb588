"""Ours on a GPU, for `benchmarks.gpu`; see `benchmarks.gpu.serve`.

Arrays and results stay on the GPU. Kernels and products are timed by the GPU's clock, networks by the
processor's, from the call until its results are there. On a processor only results are of interest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

import numpy as np

from benchmarks.gpu.serve import LAUNCHES, NARROW, Array, Spec, answers, read_spec, serve, timed
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.host_target import to_run_here
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.runtime.training.trainer import Trainer
from dlc.runtime.weights.model_weights import WeightViews

COPIES = 5
MOMENTS = ("m", "v")
"""Names of the first moment: of Adam, and of a heavy ball."""


class Contender(NamedTuple):
    """Results to compare, what measures a call, and facts."""

    results: Mapping[str, Array]
    measure: Callable[[], float]
    facts: Mapping[str, float]


def contender(spec: Spec) -> Contender:
    """Ours for a case."""
    return trained(spec) if spec.kind == "training" else called(spec)


def settings_of(spec: Spec) -> Settings:
    """How it is compiled: f32 is multiplied exactly unless tf32 is the case."""
    precision = "tf32" if spec.precision == "tf32" else "ieee"
    return to_run_here(Settings(target=spec.device, matmul_precision=precision))


def parameters_of(spec: Spec) -> dict[str, int | str]:
    """Those of a network's root module, of which `F` is the dtype of its weights and layers."""
    if not spec.is_network:
        return {}
    return {**spec.settings, **({"F": "bf16"} if spec.precision == "bf16" else {})}


def start_of(weights: WeightViews, names: Iterable[str]) -> dict[str, Array]:
    """Copies of what the others begin with: weights in f32, and which of them are bf16 here."""
    held = {name: weights.tensor(name) for name in names}
    narrow = [name for name, tensor in held.items() if tensor.dtype == "bf16"]
    found: dict[str, Array] = {
        f"weight:{name}": np.array(each.values(), np.float32) for name, each in held.items()
    }
    return {**found, NARROW: np.array(narrow, np.str_)}


def called(spec: Spec) -> Contender:
    """A kernel, a product, or a network."""
    begin = time.perf_counter()
    wanted = CompileRequest(
        spec.text, parameters=parameters_of(spec), weights="init:1", settings=settings_of(spec)
    )
    model, _ = make_model(wanted)
    ready = time.perf_counter() - begin
    point = model.entry_points[spec.entry]
    arrays = [
        Tensor(array, spec.dtype if spec.rounds(array) else None)
        for array in spec.arrays().values()
    ]
    given = [array.to(spec.device) for array in arrays]
    found = point(*given)
    several = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    results = start_of(model.weights, model.weights)
    results |= spec.compared(
        [(one if isinstance(one, Tensor) else Tensor(cast(Array, one))).values() for one in several]
    )
    facts = {"ready_s": ready}
    if not isinstance(point, GpuEntryPoint):
        return Contender(results, timed(lambda: point(*given)), facts)
    if spec.kind == "inference":
        facts |= transfers(point, arrays)
        return Contender(results, timed(lambda: point(*given)), facts)
    if spec.kind == "kernels":
        facts["copy_gb_s"] = copy_rate(driver_of("cuda"), arrays[0].nbytes)
    return Contender(
        results, lambda: point.timed(*given, launches=LAUNCHES).compute_ms / LAUNCHES, facts
    )


def transfers(point: GpuEntryPoint, arrays: list[Tensor]) -> dict[str, float]:
    """The parts of a call whose arrays come from the host and go back there."""
    for _ in range(2):  # until the call is a graph
        point.timed(*arrays)
    return {**point.timed(*arrays)._asdict()}


def copy_rate(driver: Driver, size: int) -> float:
    """Gigabytes that a copy on the device reads and writes in a second, at best."""
    one, other = DeviceBytes(driver, size), DeviceBytes(driver, size)
    begin, end = driver.create_event(), driver.create_event()
    best = float("inf")
    with driver:
        for _ in range(COPIES):
            driver.record(begin, driver.shared_stream)
            for _ in range(LAUNCHES):
                driver.copy(other.address, one.address, size, driver.shared_stream)
            driver.record(end, driver.shared_stream)
            driver.synchronize(driver.shared_stream)
            best = min(best, driver.elapsed_ms(begin, end) / LAUNCHES)
    return 2 * size / best / 1e6


def trained(spec: Spec) -> Contender:
    """A step of training, after two whose losses and gradients are compared."""
    begin = time.perf_counter()
    wanted = CompileRequest(
        spec.text, parameters=parameters_of(spec), weights="init:1", to_train=True
    )
    artifact = compile_model(wanted.open(), settings_of(spec), "init:1")
    trainer = Trainer(artifact)
    batch = {name: Tensor(array).to(spec.device) for name, array in spec.arrays().items()}
    names = list(trainer.trained())
    results = start_of(trainer.weights, names)
    results["loss"] = np.asarray(trainer.step(**batch))
    ready = time.perf_counter() - begin
    kept = trainer.weights
    for name in names:
        for key in [f"$optimizer.{name}.{moment}" for moment in MOMENTS]:
            if key in kept:
                results[f"moment:{name}"] = np.array(kept[key])
                break
    results["second_loss"] = np.asarray(trainer.step(**batch))
    return Contender(results, timed(lambda: trainer.step(**batch)), {"ready_s": ready})


def main() -> None:
    """Compile, write results, and serve."""
    out, spec = answers(), read_spec()
    made = contender(spec)
    spec.write(made.results)
    serve(out, made.measure, made.facts)


if __name__ == "__main__":
    main()
