"""Training steps side by side with PyTorch, eager and compiled, and JAX: in turns, after they agree.

    python -m benchmarks training [NAME]... [--threads 2] [--rounds 5] [--quick] [--json FILE]

All contenders begin with the same weights and the same batch. Before anything is timed, the losses of the
first two steps and the gradients of the first must agree (each network's own optimizer keeps its first
moment: that is the gradient, but for a factor). The peers come from an environment that is made in the
cache folder the first time. `--quick` makes everything so small that only the benchmark is tested.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.environment import TRAINING, python_with
from benchmarks.training_cases import (
    OPTIMIZERS,
    QUICK_STEPS,
    STEPS,
    Array,
    Arrays,
    Case,
    path_of,
    with_optimizer,
)
from benchmarks.turns import TURN_SECONDS, NotReady, Process, take_turns

PEERS = ("torch eager", "torch.compile", "jax")
LIMIT = 1e-3
"""How far a gradient may be from ours, by its norm, and a loss, where the peers agree with each other."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of one contender: the milliseconds of its steps, turn by turn, and its facts.

    Facts are `ready_s` (from the description of the network to the end of the first step), `step_bytes`
    (what a step takes beside weights, optimizer and batch), and of ours `compile_s`, `compile_cpu_s` and
    `lower_bound_bytes`. `error` is how far its gradients were from ours at worst.
    """

    network: str
    contender: str
    threads: int
    turns: list[list[float]]
    facts: Mapping[str, float]
    error: float

    @property
    def best(self) -> float:
        """Milliseconds of the fastest step."""
        return min(spent for turn in self.turns for spent in turn)

    @property
    def median(self) -> float:
        """Milliseconds of the middle step."""
        return float(np.median([spent for turn in self.turns for spent in turn]))


class Training(Process):
    """A contender that has made two steps."""

    def __init__(
        self,
        name: str,
        network: str,
        case: Case,
        folder: Path,
        threads: int,
        patience: float | None,
    ) -> None:
        self._results = folder / f"{name}.npz"
        given, start = str(folder / "batch.npz"), str(folder / "dlc.npz")
        sizes, ends = json.dumps(dict(case.settings)), [str(self._results), str(threads)]
        python = python_with("training", *TRAINING) if name in PEERS else sys.executable
        match name:
            case "dlc":
                arguments = ["dlc", str(folder / "network.dlm"), sizes, given]
            case "jax":
                arguments = ["jax", network, case.optimizer, given, start]
            case _:
                how = "compiled" if name == "torch.compile" else "eager"
                arguments = ["torch", how, network, sizes, case.optimizer, given, start]
        module = f"benchmarks.contender_training_{arguments[0]}"
        # Empty caches: what compiling takes is measured too.
        caches = {
            "DLC_CACHE": str(folder / "objects"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "OMP_NUM_THREADS": str(threads),
        }
        super().__init__(name, [python, "-m", module, *arguments[1:], *ends], caches, patience)

    def results(self) -> dict[str, Array]:
        """`loss`, `second_loss` and `moment:NAME` of each weight."""
        with np.load(self._results) as file:
            return {key: file[key] for key in file.files if not key.startswith("weight:")}


def measure(
    network: str,
    case: Case,
    threads: int,
    rounds: int,
    *,
    contenders: Sequence[str] = ("dlc", *PEERS),
    seconds: float = TURN_SECONDS,
    patience: float | None = None,
) -> list[Outcome]:
    """All contenders, of which ours is the first, training one network in turns.

    A peer that has not made two steps after `patience` seconds is not among the outcomes.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        batch = case.batch(np.random.default_rng(1))
        np.savez(folder / "batch.npz", allow_pickle=False, **batch)
        text = with_optimizer(path_of(network), OPTIMIZERS[case.optimizer])
        (folder / "network.dlm").write_text(text, "utf-8")
        with ExitStack() as alive:
            running: list[Training] = []
            for name in contenders:
                with suppress(NotReady):
                    waited = patience if name in PEERS else None
                    made_ready = Training(name, network, case, folder, threads, waited)
                    running.append(alive.enter_context(made_ready))
            errors = [0.0] * len(running) if case.draws else agreement(network, running)
            take_turns(running, rounds, seconds)
    return [
        Outcome(network, process.name, threads, process.turns, process.facts, error)
        for process, error in zip(running, errors, strict=True)
    ]


def agreement(network: str, running: Sequence[Training]) -> list[float]:
    """How far each is from the first. Ends the program where that is too far."""
    ours, *theirs = [process.results() for process in running]
    limit = allowed(theirs)
    errors = [0.0]
    for process, results in zip(running[1:], theirs, strict=True):
        error, worst = furthest(ours, results)
        if not error <= limit:
            sys.exit(f"{network}: {process.name} differs from dlc by {error:.1e} in {worst}")
        errors.append(error)
    return errors


def allowed(theirs: Sequence[Arrays]) -> float:
    """How far ours may be from a peer: twice what is between two peers where that is more than `LIMIT`.

    In f32 a relu near zero may decide otherwise for each of them, and many layers make that larger.
    """
    return max([LIMIT, *[2 * furthest(*pair)[0] for pair in combinations(theirs, 2)]])


def furthest(ours: Arrays, theirs: Arrays) -> tuple[float, str]:
    """The largest error, relative by norm, and whose it is. Ends the program if names differ."""
    if different := ours.keys() ^ theirs.keys():
        sys.exit(f"only one side has {', '.join(sorted(different))}")
    return max((apart(ours[name], theirs[name]), name) for name in ours)


def apart(one: Array, other: Array) -> float:
    """The norm of the difference by the norm of the other; infinite for other shapes."""
    if one.shape != other.shape:
        return float("inf")
    first, second = one.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(first - second) / max(float(np.linalg.norm(second)), 1e-30))


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one network as lines for people, ours first."""
    ours, *peers = outcomes
    lines = [f"{ours.network}, {ours.threads} thread{'s' if ours.threads > 1 else ''}"]
    for outcome in outcomes:
        facts = outcome.facts
        lines.append(
            f"  {outcome.contender:13} best {outcome.best:9.2f} ms  median {outcome.median:9.2f} ms"
            f"  ready {facts['ready_s']:6.2f} s  step {facts['step_bytes'] / 2**20:8.1f} MiB"
            f"  gradients {outcome.error:7.1e}"
        )
    if peers:
        best = ours.best / min(peer.best for peer in peers)
        median = ours.median / min(peer.median for peer in peers)
        lines.append(f"  dlc / the fastest peer: best {best:.2f}  median {median:.2f}")
    lines.append(
        f"  dlc: compile {ours.facts['compile_s']:.2f} s ({ours.facts['compile_cpu_s']:.2f} s of processor"
        f" time), alive at once {ours.facts['lower_bound_bytes'] / 2**20:.1f} MiB"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure the networks that the command line names, all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STEPS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    cases = QUICK_STEPS if given.quick else STEPS
    rounds, seconds = (1, 0.0) if given.quick else (given.rounds, TURN_SECONDS)
    found: list[Outcome] = []
    for name in given.names or cases:
        outcomes = measure(name, cases[name], given.threads, rounds, seconds=seconds)
        print(table(outcomes), flush=True)
        found += outcomes
        if given.json:
            given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
