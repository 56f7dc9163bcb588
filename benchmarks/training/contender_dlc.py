"""A training step of ours, for `benchmarks.training`.

    python -m benchmarks.training.contender_dlc MODEL.dlm SETTINGS BATCH.npz RESULTS.npz THREADS

Writes the weights that training begins with (`weight:NAME`), the losses of the first two steps, and the
first moment of each gradient after the first step (`moment:NAME`); then it serves steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.serve import serve
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.calling.specialization import Specializations
from dlc.runtime.loaded_code import load_code
from dlc.runtime.training.trainer import Trainer

MOMENTS = ("m", "v")
"""Names of the first moment: of Adam, and of a heavy ball."""


def memory(
    artifact: Artifact, batch: Mapping[str, NDArray[np.generic]], threads: int
) -> dict[str, float]:
    """Bytes of a step beside the weights and what the optimizer keeps: arena and scratch.

    `lower_bound_bytes` are those alive at once in the order of the plan, whatever their places.
    """
    entry = next(entry for entry in artifact.manifest.entries if entry.name == STEP)
    shapes = {row.name: row.shape for row in artifact.manifest.weights}
    shapes |= {name: array.shape for name, array in batch.items()}
    program = load_code(artifact, untrusted=False).programs[STEP]
    at = Specializations(entry, program).at(
        [shapes.get(item.name, ()) for item in entry.inputs], {}
    )
    _, plan = program.evidence(at.dims)
    scratch = at.sized.scratch * threads
    return {"step_bytes": plan.arena + scratch, "lower_bound_bytes": plan.order_bound + scratch}


def main(model: str, settings: str, given: str, results: str, threads: str) -> None:
    """Compile the step, make two, and serve more."""
    with np.load(given) as file:
        batch = {key: file[key] for key in file.files}
    begin, worked = time.perf_counter(), time.process_time()
    made = make_artifact(CompileRequest(model, parameters=json.loads(settings), to_train=True))
    compiled, done = time.perf_counter(), time.process_time()
    trainer = Trainer(made.artifact, threads=int(threads))
    start = trainer.trained()
    found: dict[str, object] = {f"weight:{name}": value for name, value in start.items()}
    found["loss"] = trainer.step(**batch)
    ready = time.perf_counter()
    kept = trainer.weights
    for name in start:
        for moment in MOMENTS:
            if (key := f"$optimizer.{name}.{moment}") in kept:
                found[f"moment:{name}"] = np.array(kept[key])
                break
    found["second_loss"] = trainer.step(**batch)
    arrays = {name: np.asarray(value) for name, value in found.items()}
    np.savez(results, allow_pickle=False, **arrays)
    facts = memory(made.artifact, batch, int(threads))
    facts["compile_s"] = compiled - begin
    facts["compile_cpu_s"] = done - worked
    facts["ready_s"] = ready - begin
    inputs: dict[str, object] = dict(batch)

    def step() -> float:
        return trainer.step(**inputs)

    serve(step, facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
