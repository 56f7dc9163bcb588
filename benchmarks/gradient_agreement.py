"""Gradients of networks by compiled training steps, side by side with PyTorch's.

    python -m benchmarks gradient_agreement [NAME]... [--json]

The networks are those of `examples/networks`, smaller where they are stacks of one kind. Both sides get
the same weights and the same batch; what a step of ours, in f32, hands its optimizer is compared with
what PyTorch finds in f64, for each weight relative to the largest element of its gradient. How far
PyTorch in f32 is from that says what is to be expected. PyTorch comes from an environment that is made
in the cache folder the first time.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import TORCH, python_with
from dlc.driver.make import Wanted
from dlc.driver.train import make_trainer

HERE = Path(__file__).parent
NETWORKS = HERE.parent / "examples" / "networks"
LIMIT = 1e-4
"""Of the largest element of a gradient, between PyTorch in f64 and ours."""
RECORDER = """
## Keeps what it is given, and leaves the weights as they are.
module recorder {
  state gradient: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set gradient = g
    return p
  }
}
"""
"""The optimizer of the steps that are compared."""

Array: TypeAlias = NDArray[np.generic]
Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A network, the parameters that make it small, and a batch."""

    settings: Mapping[str, int]
    batch: Callable[[np.random.Generator], Arrays]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one network agrees with PyTorch in f64: the losses, and the worst weight.

    `ours` and `theirs` are the largest errors of our gradients and of PyTorch's in f32.
    """

    network: str
    weights: int
    loss: float
    exact_loss: float
    ours: float
    worst: str
    theirs: float

    @property
    def is_right(self) -> bool:
        """Whether all our gradients and the loss are within the limit."""
        return max(self.ours, abs(self.loss / self.exact_loss - 1)) <= LIMIT


def _pictures(random: np.random.Generator) -> Arrays:
    return {
        "image": random.standard_normal((8, 32, 32, 3), np.float32),
        "label": random.integers(0, 10, 8, dtype=np.int32),
    }


def _tokens(random: np.random.Generator) -> Arrays:
    return {"ids": random.integers(0, 256, (4, 33), dtype=np.int32)}


def _ratings(random: np.random.Generator) -> Arrays:
    return {
        "user": random.integers(0, 2000, 256, dtype=np.int32),
        "item": random.integers(0, 1000, 256, dtype=np.int32),
        "liked": random.integers(0, 2, 256).astype(np.float32),
    }


CASES = {
    "resnet18": Case({}, _pictures),
    "gpt": Case({"L": 2, "D": 128}, _tokens),
    "lstm": Case({"D": 128}, _tokens),
    "ncf": Case({"users": 2000, "items": 1000}, _ratings),
}


def by_dlc(name: str, case: Case, batch: Arrays) -> tuple[dict[str, Array], float, Arrays]:
    """The weights that a trainer begins with, and the loss and the gradients of its first step."""
    path = NETWORKS / f"{name}.dlm"
    text, count = re.subn(
        r"(?m)^  optimizer = .*$", "  optimizer = recorder()", path.read_text("utf-8")
    )
    assert count == 1, f"{path} has no optimizer in a line of its own"
    trainer, _ = make_trainer(Wanted(str(path), text=text + RECORDER, parameters=case.settings))
    weights = trainer.trained()
    loss = trainer.step(**batch)
    kept = trainer.weights
    names = {key: f"$optimizer.{key}.gradient" for key in weights}
    return weights, loss, {k: np.array(kept[n]) for k, n in names.items() if n in kept}


def by_torch(name: str, weights: Arrays, batch: Arrays, python: str) -> dict[str, Array]:
    """What PyTorch finds: `32:loss`, `32:NAME`, `64:loss` and `64:NAME`."""
    with tempfile.TemporaryDirectory() as made:
        given, results = Path(made, "given.npz"), Path(made, "results.npz")
        arrays = {f"weight:{key}": value for key, value in weights.items()}
        np.savez(given, allow_pickle=False, **arrays, **batch)
        script = str(HERE / "contender_torch.py")
        subprocess.run([python, script, name, str(given), str(results)], check=True)
        with np.load(results) as file:
            return {key: file[key] for key in file.files}


def compare(name: str, python: str) -> Agreement:
    """How one network agrees. Ends the program where a weight has a gradient on one side only."""
    case = CASES[name]
    batch = case.batch(np.random.default_rng(1))
    weights, loss, ours = by_dlc(name, case, batch)
    theirs = by_torch(name, weights, batch, python)
    known = {key[3:] for key in theirs if key.startswith("32:")} - {"loss"}
    if known != set(ours):
        sys.exit(f"{name}: only one side has a gradient by {', '.join(known ^ set(ours))}")
    error, worst = max([(_apart(ours[key], theirs[f"64:{key}"]), key) for key in ours])
    expected = max([_apart(theirs[f"32:{key}"], theirs[f"64:{key}"]) for key in ours])
    exact = float(theirs["64:loss"])
    return Agreement(name, len(ours), loss, exact, error, worst, expected)


def _apart(one: Array, other: Array) -> float:
    """The largest difference relative to the largest element of the other."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    return float(np.abs(first - second).max() / max(float(np.abs(second).max()), 1e-30))


def main() -> None:
    """Compare the networks that the command line names, all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    python = python_with("training", TORCH)
    found = [compare(name, python) for name in given.names or CASES]
    if given.json:
        print(json.dumps([asdict(row) for row in found]))
    else:
        print("network   weights      loss   PyTorch  our error  PyTorch's  our worst weight")
        for row in found:
            print(
                f"{row.network:9} {row.weights:7} {row.loss:9.6f} {row.exact_loss:9.6f}  "
                f"{row.ours:9.1e}  {row.theirs:9.1e}  {row.worst}{'' if row.is_right else '  WRONG'}"
            )
    if not all(row.is_right for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
