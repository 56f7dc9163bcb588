"""Kernels, products, networks and their training on a GPU, side by side with PyTorch and JAX.

    python3 -m benchmarks.gpu [--only kernels|products|convolutions|attention|inference|training]...
        [--precision f32|tf32|f16|bf16]... [--name NAME]... [--rounds 5] [--seconds 0.3] [--patience 120]
        [--limit SECONDS] [--quick] [--out out/gpu]

It runs from a plain checkout, with the packages of the Python that runs it; a peer that is not installed,
or not ready after `--patience` seconds, is left out and said to be. In each precision all contenders
compute the same: f32 exactly (TF32 off), with factors rounded to tf32, or in bf16 (`benchmarks.gpu.table`
says what is). Peers are prepared one after the other, since they tune their kernels on the GPU. Before
anything is timed their results must agree with ours. Then they take turns. `--only` makes parts of a run,
whose files go to the same folder: `bench-PARTS.md` for people, `bench-PARTS.json` with every single time.
With `--limit` a run ends after this many seconds, and the same command goes on from there as long as the
files are kept: a case that was not over by then is measured anew, unless the run began with it, and last
are tried those in which ours did not run. The exit code is 4 where there is no GPU, and 1 where ours did
not run or results differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.contenders.turns import ROOT, NotReady, Process, take_turns
from benchmarks.gpu.case import KINDS, PRECISIONS, Array, GpuCase, Kind, Precision
from benchmarks.gpu.cases import cases
from benchmarks.gpu.machine import facts
from benchmarks.gpu.serve import NARROW
from benchmarks.gpu.table import page
from benchmarks.training.steps import apart
from dlc.driver.compile.host_target import to_run_here
from dlc.driver.compile.settings import Settings
from dlc.errors import Unsupported

PEERS = {"torch eager": "torch", "torch.compile": "torch", "jax": "jax"}
"""The peers, and the package that each needs."""
DIFFERS = "differs"
OWN_PATIENCE = 400.0
"""Seconds for an answer of ours: a large network is compiled in less, a kernel that hangs takes longer."""
SETTINGS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""JAX would take most of the GPU's memory at once, of which others need some."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of one contender: milliseconds, turn by turn, and its facts.

    `error` is how far its results were from ours; `missing` says why there are no times.
    """

    kind: Kind
    name: str
    precision: Precision
    contender: str
    amount: float
    turns: list[list[float]]
    facts: Mapping[str, float]
    error: float = 0
    missing: str = ""

    @property
    def best(self) -> float:
        """Milliseconds of the fastest call."""
        return min(spent for turn in self.turns for spent in turn)

    @property
    def median(self) -> float:
        """Milliseconds of the middle call."""
        return float(np.median([spent for turn in self.turns for spent in turn]))


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is measured, and how long peers are waited for."""

    rounds: int
    seconds: float
    patience: float
    end: float = float("inf")
    """When, by `time.monotonic`, no contender is waited for any more."""

    def waits(self, patience: float) -> float:
        """Seconds for which a contender is waited, of those that it may take."""
        return max(0.0, min(patience, self.end - time.monotonic()))


class Contender(Process):
    """One that has written its results, about the case that a folder has."""

    def __init__(
        self,
        name: str,
        case: GpuCase,
        folder: Path,
        patience: float | None,
        *,
        python: str = sys.executable,
        device: str = "cuda",
    ) -> None:
        stem = name.replace(" ", "_").replace(".", "_")
        self._results, self._gradients = folder / f"{stem}.npz", case.gradients
        spec = {
            **case.spec(),
            "given": str(folder / "given.npz"),
            "text": str(folder / "model.dlm"),
            "start": str(folder / "dlc.npz"),
            "results": str(self._results),
            "device": device,
        }
        path = folder / f"{stem}.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        module = f"benchmarks.gpu.contender_{PEERS.get(name, 'dlc')}"
        how = {"torch eager": ["eager"], "torch.compile": ["compiled"]}.get(name, [])
        super().__init__(name, [python, "-m", module, str(path), *how], SETTINGS, patience)

    def results(self) -> dict[str, Array]:
        """What is compared: results, losses, moments."""
        with np.load(self._results) as file:
            return {key: file[key] for key in file.files if is_compared(key, self._gradients)}


def write_case(case: GpuCase, folder: Path) -> None:
    """Leave in a folder what contenders read there."""
    np.savez(folder / "given.npz", allow_pickle=False, **case.arrays())
    (folder / "model.dlm").write_text(case.text, encoding="utf-8")


def is_compared(name: str, gradients: str) -> bool:
    """Whether an array is one of the results: of moments, those of weights whose names begin so."""
    if name.startswith("moment:"):
        return name.startswith(f"moment:{gradients}")
    return name != NARROW and not name.startswith("weight:")


def measure(case: GpuCase, peers: Sequence[str], effort: Effort) -> list[Outcome]:
    """All contenders on one case, ours first. Only those whose results agree with ours are timed."""
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as made, ExitStack() as alive:
        folder = Path(made)
        write_case(case, folder)
        ours = alive.enter_context(Contender("dlc", case, folder, effort.waits(OWN_PATIENCE)))
        running: list[Contender] = []
        for name in peers:
            patience = effort.waits(effort.patience)
            try:
                peer = Contender(name, case, folder, patience)
            except NotReady:
                missing[name] = f"not ready after {patience:.0f} s"
            except SystemExit as error:
                missing[name] = f"{error}"
            else:
                running.append(alive.enter_context(peer))
        errors = distances(ours.results(), {peer.name: peer.results() for peer in running})
        limit = allowed(case, [peer.results() for peer in running])
        missing |= {
            name: f"{DIFFERS} by {error:.1e}" for name, error in errors.items() if error > limit
        }
        timed = [ours, *[peer for peer in running if peer.name not in missing]]
        while late := _late_one(timed, effort):
            missing[late.name] = f"no answer in {effort.patience:.0f} s"
            timed.remove(late)
        found = [_outcome(case, one, errors.get(one.name, 0.0)) for one in timed]
    return [*found, *[_missing(case, name, why) for name, why in missing.items()]]


def _late_one(running: Sequence[Contender], effort: Effort) -> Contender | None:
    """Let the contenders take turns; the one that did not answer, if one did not.

    Raises NotReady for ours, which is the first.
    """
    for one in running:
        one.turns.clear()
    try:
        take_turns(running, effort.rounds, effort.seconds, least=0, end=effort.end)
    except NotReady as late:
        if f"{late}" == running[0].name:
            raise
        return next(one for one in running if one.name == f"{late}")
    return None


def _outcome(case: GpuCase, one: Contender, error: float) -> Outcome:
    facts = (case.kind, case.name, case.precision, one.name, case.amount)
    return Outcome(*facts, one.turns, one.facts, error)


def _missing(case: GpuCase, name: str, why: str) -> Outcome:
    facts = (case.kind, case.name, case.precision, name, case.amount)
    return Outcome(*facts, [], {}, missing=why)


def distances(
    ours: Mapping[str, Array], theirs: Mapping[str, Mapping[str, Array]]
) -> dict[str, float]:
    """How far the results of each are from ours."""
    return {name: furthest(ours, results) for name, results in theirs.items()}


def furthest(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The largest error of a result, relative by its norm; infinite if names differ."""
    if ours.keys() != theirs.keys():
        return float("inf")
    return max(apart(ours[name], theirs[name]) for name in ours)


def allowed(case: GpuCase, theirs: Sequence[Mapping[str, Array]]) -> float:
    """How far ours may be from a peer: twice what is between two peers where that is more.

    A relu near zero may decide otherwise for each of them, and many layers make that larger. Ten times the
    limit is too much for anybody: then a peer is wrong.
    """
    between = [2 * furthest(*pair) for pair in combinations(theirs, 2)]
    return min(10 * case.limit, max([case.limit, *between]))


def earlier(folder: Path, stem: str) -> list[Outcome]:
    """What a run before has measured, of this commit, on this device and with these packages."""
    file = folder / f"{stem}.json"
    if not file.exists():
        return []
    data: dict[str, object] = json.loads(file.read_text("utf-8"))
    if any(data.get(name) != value for name, value in facts().items() if name != "date"):
        return []
    return [Outcome(**each) for each in cast("list[dict[str, Any]]", data["outcomes"])]


def write(folder: Path, stem: str, outcomes: Sequence[Outcome]) -> None:
    """Both files, as far as the run has come."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = facts()
    data = {**machine, "outcomes": [asdict(one) for one in outcomes]}
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / f"{stem}.md").write_text(page(machine, outcomes), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names, everything if it names nothing; 4 where there is no GPU."""
    given = _parser().parse_args(arguments)
    try:
        to_run_here(Settings(target="cuda"))
    except Unsupported as error:
        print(f"there is nothing to measure: {error.diagnostics[0].message}", file=sys.stderr)
        return error.exit_code
    kinds = cast("list[Kind]", given.only or list(KINDS))
    precisions = cast("list[Precision]", given.precision or list(PRECISIONS))
    peers = [name for name, package in PEERS.items() if find_spec(package) is not None]
    for name in PEERS.keys() - set(peers):
        print(f"{name} is left out: the package {PEERS[name]} is not installed", file=sys.stderr)
    end = float("inf") if given.limit is None else time.monotonic() + given.limit
    how = (1, 0.0) if given.quick else (given.rounds, given.seconds)
    effort = Effort(*how, given.patience, end)
    wanted = [
        case
        for kind in kinds
        for precision in precisions
        for case in cases(kind, precision, quick=given.quick)
        if not given.name or case.name in given.name
    ]
    stem = "-".join(["bench", *(given.only or ()), *(given.precision or ()), *(given.name or ())])
    found = [] if given.limit is None else earlier(ROOT / given.out, stem)
    known = {key_of(one) for one in found}
    failed = {key_of(one) for one in found if one.contender == "dlc" and one.missing}
    left = [
        *[case for case in wanted if key_of(case) not in known],
        *[case for case in wanted if key_of(case) in failed],
    ]
    for number, case in enumerate(left):
        patience = effort.waits(OWN_PATIENCE)
        try:
            outcomes = measure(case, peers, effort) if patience else []
        except NotReady:
            outcomes = [_missing(case, "dlc", f"no answer in {patience:.0f} s")]
        except SystemExit as error:  # ours: the other cases can be measured all the same
            outcomes = [_missing(case, "dlc", f"{error}")]
        if time.monotonic() >= effort.end and (number or not outcomes):
            print(f"{len(left) - number} cases are left for the next run", flush=True)
            break
        found = [*[one for one in found if key_of(one) != key_of(case)], *outcomes]
        print(_line(case, outcomes), flush=True)
        write(ROOT / given.out, stem, found)
    return 1 if any(is_fault(one) for one in found) else 0


def key_of(one: GpuCase | Outcome) -> tuple[str, str, str]:
    """What tells cases apart."""
    return one.kind, one.name, one.precision


def is_fault(one: Outcome) -> bool:
    """Whether ours did not run, or somebody's results differ."""
    return bool(one.missing) and (one.contender == "dlc" or one.missing.startswith(DIFFERS))


def _line(case: GpuCase, outcomes: Sequence[Outcome]) -> str:
    times = [
        f"{one.contender} {one.missing or f'{one.best:.4g} ms ({one.median:.4g})'}"
        for one in outcomes
    ]
    return f"{case.kind} {case.title}: {', '.join(times)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python3 -m benchmarks.gpu", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--only", action="append", choices=KINDS)
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--name", action="append", help="only cases of this name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a contender's turn")
    parser.add_argument("--patience", type=float, default=120, help="seconds that a peer may take")
    parser.add_argument("--limit", type=float, help="seconds after which the run is over")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the benchmark")
    parser.add_argument("--out", default=os.path.join("out", "gpu"), help="folder for the files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
