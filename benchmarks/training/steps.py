"""The contenders of a training step: the same weights and batch, compared, then timed in turns."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.contenders.environment import TRAINING, python_with
from benchmarks.contenders.turns import TURN_SECONDS, NotReady, Process, take_turns
from benchmarks.training.cases import (
    OPTIMIZERS,
    Array,
    Arrays,
    Case,
    path_of,
    with_optimizer,
)

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
        module = f"benchmarks.training.contender_{arguments[0]}"
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
