"""What plans need: near their bounds, against the order as written, and side by side with the peers.

    python -m benchmarks memory [NAME]... [--part plans|inference|training]... [--json]

`plans`: for each example and each light graph of the onnx package with seeded weights, inference and
training, the bytes of the arena over the bound for its order and over that for all orders, the bytes in the
order as written (without the passes `reorder` and `release`), and the part of the compilation that goes
into order and places. `inference`: the arena beside what onnxruntime takes for the light graphs, as the
operating system counts the pages of a process (`benchmarks.memory.contender`). `training`: a step beside
PyTorch's, by its own profiler, without weights, state of the optimizer and batch (`benchmarks.training`).
Ends with 3 if a bar is missed: 1.02 for the bound of an order, 1.15 for the mean over those of all orders,
0.8 for the mean of each comparison, and 10 % of a compilation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TypeAlias, TypeVar

import numpy as np

from benchmarks.contenders.environment import python_with
from benchmarks.contenders.turns import ROOT
from benchmarks.networks.__main__ import PEERS
from benchmarks.networks.files import models, network, network_names, opened_models, random_inputs
from benchmarks.training.cases import STEPS
from benchmarks.training.steps import measure
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import EntryPlan, compile_for_plan, entry_plans, models_of
from dlc.driver.run.request import CompileRequest
from dlc.planning import arena
from dlc.planning.arena import stacking
from dlc.planning.scheduling import moves
from dlc.runtime.artifact.manifest import EVALUATE

ORDER, ANY_ORDER, PEER, PLANNING = 1.02, 1.15, 0.8, 0.1
"""What is promised: of used over bounds, of ours over theirs, and of the time of a compilation."""
AS_WRITTEN = frozenset({"reorder", "release"})
PLANNERS = ("release", "reorder", "forward_slices", "eliminate_concats", "plan_memory")
"""The passes that decide about order and places."""
WITHOUT_BOUND = 64
"""What a size without a largest value is taken to be."""
HOWS = ("onnxruntime", "onnxruntime, no arena")


# Plans --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """The plan of an entry point: bytes, and the part of the compilation of its model for planning."""

    model: str
    entry: str
    used: int
    order_bound: int
    any_order_bound: int
    written: int
    planning: float

    @property
    def over_order(self) -> float:
        return self.used / max(1, self.order_bound)

    @property
    def over_any_order(self) -> float:
        return self.used / max(1, self.any_order_bound)

    @property
    def line(self) -> str:
        change = self.used / self.written - 1 if self.written else 0.0
        return (
            f"| {self.model} | {self.entry} | {self.used:,} | {self.over_order:.3f} | "
            f"{self.any_order_bound:,} | {self.over_any_order:.3f} | {self.written:,} | "
            f"{100 * change:+.1f} % | {100 * self.planning:.1f} % |"
        )


PLANS_HEAD = (
    "| model | entry | used | /order | any order | /any order | as written | change | planning |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def plans(name: str) -> Iterator[Row]:
    """The plans of a model, at its largest sizes, of training at its batch."""
    settings = Settings(), Settings(disabled=AS_WRITTEN)
    for (opened, wanted), (before, written) in zip(
        *[opened_models(name, each) for each in settings], strict=True
    ):
        begin = time.perf_counter()
        made = entry_plans(compile_for_plan(opened, wanted))
        whole = time.perf_counter() - begin
        planning = sum(opened.context.seconds.get(each, 0.0) for each in PLANNERS) / whole
        others = entry_plans(compile_for_plan(before, written))
        for one, other in zip(made, others, strict=True):
            if one.entry.name != EVALUATE:
                yield _row(name, one, other, planning)


def _row(model: str, one: EntryPlan, other: EntryPlan, planning: float) -> Row:
    missing = {name: WITHOUT_BOUND for name, size in one.usual.items() if size is None}
    found, before = (each.at(each.dims(missing)) for each in (one, other))
    bounds = found.order_bound, found.any_order_bound
    return Row(model, one.entry.name, found.arena, *bounds, before.arena, planning)


def plans_summary(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """The last lines of the table, and whether each bar is met."""
    worst = max(row.over_order for row in rows)
    yield f"over the bound for the order: at most {worst:.3f} ({ORDER})", worst <= ORDER
    mean = fmean(row.over_any_order for row in rows if row.any_order_bound)
    yield f"over the bound for all orders: {mean:.3f} on the mean ({ANY_ORDER})", mean <= ANY_ORDER
    most = max(row.planning for row in rows)
    yield f"planning: at most {100 * most:.1f} % of a compilation (10 %)", most <= PLANNING


# Peers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """What ours takes and what a peer takes, in bytes; `details` are all numbers there are."""

    model: str
    ours: float
    theirs: float
    details: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def line(self) -> str:
        amounts = f"{self.ours:,.0f} | {self.theirs:,.0f} | {self.ratio:.2f}"
        return f"| {self.model} | {amounts} | {self.details} |"


PAIRS_HEAD = "| model | dlc | peer | ratio | counted |\n| --- | --- | --- | --- | --- |"


def inference(name: str) -> Pair:
    """A light graph: our arena, and the least by which a process with onnxruntime grew in a call."""
    model = network(name)
    (opened,) = models_of(CompileRequest(str(model)))
    (planned,) = entry_plans(compile_for_plan(opened, CompileRequest(str(model))))
    need = planned.at(planned.dims({})).need
    ours = need.call.least - need.results
    with tempfile.TemporaryDirectory() as made:
        inputs = Path(made, "inputs.npz")
        np.savez(inputs, allow_pickle=False, **random_inputs(model))
        theirs = {how: grown(how, model, inputs) for how in HOWS}
    least = min(max(each) for each in theirs.values())
    told = [f"{how} {max(each):,}" for how, each in theirs.items()]
    return Pair(name, ours, least, ", ".join(told))


def grown(how: str, model: Path, inputs: Path) -> list[int]:
    """By how much a process of onnxruntime was larger during its first calls than before."""
    command = [
        python_with("peers", PEERS),
        "-m",
        "benchmarks.memory.contender",
        how,
        str(model),
        str(inputs),
    ]
    # Large blocks go back to the kernel when they are freed, so that what is counted is what is in use.
    settings = {"PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": "65536"}
    told = subprocess.run(
        command, env={**os.environ, **settings}, check=True, capture_output=True, text=True
    ).stdout
    return list(json.loads(told)["grown"])


def training(name: str) -> Pair:
    """A step of training: ours, and PyTorch's as it runs at once."""
    contenders = ("dlc", "torch eager")
    case = replace(STEPS[name], draws=True)  # whether they agree is not the question here
    ours, theirs = measure(name, case, 1, 1, contenders=contenders, seconds=0.0)
    return Pair(name, ours.facts["step_bytes"], theirs.facts["step_bytes"], "")


def pairs_summary(pairs: Sequence[Pair]) -> Iterator[tuple[str, bool]]:
    """The mean of ours over theirs."""
    mean = fmean(pair.ratio for pair in pairs)
    yield f"ours over theirs: {mean:.2f} on the mean ({PEER})", mean <= PEER


# The command --------------------------------------------------------------------------------------

Told = TypeVar("Told", Row, Pair)
Summary: TypeAlias = Callable[[Sequence[Told]], Iterator[tuple[str, bool]]]


def report(
    title: str, head: str, rows: Iterable[Told], summary: Summary[Told], *, as_json: bool
) -> bool:
    """Print a table row by row as it is measured, and whether its bars are met; gives that."""
    if not as_json:
        print(f"{title}\n\n{head}", flush=True)
    found: list[Told] = []
    for row in rows:
        found.append(row)
        print(json.dumps({"part": title, **asdict(row)}) if as_json else row.line, flush=True)
    if not found:
        return True
    told = list(summary(found))
    if not as_json:
        print("", *[f"{text}: {'met' if met else 'missed'}" for text, met in told], "", sep="\n")
    return all(met for _, met in told)


def main() -> int:
    """Measure what the command line asks for and print tables; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parts = ["plans", "inference", "training"]
    parser.add_argument("--part", action="append", choices=parts, help="all if none is named")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names: list[str] = given.names
    asked: list[str] = given.part or parts
    met: list[bool] = []
    with tempfile.TemporaryDirectory() as empty:
        os.environ["DLC_CACHE"] = empty  # what was compiled before would take no time
        _make_searches()
        if "plans" in asked:
            rows = (row for name in models(names) for row in plans(name))
            met.append(report("plans", PLANS_HEAD, rows, plans_summary, as_json=given.json))
        if "inference" in asked:
            pairs = (inference(name) for name in network_names() if not names or name in names)
            met.append(report("inference", PAIRS_HEAD, pairs, pairs_summary, as_json=given.json))
        if "training" in asked:
            pairs = (training(name) for name in STEPS if not names or name in names)
            met.append(report("training", PAIRS_HEAD, pairs, pairs_summary, as_json=given.json))
    return 0 if all(met) else 3


def _make_searches() -> None:
    """Compile the searches of the planner, which is done once on a machine."""
    machine_code(arena.search, arena.Tables)
    machine_code(stacking.improve, stacking.Stack)
    machine_code(moves.improve, moves.SearchState)


if __name__ == "__main__":
    sys.exit(main())
