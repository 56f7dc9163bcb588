"""What Python and cuda-python take for a call and a step on a GPU; its driver is a stub, no kernel runs.

    python -m benchmarks gpu_calls

Prints microseconds: the least of several rounds. A call has two kernels and arrays on the device; steps are
of the benchmarks' GPT, whose batch comes from the host unless the line says otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dlc
from benchmarks.training.cases import OPTIMIZERS, STEPS, path_of, with_optimizer
from dlc.runtime.arrays.tensor import Tensor
from tests.runtime.cuda.stub import library

ROUNDS = 40
CALLS = 50
GPU = "cuda:sm_80"
TWO_KERNELS = """dlc 1
dim B = 1..300
export fn scaled(x: f32[B, 3], y: f32[B, 3]) -> f32[B, 3] = softmax(x * y + sum(x)) - x
"""
_INSIDE = "DLC_STUB_OF_THE_DRIVER"


def least(action: Callable[[], object]) -> float:
    """Microseconds of one action, of the round that nothing has interrupted."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            action()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best / CALLS


def measure() -> None:
    """Print what a call and a step take."""
    model = dlc.compile(text=TWO_KERNELS, target=GPU)
    x, y = (Tensor(np.ones((2, 3), np.float32)).to("cuda") for _ in range(2))
    print(f"call of two kernels, arrays on the device: {least(lambda: model.scaled(x, y)):.1f}")
    a, b = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    print(f"the same, arrays of the host: {least(lambda: model.scaled(a, b)):.1f}")
    print(f"the same by name: {least(lambda: model.scaled(y=b, x=a)):.1f}")
    case = STEPS["gpt"]
    text = with_optimizer(path_of("gpt"), OPTIMIZERS[case.optimizer])
    trainer = dlc.trainer(text=text, weights="init:1", target=GPU)
    batch = case.batch(np.random.default_rng(0))
    print(f"step of GPT: {least(lambda: trainer.step(**batch)):.1f}")
    print(f"the same without waiting: {least(lambda: trainer.step(wait=False, **batch)):.1f}")
    there = {name: Tensor(array).to("cuda") for name, array in batch.items()}
    print(f"step of GPT, batch on the device: {least(lambda: trainer.step(**there)):.1f}")
    held: list[object] = []

    def holding() -> None:
        held[:] = [model.scaled(x, y)]

    print(f"call of two kernels, each result held until the next: {least(holding):.1f}")


def main() -> None:
    """Measure in a process that takes the stub for the driver."""
    if _INSIDE in os.environ:
        measure()
        return
    with tempfile.TemporaryDirectory() as folder:
        library.build(Path(folder))
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, _INSIDE: "1"}
        subprocess.run([sys.executable, "-m", "benchmarks.gpu.calls"], env=environment, check=True)


if __name__ == "__main__":
    main()
