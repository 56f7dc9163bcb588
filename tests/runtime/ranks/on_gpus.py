"""Programs of ranks with a GPU each: every collective, and a training; for tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import dlc
from dlc.driver.compile.compile import Report
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.run.train import plan_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.training.trainer import Trainer

GPU = "cuda:sm_80"
EACH = """module {dlc.mesh=["data = 2"]} {
  func @each {dlc.inputs=["x"]} (%0: f32[2, 3]) {
    %1 = comm.all_reduce %0 {mesh_axis="data", ranks=2}
    %2 = comm.all_gather %0 {mesh_axis="data", ranks=2}
    %3 = comm.reduce_scatter %0 {mesh_axis="data", ranks=2}
    %4 = comm.all_to_all %0 {mesh_axis="data", ranks=2}
    %5 = comm.broadcast %0 {mesh_axis="data", ranks=2, root=1}
    %6 = comm.permute %0 {mesh_axis="data", ranks=2}
    %7 = comm.rank {mesh_axis="data", ranks=2}
    %8 = comm.all_reduce %0 {mesh_axis="data", ranks=2, combine="max"}
    return %1, %2, %3, %4, %5, %6, %7, %8
  }
}
"""
NET = """\
dlc 1
import nn (Linear)
dim B = 1..8
module Net() {
  use hidden = Linear(3, 4)
  use out = Linear(4, 1)
  export fn guess(x: f32[B, 3]) -> f32[B] = out(tanh(hidden(x)))[:, 0]
}
train Net {
  data = npz("points.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B]) = mean(square(guess(x) - y))
  optimizer = adam(lr=0.01)
  batch = 4
}
"""


def each(target: str) -> Artifact:
    """A program with every collective."""
    return of_text(EACH, target)


def of_text(text: str, target: str) -> Artifact:
    """A program of IR."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "each.dlir")
        path.write_text(text, "utf-8")
        request = CompileRequest(str(path), trust_ir=True, settings=Settings(target=target))
        return make_artifact(request).artifact


def results(made: Artifact, comm: Any) -> list[NDArray[Any]]:  # noqa: ANN401 - ranks of either kind
    """What a rank gets of the program with every collective."""
    own = np.arange(6, dtype=np.float32).reshape(2, 3) * (1 + link_rank(comm))
    with dlc.Model(made, threads=1, comm=comm) as model:
        return [np.asarray(value) for value in cast("list[Any]", model.each(own))]


def link_rank(comm: Any) -> int:  # noqa: ANN401 - ranks of either kind
    """Which rank this is."""
    return comm.Get_rank() if hasattr(comm, "Get_rank") else comm.rank


def training(target: str, ranks: int, split: Shard | None = None) -> Artifact:
    """A network that trains."""
    request = CompileRequest(path="", text=NET, settings=Settings(target=target))
    return plan_training(request).artifact(Report(), ranks, split)


def trained(made: Artifact, comm: object) -> tuple[str, list[float]]:
    """The device of a rank, and its losses of four steps and of a batch that is not divided."""
    random = np.random.default_rng(0)
    trainer = Trainer(made, threads=1, comm=comm)
    sizes = 4, 4, 4, 3, 4
    batches = [
        {name: random.standard_normal((size, *rest)).astype(np.float32) for name, rest in SHAPES}
        for size in sizes
    ]
    losses = [trainer.step(**batch) for batch in batches]
    return trainer.model.device, [*losses, trainer.measure(**batches[0])["loss"]]


SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (("x", (3,)), ("y", ()))
