"""Evaluation of one tile of a lowered kernel, for a CPU or a GPU, on the memory that the plan gives it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import simt
from dlc.dialects.loop.memory import POISON, EvaluationMachine, MemoryRange
from dlc.evaluation.gpu.warps import Launch
from dlc.lowering.kernel_code.writer import Function


def run_tile(
    function: Function,
    views: Sequence[MemoryRange],
    sizes: Sequence[int],
    tile: int,
    scratch: int = 0,
    steps: float = float("inf"),
) -> float:
    """Run one tile of a kernel on its views, with `scratch` bytes of its own; returns the steps left.

    Raises CallError where the kernel reports a failure, BadAccess where it accesses memory that is not its
    own, and StepLimit when it has run `steps` operations.
    """
    if isinstance(function, simt.Func):
        launch = Launch(function, views, sizes, scratch, steps)
        launch.run(tile)
        return launch.steps
    machine = EvaluationMachine(steps)
    arguments = [np.asarray(tile), np.asarray(tile + 1)]
    arguments += [machine.add(view) for view in views]
    arguments += [np.asarray(size, np.int64) for size in sizes]
    if scratch:
        memory = MemoryRange("the thread's scratch", np.full(scratch, POISON, np.uint8))
        arguments.append(machine.add(memory))
    with np.errstate(all="ignore"):
        machine.run(function.body, arguments)
    return machine.steps
