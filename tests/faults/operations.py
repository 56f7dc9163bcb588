"""What dlc does with files and memory, each in a folder where everything it needs lies ready."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
from onnx import helper

import dlc
from dlc.cli import main
from dlc.errors import DlcError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model
from dlc.runtime.training.checkpoint import read_checkpoint
from dlc.runtime.training.trainer import Trainer
from dlc.runtime.weights.files import open_weights
from tests.importers.onnx.models import model_of

MODEL = """\
dlc 1
dim B = 1..64
module Net() {
  param w: f32[4, 3] = normal(0.5)
  param b: f32[3] = normal(0.5)
  export fn f(x: f32[B, 4]) -> f32[B, 3] = relu(x @ (w * 2.0) + b)
}
"""
LARGE = """\
dlc 1
module Net() {
  param w: f32[4, 600000] = uniform(-1.0, 1.0)
  export fn f(x: f32[2, 4]) -> f32[2, 600000] = x @ w
}
"""
TRAINED = """\
dlc 1
import nn (Linear)
dim B = 1..64
module Line() {
  use a = Linear(2, 1)
  export fn f(x: f32[B, 2]) -> f32[B, 1] = a(x)
}
train Line {
  data = npz("line.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 2], y: f32[B, 1]) = mean((f(x) - y) ** 2)
  optimizer = adam(lr=1e-2)
  batch = 4
  epochs = 1
  seed = 1
}
"""
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
BATCH = {"x": np.ones((4, 2), np.float32), "y": np.zeros((4, 1), np.float32)}


@dataclass(frozen=True)
class Operation:
    """`prepare` fills a folder, `begin` makes what the operation needs in memory, `run` is what may fail.

    `check` raises AssertionError where what came of it is wrong.
    """

    prepare: Callable[[Path], None]
    begin: Callable[[Path], object]
    run: Callable[[object, Path], object]
    check: Callable[[object, Path], None]
    writes: tuple[str, ...] = ()
    """The files that it replaces, each of which is the old one or the whole new one at any time."""
    cache: str = ""
    """The folder of the cache; none without a name."""


def _nothing(folder: Path) -> None:
    """What needs nothing, or leaves nothing to check."""


def _result(model: object) -> None:
    """A model is the one that was meant: it gives what another compilation of its text gives."""
    assert isinstance(model, Model)
    np.testing.assert_array_equal(model.f(X), _expected())


@cache
def _model() -> Model:
    return dlc.compile(text=MODEL)


@cache
def _trained() -> Artifact:
    """What trains, compiled."""
    with TemporaryDirectory() as folder:
        _write_line(Path(folder))
        path = Path(folder, "line.dlm")
        path.write_text(TRAINED)
        dlc.trainer(path).save(path.with_suffix(".dlc"))
        return Artifact.from_bytes(path.with_suffix(".dlc").read_bytes())


@cache
def _expected() -> object:
    return _model().f(X)


def _write_line(folder: Path) -> None:
    x = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    np.savez(folder / "line.npz", x=x, y=x @ np.array([[1], [2]], np.float32))


def _trainer(folder: Path) -> Trainer:
    trainer = Trainer(_trained(), folder=folder)
    trainer.total_steps = 100
    return trainer


def _weights(trainer: Trainer) -> dict[str, object]:
    return {name: np.asarray(array).tolist() for name, array in trainer.weights.items()}


# The operations.


def _fill_cache(folder: Path) -> None:
    os.environ["DLC_CACHE"] = str(folder / "cache")
    dlc.compile(text=MODEL)


def _compile(state: object, folder: Path) -> Model:
    return dlc.compile(text=MODEL)


def _check_compiled(found: object, folder: Path) -> None:
    _result(found)


def _old_artifact(folder: Path) -> None:
    dlc.compile(text=MODEL.replace("0.5", "0.25")).save(folder / "m.dlc")


def _save(state: object, folder: Path) -> None:
    _model().save(folder / "m.dlc")


def _check_saved(found: object, folder: Path) -> None:
    _result(dlc.load(folder / "m.dlc"))


def _new_artifact(folder: Path) -> None:
    _model().save(folder / "m.dlc")


def _load(state: object, folder: Path) -> Model:
    return dlc.load(folder / "m.dlc")


def _call(state: object, folder: Path) -> object:
    assert isinstance(state, Model)
    return state.f(X)


def _check_called(found: object, folder: Path) -> None:
    np.testing.assert_array_equal(found, _expected())


def _begin_call(folder: Path) -> Model:
    return dlc.load(folder / "m.dlc")


def _step(state: object, folder: Path) -> float:
    assert isinstance(state, Trainer)
    return state.step(**BATCH)


def _check_step(found: object, folder: Path) -> None:
    """A step that failed has changed nothing, so the next one is the first."""
    assert found == _trainer(folder).step(**BATCH)


def _old_checkpoint(folder: Path) -> None:
    _trainer(folder).save(folder / "c.safetensors")


def _begin_checkpoint(folder: Path) -> Trainer:
    trainer = _trainer(folder)
    trainer.step(**BATCH)
    return trainer


def _checkpoint(state: object, folder: Path) -> Trainer:
    assert isinstance(state, Trainer)
    state.save(folder / "c.safetensors")
    return state


def _check_checkpoint(found: object, folder: Path) -> None:
    assert isinstance(found, Trainer)
    other = _trainer(folder)
    other.resume(folder / "c.safetensors")
    assert (other.steps, _weights(other)) == (1, _weights(found))


def _new_checkpoint(folder: Path) -> None:
    _begin_checkpoint(folder).save(folder / "c.safetensors")


def _resume(state: object, folder: Path) -> Trainer:
    assert isinstance(state, Trainer)
    state.resume(folder / "c.safetensors")
    return state


def _fit(state: object, folder: Path) -> Trainer:
    assert isinstance(state, Trainer)
    state.fit(checkpoint=folder / "c.safetensors")
    return state


def _check_fit(found: object, folder: Path) -> None:
    assert isinstance(found, Trainer)
    read = read_checkpoint(folder / "c.safetensors")
    assert (read.facts.epoch, read.facts.step, len(found.history)) == (1, 3, 1)
    other = _trainer(folder)
    other.fit()
    assert _weights(found) == _weights(other)


def _write_onnx(folder: Path) -> None:
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = model_of(nodes, {"x": X}, ["y"], {"w": w})
    (folder / "m.onnx").write_bytes(made.SerializeToString())


def _command(*words: str) -> None:
    """A command line, here: its exit code and what it says are an error as Python has it."""
    told = io.StringIO()
    with redirect_stderr(told):
        code = main(words)
    if code:
        said = told.getvalue()
        assert said.startswith("error[D"), said
        assert "D0999" not in said, said
        raise DlcError(said, code=said[6:11])


def _import(state: object, folder: Path) -> None:
    _command("import", "m.onnx", "-o", "m.dlm")


def _check_import(found: object, folder: Path) -> None:
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    with dlc.compile(folder / "m.dlm") as model:
        (y,) = cast("tuple[object]", model(X))
        np.testing.assert_allclose(np.asarray(y), X @ w, rtol=1e-6)


def _write_npz(folder: Path) -> None:
    weights = {name: np.asarray(array) for name, array in _model().weights.items()}
    np.savez(folder / "w.npz", w=weights["w"], b=weights["b"])


def _with_weights(state: object, folder: Path) -> Model:
    return _model().with_weights(folder / "w.npz")


def _result_file(folder: Path) -> None:
    _new_artifact(folder)
    np.save(folder / "x.npy", X)
    safetensors.write(folder / "y.safetensors", {"y": Tensor(np.zeros(2, np.float32))})


def _run(state: object, folder: Path) -> None:
    _command("run", "m.dlc", "--input", "x=x.npy", "--output", "f=y.safetensors")


def _check_run(found: object, folder: Path) -> None:
    _check_called(open_weights(folder / "y.safetensors")["f"].bits, folder)


@cache
def _large() -> Model:
    return dlc.compile(text=LARGE)


def _save_large(state: object, folder: Path) -> None:
    _large().save(folder / "m.dlc")


def _check_large(found: object, folder: Path) -> None:
    with dlc.load(folder / "m.dlc") as model:
        np.testing.assert_array_equal(model.weights["w"], _large().weights["w"])


def _load_large(folder: Path) -> None:
    _large().save(folder / "m.dlc")


OPERATIONS: Mapping[str, Operation] = {
    "compile": Operation(_nothing, _nothing, _compile, _check_compiled),
    "compile into the cache": Operation(
        _nothing, _nothing, _compile, _check_compiled, cache="cache"
    ),
    "compile from the cache": Operation(
        _fill_cache, _nothing, _compile, _check_compiled, cache="cache"
    ),
    "save": Operation(_old_artifact, _nothing, _save, _check_saved, writes=("m.dlc",)),
    "load": Operation(_new_artifact, _nothing, _load, _check_compiled),
    "first call": Operation(_new_artifact, _begin_call, _call, _check_called),
    "training step": Operation(_nothing, _trainer, _step, _check_step),
    "write a checkpoint": Operation(
        *(_old_checkpoint, _begin_checkpoint, _checkpoint, _check_checkpoint),
        writes=("c.safetensors",),
    ),
    "resume": Operation(_new_checkpoint, _trainer, _resume, _check_checkpoint),
    "fit": Operation(_write_line, _trainer, _fit, _check_fit, writes=("c.safetensors",)),
    "import": Operation(
        *(_write_onnx, _nothing, _import, _check_import),
        writes=("m.dlm", "m.safetensors"),
    ),
    "read weights": Operation(_write_npz, _nothing, _with_weights, _check_compiled),
    "run": Operation(_result_file, _nothing, _run, _check_run, writes=("y.safetensors",)),
    "save a large model": Operation(
        _old_artifact, _nothing, _save_large, _check_large, writes=("m.dlc",)
    ),
    "load a large model": Operation(_load_large, _nothing, _load, _check_large),
}
"""What is swept, by the name that `docs/safety.md` has for it."""
