"""The bubble of a pipeline of stages: how much of a step they wait, beside (p - 1) / (m + p - 1).

    python -m benchmarks pipeline [--stages 2] [--microbatches 2 4 8 16] [--steps 10] [--width 512]

Trains a network of equal stages, each a rank of one thread, with m microbatches. *Waited* is the share
of a step in which a stage waited for values of others, the mean over the stages; it means something
where each rank has a core of its own. *Played* is the same share if the parts took nothing but their
processor time and sending took none: the schedule with the measured times of the parts, which other
work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.contenders.turns import ROOT, python_path, ranked
from dlc.runtime.calling.stage_call import schedule

OfStage: TypeAlias = "tuple[float, float, list[float]]"
"""The seconds of a step, those that a stage waits, and the processor time of each of its parts."""

ROWS, BLOCKS = 64, 4
"""Examples of a microbatch, and layers of a stage."""


def text_of(stages: int, width: int) -> str:
    """A network whose stages have as much work each."""
    names = [f"l{stage}_{block}" for stage in range(stages) for block in range(BLOCKS)]
    uses = [f"  use {name} = Linear({width}, {width}) on stage {name[1]}" for name in names]
    calls = " |> ".join(
        name if k == len(names) - 1 else f"{name} |> relu" for k, name in enumerate(names)
    )
    return f"""\
dlc 1
import nn (Linear)
dim B = 1..{ROWS}
mesh stage = {stages}

module Deep(M = 1) {{
{chr(10).join(uses)}
  fn run(x: f32[B, {width}]) -> f32[B, {width}] = x |> {calls}
}}

train Deep {{
  data = npz("none.npz", x="x", y="y")
  loss(x: f32[B, {width}], y: f32[B, {width}]) = mean((run(x) - y) ** 2)
  optimizer = sgd(lr=0.001)
  batch = {ROWS}
  accumulate = M
}}
"""


def played(parts: Sequence[Sequence[float]], microbatches: int) -> float:
    """The share of idle time if the parts of each stage took so long: forward, and backward but for the
    last.

    >>> played([[1, 2], [3]], 1), played([[1, 2], [3]], 3)
    (0.5, 0.25)
    """
    stages = len(parts)
    done: dict[tuple[int, int, int], float] = {}
    clocks = [0.0] * stages
    left = {s: list(schedule(s, stages, microbatches, len(own))) for s, own in enumerate(parts)}
    while any(left.values()):
        for stage, own in left.items():
            while own:
                part, k = own[0]
                is_backward = part == 1
                needs = (
                    (stage + 1, len(parts[stage + 1]) - 1, k) if is_backward else (stage - 1, 0, k)
                )
                if (is_backward or stage) and needs not in done:
                    break
                clocks[stage] = max(clocks[stage], done.get(needs, 0.0)) + parts[stage][part]
                done[stage, part, k] = clocks[stage]
                own.pop(0)
    work = microbatches * sum(map(sum, parts))
    return 1 - work / (stages * max(clocks))


def measured(path: Path, stages: int, microbatches: int, width: int, steps: int) -> list[OfStage]:
    """What the stages say of their steps."""
    numbers = [str(each) for each in (microbatches, ROWS, width, steps)]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["PYTHONPATH"] = python_path()
    command = ranked(stages, "benchmarks.pipeline.contender", str(path), *numbers)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a row for each number of microbatches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pipeline")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep.dlm"
        path.write_text(text_of(given.stages, given.width))
        for count in given.microbatches:
            found = measured(path, given.stages, count, given.width, given.steps)
            waited = sum(own / seconds for seconds, own, _ in found) / len(found)
            bubble = (given.stages - 1) / (count + given.stages - 1)
            share = played([parts for _, _, parts in found], count)
            print(
                f"{given.stages} stages, {count:3} microbatches: waited {waited:6.1%}, "
                f"played {share:6.1%}, (p - 1) / (m + p - 1) {bubble:6.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
