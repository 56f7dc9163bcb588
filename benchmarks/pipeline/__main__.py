"""The bubble of a pipeline of stages: how much of a step they wait, measured and predicted by `dlc scale`.

    python -m benchmarks pipeline [--stages 2] [--data 1] [--microbatches 2 4 8 16] [--steps 10]
        [--width 512] [--network 25Gbit]

Trains a network of equal stages with m microbatches, each rank of one thread. *Waited* is the share of a
step in which a rank waits for others, the mean over the ranks. *Played* is that share if the parts took
nothing but their processor time and sending took none: the schedule with the measured times of the parts.
Predicted are the time of a step and what ranks wait, with the work of one process as it was measured.

With `--network` values go by a stand-in of a line, which takes time and no processor, and a rank's time is
its processor time and what it waits (`benchmarks/ranks/slow_network.py`): so there may be more ranks than
processors, and other work does not matter. Without it ranks send by MPI, and each needs a core of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders.turns import ROOT, python_path, ranked
from benchmarks.pipeline.contender import Times
from benchmarks.ranks.slow_network import build
from dlc.driver.run.request import CompileRequest
from dlc.driver.scale.predict import predict_scaling
from dlc.driver.scale.programs import RankPrograms, ScaleRequest
from dlc.driver.scale.timeline import Spent
from dlc.target.network import HERE, Network, network_named

ROWS, BLOCKS = 64, 4
"""Examples of a microbatch, and layers of a stage."""


def text_of(stages: int, width: int, data: int = 1) -> str:
    """A network whose stages have as much work each; of no stages, if `data` is 0, for one process."""
    names = [f"l{stage}_{block}" for stage in range(stages) for block in range(BLOCKS)]
    places = {name: f" on stage {name[1]}" if data else "" for name in names}
    uses = [f"  use {name} = Linear({width}, {width}){places[name]}" for name in names]
    calls = " |> ".join(
        name if k == len(names) - 1 else f"{name} |> relu" for k, name in enumerate(names)
    )
    axes = f"data = {data}, stage = {stages}" if data > 1 else f"stage = {stages}"
    return f"""\
dlc 1
import nn (Linear)
dim B = 1..{ROWS}
{f"mesh {axes}" if data else ""}

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


def measured(path: Path, ranks: int, numbers: Sequence[int], line: Sequence[str]) -> Times:
    """What ranks take, or one process; by a line, if one is named with its library."""
    arguments = [str(path), *map(str, numbers), *line]
    command = ranked(ranks, "benchmarks.pipeline.contender", *arguments)
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["PYTHONPATH"] = python_path()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return Times(*json.loads(done.stdout.splitlines()[-1]))


def predicted(
    path: Path, whole: Path, ranks: int, microbatches: int, seconds: float, network: Network
) -> Spent:
    """The step of ranks, where that of one process takes so many seconds."""
    request = CompileRequest(str(path), parameters={"M": microbatches})
    asked = ScaleRequest(request, ranks, network=network, threads=1)
    one = replace(asked, request=replace(request, path=str(whole)), ranks=1, step=seconds)
    return RankPrograms(asked).time(ranks, 1, predict_scaling(one).factor)


def main() -> None:
    """Print a row for each number of microbatches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pipeline")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--data", type=int, default=1, help="ranks of each stage")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--network", help="a line, as `dlc scale` takes it")
    given = parser.parse_args()
    stages, ranks = given.stages, given.stages * given.data
    network = HERE if given.network is None else network_named(given.network)
    assert network is not None, given.network
    with tempfile.TemporaryDirectory() as folder:
        path, whole = Path(folder) / "deep.dlm", Path(folder) / "whole.dlm"
        path.write_text(text_of(stages, given.width, given.data))
        whole.write_text(text_of(stages, given.width, 0))
        line = [] if given.network is None else [str(build(Path(folder))), given.network]
        for count in given.microbatches:
            numbers = (count, ROWS, given.width, given.steps)
            one = measured(whole, 1, numbers, [])
            found = measured(path, ranks, numbers, line)
            spent = predicted(path, whole, ranks, count, one.milliseconds / 1e3, network)
            bubble = (stages - 1) / (count + stages - 1)
            print(
                f"{stages} stages, {ranks} ranks, {count:3} microbatches: "
                f"one process {one.milliseconds:7.2f} ms  "
                f"measured {found.milliseconds:7.2f} ms, waited {found.waited:6.1%}, "
                f"played {found.played:6.1%}  "
                f"predicted {spent.total / 1e6:7.2f} ms, waits {spent.exposed / spent.total:6.1%}  "
                f"(p - 1) / (m + p - 1) {bubble:6.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
