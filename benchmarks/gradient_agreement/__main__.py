"""Gradients of networks by compiled training steps, side by side with PyTorch's.

    python -m benchmarks gradient_agreement [NAME]... [--json]

The networks are those of `examples/networks`, smaller where they are stacks of one kind. Both sides get
the same weights and the same batch, and gradients are compared with what PyTorch finds in f64, for each
weight relative to the largest element: ours compiled in f64, and what a training step, in f32, hands its
optimizer. Where f32 puts an element on the other side of a relu its gradient is another one, for PyTorch
as for us; how far PyTorch in f32 is from f64 says what is to be expected there. PyTorch comes from an
environment that is made in the cache folder the first time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.contenders.environment import TRAINING, python_with
from benchmarks.training.cases import NETWORKS, Array, Arrays, with_optimizer
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.gradcheck.check import Check, compile_gradients
from dlc.driver.gradcheck.check_values import Values
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.runtime.calling.dim_binding import DimBinder

HERE = Path(__file__).parent
LIMIT = 1e-4
"""Of the largest element of a gradient, between PyTorch in f64 and ours in f32, unless PyTorch in f32 is
itself more than half as far from it as ours."""
EXACT_LIMIT = 1e-10
"""The same between both in f64."""
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


@dataclass(frozen=True, slots=True)
class Case:
    """A network, the parameters that make it small, and a batch."""

    settings: Mapping[str, int]
    batch: Callable[[np.random.Generator], Arrays]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one network agrees with PyTorch in f64: the losses, and the worst weight.

    `exact` is the largest error of our gradients in f64, `ours` and `theirs` of ours and PyTorch's in
    f32.
    """

    network: str
    weights: int
    loss: float
    exact_loss: float
    exact: float
    ours: float
    worst: str
    theirs: float

    @property
    def is_right(self) -> bool:
        """Whether all our gradients and the loss are within the limits."""
        return (
            self.exact <= EXACT_LIMIT
            and self.ours <= max(LIMIT, 2 * self.theirs)
            and abs(self.loss / self.exact_loss - 1) <= LIMIT
        )


def _pictures(random: np.random.Generator) -> Arrays:
    return {
        "image": random.standard_normal((8, 32, 32, 3), np.float32),
        "label": random.integers(0, 10, 8, dtype=np.int32),
    }


def _photograph(random: np.random.Generator) -> Arrays:
    """A single one, so that the last normalisations have 49 numbers for their moments."""
    return {
        "image": random.integers(0, 256, (1, 224, 224, 3), np.uint8),
        "label": random.integers(0, 10, 1, np.int32),
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
    "resnet50": Case({"classes": 10}, _photograph),
    "gpt": Case({"L": 2, "D": 128}, _tokens),
    "lstm": Case({"D": 128}, _tokens),
    "ncf": Case({"users": 2000, "items": 1000}, _ratings),
}


def by_dlc(name: str, case: Case, batch: Arrays) -> tuple[dict[str, Array], float, Arrays]:
    """The weights that a trainer begins with, and the loss and the gradients of its first step."""
    path = NETWORKS / f"{name}.dlm"
    text = with_optimizer(path, "recorder()")
    trainer, _ = make_trainer(
        CompileRequest(str(path), text=text + RECORDER, parameters=case.settings)
    )
    weights = trainer.trained()
    loss = trainer.step(**batch)
    kept = trainer.weights
    names = {key: f"$optimizer.{key}.gradient" for key in weights}
    return weights, loss, {k: np.array(kept[n]) for k, n in names.items() if n in kept}


def exactly_by_dlc(name: str, case: Case, weights: Arrays, batch: Arrays) -> Arrays:
    """The gradients of the loss in f64, compiled."""
    opened = open_training(NETWORKS / f"{name}.dlm", settings=case.settings, purpose="loss")
    function = find_function(opened.module, None)
    entry = interface_of(function)
    dims = DimBinder(entry).bind([batch[item.name].shape for item in entry.inputs], {})
    wide = {
        key: value.astype(np.float64) if value.dtype == np.float32 else value
        for key, value in {**weights, **batch}.items()
    }
    check = Check(opened.module, function, Values(wide, dims, "a batch"))
    check.values[-1] = np.asarray(1.0)  # what the loss receives
    return check.gradients(compile_gradients(opened, [check], Settings()))


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
    exactly = exactly_by_dlc(name, case, weights, batch)
    theirs = by_torch(name, weights, batch, python)
    known = {key[3:] for key in theirs if key.startswith("32:")} - {"loss"}
    if known != set(ours):
        sys.exit(f"{name}: only one side has a gradient by {', '.join(known ^ set(ours))}")
    error, worst = max([(_apart(ours[key], theirs[f"64:{key}"]), key) for key in ours])
    expected = max([_apart(theirs[f"32:{key}"], theirs[f"64:{key}"]) for key in ours])
    exact = max([_apart(exactly[key], theirs[f"64:{key}"]) for key in ours])
    exact_loss = float(theirs["64:loss"])
    return Agreement(name, len(ours), loss, exact_loss, exact, error, worst, expected)


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
    python = python_with("training", *TRAINING)
    found = [compare(name, python) for name in given.names or CASES]
    if given.json:
        print(json.dumps([asdict(row) for row in found]))
    else:
        print(
            "network   weights      loss   PyTorch  ours, f64  ours, f32  PyTorch's  our worst, f32"
        )
        for row in found:
            print(
                f"{row.network:9} {row.weights:7} {row.loss:9.6f} {row.exact_loss:9.6f}  "
                f"{row.exact:9.1e}  {row.ours:9.1e}  {row.theirs:9.1e}  {row.worst}"
                f"{'' if row.is_right else '  WRONG'}"
            )
    if not all(row.is_right for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
