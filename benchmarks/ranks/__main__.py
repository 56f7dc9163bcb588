"""Ranks side by side with one process and with PyTorch's DDP, and all-reduces with mpi4py's: in turns.

    python -m benchmarks ranks [NAME]... [--ranks 2] [--network 25Gbit] [--rounds 5] [--quick] [--json FILE]

NAME is `all_reduce`, a network of `python -m benchmarks training`, or one of two that take each of these
networks by a line that takes time and no processor (`--network`): `scale` trains it by 1, 2, 4 and 8 ranks
beside what `dlc scale` predicts, `hidden` counts what ranks wait for it. Without a name it is all.

An all-reduce by compiled code is measured against a bare `Allreduce`. A network is trained by ranks of one
thread, by one process of as many threads as there are ranks, and by DistributedDataParallel over Gloo, with
the same weights and the same batch. The losses of the first two steps must agree before anything is timed;
only of networks with batch normalization DDP's do not, which takes the statistics of each rank's part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contenders.environment import TRAINING, python_with
from benchmarks.contenders.turns import ROOT, TURN_SECONDS, Process, python_path, ranked, take_turns
from benchmarks.ranks.hidden import Hidden, hidden_in
from benchmarks.ranks.scale import Compared, compared
from benchmarks.ranks.slow_network import build
from benchmarks.training.cases import OPTIMIZERS, QUICK_STEPS, STEPS, Case, path_of, with_optimizer
from benchmarks.training.steps import LIMIT
from dlc.target.network import network_named

ALL_REDUCE, SCALE, HIDDEN = "all_reduce", "scale", "hidden"
NETWORKS = ("mlp", "resnet18", "gpt")
OWN_STATISTICS = ("resnet18",)
"""The networks whose batch normalization sees another batch in DDP."""
SIZES = tuple(4096 * 4**k for k in range(8))
"""The bytes of the arrays that are summed: 4 KiB to 64 MiB."""


def all_reduces(ranks: int, rounds: int, sizes: Sequence[int]) -> Iterator[dict[str, object]]:
    """For each size the milliseconds of our calls and of mpi4py's, best and median."""
    command = ranked(ranks, "benchmarks.ranks.contender_all_reduce", str(rounds), *map(str, sizes))
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["PYTHONPATH"] = python_path()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    for line in done.stdout.splitlines():
        size, ours, theirs = json.loads(line)
        yield {
            "bytes": size,
            "best": [min(ours), min(theirs)],
            "median": [float(np.median(ours)), float(np.median(theirs))],
        }


def all_reduce_text(row: dict[str, object]) -> str:
    """One size as a line for people."""
    best, median = row["best"], row["median"]
    assert isinstance(best, list) and isinstance(median, list)
    bests = f"best {best[0]:8.3f} / {best[1]:8.3f} ms = {best[1] / best[0]:4.2f}"
    medians = f"median {median[0]:8.3f} / {median[1]:8.3f} ms = {median[1] / median[0]:4.2f}"
    return f"  {row['bytes']:>10,} bytes  {bests}  {medians} times as fast"


def contenders(
    network: str, case: Case, folder: Path, ranks: int, alive: ExitStack
) -> Iterator[Process]:
    """Ours as ranks, ours as one process, and PyTorch's, each after its first two steps."""
    settings, given = json.dumps(dict(case.settings)), str(folder / "batch.npz")
    model = str(folder / "network.dlm")

    def ours(name: str, processes: int, threads: int, *without: str) -> Process:
        results = str(folder / f"{name}.npz")
        arguments = [model, settings, given, results, str(threads), *without]
        command = ranked(processes, "benchmarks.ranks.contender_dlc", *arguments)
        return alive.enter_context(Process(name, command, {"OMP_NUM_THREADS": str(threads)}))

    yield ours("ranks", ranks, 1)
    yield ours("blocking", ranks, 1, "overlap")
    yield ours("threads", 1, ranks)
    python, start = python_with("training", *TRAINING), str(folder / "ranks.npz")
    module = [python, "-m", "benchmarks.ranks.contender_torch"]
    ends = [given, start, str(folder / "ddp.npz"), "1", str(ranks)]
    command = [*module, network, settings, case.optimizer, *ends]
    yield alive.enter_context(Process("ddp", command, {"OMP_NUM_THREADS": "1"}))


def scaled(network: str, case: Case, rounds: int, most: int, line: str) -> Iterator[Compared]:
    """Steps of up to `most` ranks by such a line, measured and predicted."""
    found = network_named(line)
    assert found is not None, line
    with tempfile.TemporaryDirectory() as made:
        by = ByNetwork.of(network, case, Path(made), line)
        yield from compared(by.model, case, by.start, rounds, most, found)


def hidden(network: str, case: Case, rounds: int, ranks: int, line: str) -> Iterator[Hidden]:
    """What a step hides of the time of its collectives by such a line."""
    with tempfile.TemporaryDirectory() as made:
        by = ByNetwork.of(network, case, Path(made), line)
        yield from hidden_in(partial(by.start, ranks), rounds)


@dataclass(frozen=True, slots=True)
class ByNetwork:
    """Starts ranks that train a network and send by a line beside the processors."""

    model: Path
    arguments: Sequence[str]
    library: Path
    line: str

    @classmethod
    def of(cls, network: str, case: Case, folder: Path, line: str) -> ByNetwork:
        """Its files are in a folder."""
        np.savez(folder / "batch.npz", allow_pickle=False, **case.batch(np.random.default_rng(1)))
        model = folder / "network.dlm"
        model.write_text(with_optimizer(path_of(network), OPTIMIZERS[case.optimizer]), "utf-8")
        given = [json.dumps(dict(case.settings)), str(folder / "batch.npz"), str(folder / "r.npz")]
        return cls(model, given, build(folder), line)

    def start(self, ranks: int, without: str = "") -> Process:
        """Start so many ranks, which leave out a pass."""
        arguments = [str(self.model), *self.arguments, "1", without, str(self.library), self.line]
        command = ranked(ranks, "benchmarks.ranks.contender_dlc", *arguments)
        return Process(f"{ranks} ranks", command, {"OMP_NUM_THREADS": "1"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a network: samples per second by contender, and what collectives take.

    `facts` has `collectives_ms` and `step_ms` of our ranks, with and without overlap.
    """

    network: str
    unit: str
    best: Mapping[str, float]
    median: Mapping[str, float]
    facts: Mapping[str, Mapping[str, float]]


def measure(network: str, case: Case, ranks: int, rounds: int, seconds: float) -> Measured:
    """Train with each contender in turns."""
    with tempfile.TemporaryDirectory() as made, ExitStack() as alive:
        folder = Path(made)
        batch = case.batch(np.random.default_rng(1))
        np.savez(folder / "batch.npz", allow_pickle=False, **batch)
        text = with_optimizer(path_of(network), OPTIMIZERS[case.optimizer])
        (folder / "network.dlm").write_text(text, "utf-8")
        running = list(contenders(network, case, folder, ranks, alive))
        for process in running[1:]:
            _compare(network, process.name, folder)
        take_turns(running, rounds, seconds)
        best = {each.name: case.count / min(each.times) * 1e3 for each in running}
        median = {each.name: case.count / float(np.median(each.times)) * 1e3 for each in running}
        facts = {each.name: each.facts for each in running[:2]}
    return Measured(network, case.unit, best, median, facts)


def _compare(network: str, name: str, folder: Path) -> None:
    """End the program where the losses of a contender are not those of our ranks.

    A step can bring the loss near 0; what it rounded is a share of the loss before it.
    """
    with np.load(folder / "ranks.npz") as ours, np.load(folder / f"{name}.npz") as theirs:
        scale = abs(float(ours["loss"]))
        for loss in ("loss", "second_loss"):
            one, other = float(ours[loss]), float(theirs[loss])
            if name == "ddp" and network in OWN_STATISTICS:
                continue
            if not abs(one - other) <= LIMIT * scale:
                sys.exit(f"{network}: the {loss} of {name} is {other}, that of ranks {one}")


def network_text(row: Measured, ranks: int) -> str:
    """What was measured of a network as lines for people."""
    best, median, facts = row.best, row.median, row.facts
    lines = [f"{row.network}, {ranks} ranks, {row.unit} per second"]
    for name in best:
        ratio = f"ranks are {best['ranks'] / best[name]:.2f}, {median['ranks'] / median[name]:.2f}"
        lines.append(f"  {name:9} best {best[name]:9.1f}  median {median[name]:9.1f}  {ratio}")
    shown, whole = (facts[name]["collectives_ms"] for name in ("ranks", "blocking"))
    share = shown / facts["ranks"]["step_ms"]
    hidden = 1 - shown / whole if whole else 0.0
    lines.append(
        f"  in collectives {shown:.2f} ms, {share:.1%} of a step; blocking {whole:.2f} ms: "
        f"{hidden:.0%} hidden"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    names = (ALL_REDUCE, *NETWORKS, SCALE, HIDDEN)
    known = ", ".join((ALL_REDUCE, *STEPS, SCALE, HIDDEN))
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--network", default="25Gbit", help="of `scale` and `hidden`, as `dlc scale` takes it"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    cases = QUICK_STEPS if given.quick else STEPS
    rounds, seconds = (1, 0.0) if given.quick else (given.rounds, TURN_SECONDS)
    found: list[object] = []
    for name in given.names or names:
        if name == ALL_REDUCE:
            print(f"all_reduce, {given.ranks} ranks: ours / mpi4py", flush=True)
            for row in all_reduces(given.ranks, rounds, SIZES[:2] if given.quick else SIZES):
                print(all_reduce_text(row), flush=True)
                found.append(row)
        elif name == SCALE:
            for network in NETWORKS:
                print(f"scale, {network}: measured, and predicted from one rank", flush=True)
                most = 2 if given.quick else 8
                for compared_row in scaled(network, cases[network], rounds, most, given.network):
                    print(compared_row.text, flush=True)
                    found.append({"network": network, **asdict(compared_row)})
        elif name == HIDDEN:
            for network in NETWORKS:
                print(f"hidden, {network}, {given.ranks} ranks, {given.network}", flush=True)
                case = cases[network]
                for row in hidden(network, case, rounds, given.ranks, given.network):
                    print(row.text, flush=True)
                    found.append({"network": network, **asdict(row)})
        else:
            measured = measure(name, cases[name], given.ranks, rounds, seconds)
            print(network_text(measured, given.ranks), flush=True)
            found.append(asdict(measured))
        if given.json:
            given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
